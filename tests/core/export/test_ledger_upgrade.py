"""Ledgers of an earlier release are read as they are and upgraded by the first that writes."""

import sqlite3
from contextlib import closing

import pytest

from green_core.export.ledger import Ledger, read_requests, schema, totals
from green_core.values import Settled


@pytest.fixture
def old(tmp_path, engine, make_record):
    """A ledger as schema 1 wrote it, with one request."""
    path = tmp_path / "old.sqlite"
    ledger = Ledger.open(path, engine=engine, keep_days=0)
    ledger.write(Settled((make_record(energy_j=7.0),)))
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        for name, _ in schema.ADDED_IN_2:
            connection.execute(f"ALTER TABLE requests DROP COLUMN {name}")
        connection.execute("PRAGMA user_version = 1")
    return path


def user_version(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def test_an_old_ledger_is_read_without_being_changed(old):
    (row,) = read_requests(old)
    assert (row["energy_j"], row["basis"], row["uncertainty_ratio"]) == (7.0, "unknown", None)
    (total,) = totals(old)
    assert (total.energy_j, total.basis) == (7.0, "unknown")
    assert user_version(old) == 1


def test_an_old_ledger_is_upgraded_by_the_first_that_writes(old, engine, make_record):
    ledger = Ledger.open(old, engine=engine, keep_days=0)
    ledger.write(Settled((make_record(energy_j=2.0, request_id="new"),)))
    ledger.close()
    assert user_version(old) == schema.SCHEMA_VERSION
    rows = {row["energy_j"]: row["basis"] for row in read_requests(old)}
    assert rows == {7.0: "unknown", 2.0: "lifecycle"}


def test_grams_of_different_basis_are_not_added_up(tmp_path, engine, make_record):
    """FIELD G12, for what values count: lifecycle and direct differ by tens of grams."""
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger.open(path, engine=engine, keep_days=0)
    ledger.write(Settled((make_record(), make_record(basis="direct"))))
    ledger.close()
    assert sorted(total.basis for total in totals(path)) == ["direct", "lifecycle"]


def test_a_new_and_an_upgraded_ledger_have_the_same_columns(old, engine, tmp_path):
    Ledger.open(old, engine=engine, keep_days=0).close()
    fresh = tmp_path / "fresh.sqlite"
    Ledger.open(fresh, engine=engine, keep_days=0).close()

    def columns(path):
        with closing(sqlite3.connect(path)) as connection:
            return {row[1] for row in connection.execute("PRAGMA table_info(requests)")}

    assert columns(old) == columns(fresh)
