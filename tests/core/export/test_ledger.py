"""Guarantees of the ledger within one process."""

import os
import sqlite3
import typing

import msgspec
import pytest

from green_core.errors import LedgerUnavailable
from green_core.export.ledger import SCHEMA_VERSION, Ledger, balance, read_requests, schema, totals
from green_core.testing.builders import interval_record
from green_core.values import EnergyParts, IntervalRecord, RequestRecord, Settled

DAY_S = 86_400.0
HOSTILE_TENANTS = ["", "a'; DROP TABLE requests; --", "zero\0byte", "Ünïcode 🌍", "x" * 5_000]


def open_ledger(path, engine, *, keep_days=0.0, **options):
    return Ledger.open(path, engine=engine, keep_days=keep_days, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path, engine):
    opened = open_ledger(path, engine)
    yield opened
    opened.close()


def test_every_field_of_a_record_comes_back(ledger, path, make_record, engine):
    record = make_record(tenant="globex", settled=False)
    ledger.write(Settled((record,)))
    (row,) = read_requests(path)
    expected = msgspec.structs.asdict(record)
    expected |= msgspec.structs.asdict(expected.pop("parts"))
    del expected["early_stop"]
    owner = {
        "instance_id": ledger.instance_id,
        "engine": engine.engine,
        "engine_index": engine.engine_index,
        "model": engine.model,
    }
    assert row == owner | expected


def test_the_tables_hold_every_field_of_the_contract():
    """But early stops: they say what was not used, which no account is charged for."""

    def names(struct):
        return set(struct.__struct_fields__)

    requests = (names(RequestRecord) - {"parts", "early_stop"}) | names(EnergyParts)
    assert {field[0] for field in schema.REQUEST_FIELDS} == requests
    assert {field[0] for field in schema.INTERVAL_FIELDS} == names(IntervalRecord)


def test_columns_have_the_type_of_their_field():
    sql_types = {float: "REAL", int: "INTEGER", bool: "INTEGER", str: "TEXT"}
    for struct, fields in (
        (RequestRecord, schema.REQUEST_FIELDS),
        (IntervalRecord, schema.INTERVAL_FIELDS),
    ):
        hints = typing.get_type_hints(struct)
        for column, sql_type, _ in fields:
            hint = hints.get(column, float)
            if column in schema.NULLABLE:
                assert type(None) in typing.get_args(hint), column
                (hint,) = set(typing.get_args(hint)) - {type(None)}
            assert sql_type == sql_types.get(hint, "TEXT"), column


def test_a_replay_changes_nothing(ledger, path, make_record):
    settled = Settled((make_record(), make_record()), (interval_record(),))
    ledger.write(settled)
    before = list(read_requests(path)), balance(path)
    ledger.write(settled)
    assert (list(read_requests(path)), balance(path)) == before


def test_a_request_id_may_be_used_again_later(ledger, path, make_record):
    ledger.write(Settled((make_record(request_id="r", finished_s=100.0),)))
    ledger.write(Settled((make_record(request_id="r", finished_s=200.0),)))
    assert [row["finished_s"] for row in read_requests(path)] == [100.0, 200.0]


def test_a_batch_is_written_whole_or_not_at_all(ledger, path, make_record):
    with pytest.raises(LedgerUnavailable):
        ledger.write(Settled((make_record(), make_record(energy_j=float("nan")))))
    assert list(read_requests(path)) == []
    ledger.write(Settled((make_record(),)))
    assert len(list(read_requests(path))) == 1


@pytest.mark.parametrize("tenant", HOSTILE_TENANTS)
def test_hostile_tenants_are_kept_as_they_are(ledger, path, make_record, tenant):
    ledger.write(Settled((make_record(tenant=tenant), make_record(tenant="other"))))
    (row,) = read_requests(path, tenant=tenant)
    assert row["tenant"] == tenant


def test_undecodable_header_bytes_do_not_stop_the_ledger(ledger, path, make_record):
    ledger.write(Settled((make_record(tenant="caf\udce9"),)))
    (row,) = read_requests(path)
    assert row["tenant"] == "caf?"


def test_requests_are_read_by_end_time_in_a_half_open_span(ledger, path, make_record):
    ledger.write(Settled(tuple(make_record(finished_s=t) for t in (30.0, 10.0, 20.0))))
    rows = read_requests(path, since_s=10.0, until_s=30.0)
    assert [row["finished_s"] for row in rows] == [10.0, 20.0]


def test_totals_by_tenant_add_up_to_all_requests(ledger, path, make_record):
    records = [make_record(energy_j=e, tenant=t) for e, t in ((1.0, "a"), (2.0, "b"), (4.0, "a"))]
    ledger.write(Settled(tuple(records)))
    rows = totals(path, by="tenant")
    assert [(row.group, row.requests, row.energy_j) for row in rows] == [
        ("a", 2, 5.0),
        ("b", 1, 2.0),
    ]
    assert sum(row.carbon_g for row in rows) == pytest.approx(sum(r.carbon_g for r in records))


def test_methods_and_kinds_are_never_added_up(ledger, path, make_record):
    """FIELD E13, G12."""
    ledger.write(
        Settled(
            (
                make_record(method="measured:nvml-counter"),
                make_record(method="estimated"),
                make_record(method="estimated", kind="marginal"),
            )
        )
    )
    keys = {(row.group, row.method, row.kind) for row in totals(path)}
    assert keys == {
        ("acme", "measured:nvml-counter", "average"),
        ("acme", "estimated", "average"),
        ("acme", "estimated", "marginal"),
    }


def test_books_of_a_closed_process_balance(path, engine, make_record):
    ledger = open_ledger(path, engine)
    ledger.write(Settled((make_record(0.1), make_record(0.2)), (interval_record(0.3, 7.0),)))
    ledger.close()
    (book,) = balance(path)
    assert book.closed
    assert book.balanced
    assert (book.requests_j, book.idle_j, book.metered_j) == pytest.approx((0.3, 7.0, 7.3))


@pytest.mark.parametrize("active_j", [9.0, 11.0])
def test_books_that_do_not_balance_are_told(path, engine, make_record, active_j):
    ledger = open_ledger(path, engine)
    ledger.write(Settled((make_record(10.0),), (interval_record(active_j, 5.0),)))
    ledger.close()
    (book,) = balance(path)
    assert not book.balanced
    assert book.difference_j == pytest.approx(active_j - 10.0)


def test_a_running_process_may_have_metered_more_than_it_billed(ledger, path, make_record):
    ledger.write(Settled((make_record(10.0),), (interval_record(25.0),)))
    (book,) = balance(path)
    assert not book.closed
    assert book.balanced


def test_a_running_process_may_bill_a_request_before_its_last_second_of_metering(
    ledger, path, make_record
):
    interval = interval_record(10.0, start_s=0.0, end_s=100.0)
    ledger.write(Settled((make_record(12.0, finished_s=100.5),), (interval,)))
    assert balance(path)[0].balanced


def test_a_running_process_may_not_bill_more_than_it_metered(ledger, path, make_record):
    interval = interval_record(10.0, start_s=0.0, end_s=100.0)
    ledger.write(Settled((make_record(12.0, finished_s=99.5),), (interval,)))
    assert not balance(path)[0].balanced


def test_old_rows_are_pruned_and_the_books_still_balance(path, engine, make_record):
    now_s = 100 * DAY_S
    days = (10, 20, 95, 99)
    ledger = open_ledger(path, engine)
    for day in days:
        end_s = day * DAY_S
        record = make_record(energy_j=day, finished_s=end_s)
        interval = interval_record(day, 1.0, start_s=end_s - 10, end_s=end_s)
        ledger.write(Settled((record,), (interval,)))
    ledger.close()
    open_ledger(path, engine, keep_days=30.0, now_s=lambda: now_s).close()
    assert [row["finished_s"] / DAY_S for row in read_requests(path)] == [95, 99]
    book = next(book for book in balance(path) if book.instance_id == ledger.instance_id)
    assert book.balanced
    assert book.requests_j == pytest.approx(sum(days))


def test_more_rows_than_one_batch_are_pruned(path, engine, make_record, monkeypatch):
    monkeypatch.setattr("green_core.export.ledger.writer._PRUNE_ROWS", 2)
    ledger = open_ledger(path, engine)
    ledger.write(Settled(tuple(make_record(finished_s=t) for t in (1.0, 2.0, 2.0, 2.0, 3.0, 4.0))))
    ledger.close()
    open_ledger(path, engine, keep_days=1.0).close()
    assert list(read_requests(path)) == []


def test_a_process_that_runs_for_long_prunes_as_it_writes(path, engine, make_record):
    now_s = [10 * DAY_S]
    ledger = open_ledger(path, engine, keep_days=2.0, now_s=lambda: now_s[0])
    ledger.write(Settled((make_record(finished_s=now_s[0]),)))
    now_s[0] += 3 * DAY_S
    ledger.write(Settled((make_record(finished_s=now_s[0]),)))
    assert [row["finished_s"] for row in read_requests(path)] == [now_s[0]]
    ledger.close()


def test_zero_days_keep_everything(path, engine, make_record):
    ledger = open_ledger(path, engine)
    ledger.write(Settled((make_record(finished_s=1.0),)))
    ledger.close()
    open_ledger(path, engine, keep_days=0.0).close()
    assert len(list(read_requests(path))) == 1


def test_each_open_is_an_instance_of_its_own(path, engine, make_record):
    record = make_record()
    for _ in range(2):
        ledger = open_ledger(path, engine)
        ledger.write(Settled((record,)))
        ledger.close()
    assert len({row["instance_id"] for row in read_requests(path)}) == 2


def test_a_ledger_of_a_later_release_is_refused_and_untouched(path, engine):
    open_ledger(path, engine).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    for attempt in (lambda: open_ledger(path, engine), lambda: list(read_requests(path))):
        with pytest.raises(LedgerUnavailable, match=f"schema {SCHEMA_VERSION + 1}"):
            attempt()
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_untouched(path, engine):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE requests (anything)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerUnavailable, match="another program"):
        open_ledger(path, engine)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_untouched(path, engine):
    path.write_text("not a database, but long enough to be read as the header of one\n" * 30)
    before = path.read_bytes()
    with pytest.raises(LedgerUnavailable, match="not an SQLite database"):
        open_ledger(path, engine)
    assert path.read_bytes() == before


def test_a_missing_directory_is_said_to_be_missing(tmp_path, engine):
    with pytest.raises(LedgerUnavailable, match="directory does not exist"):
        open_ledger(tmp_path / "nowhere" / "ledger.db", engine)


def test_reading_a_missing_ledger_does_not_create_it(path):
    with pytest.raises(LedgerUnavailable, match="no such file"):
        read_requests(path)
    assert not path.exists()


def test_nothing_waits_for_a_lock_beyond_two_seconds():
    assert schema.BUSY_TIMEOUT_S < 2.0


def test_a_writer_that_is_locked_out_gives_up_and_can_go_on_later(
    path, engine, make_record, monkeypatch
):
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.1)
    ledger = open_ledger(path, engine)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="locked"):
        ledger.write(Settled((make_record(),)))
    blocker.execute("ROLLBACK")
    blocker.close()
    ledger.write(Settled((make_record(),)))
    ledger.close()
    assert len(list(read_requests(path))) == 1


def test_opening_a_locked_ledger_gives_up(ledger, path, engine, monkeypatch):
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.1)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="locked"):
        open_ledger(path, engine)
    blocker.close()


def test_pruning_never_waits_for_another_writer(path, engine, make_record, monkeypatch):
    """A lock met while pruning is no failure: the rows go at the next turn."""
    ledger = open_ledger(path, engine)
    ledger.write(Settled((make_record(finished_s=1.0),)))
    ledger.close()
    blocker = sqlite3.connect(path, isolation_level=None)
    prune = Ledger._prune

    def locked_while_pruning(self, batches):
        blocker.execute("BEGIN IMMEDIATE")
        prune(self, batches)
        blocker.execute("ROLLBACK")

    monkeypatch.setattr(Ledger, "_prune", locked_while_pruning)
    open_ledger(path, engine, keep_days=1.0).close()
    blocker.close()
    assert len(list(read_requests(path))) == 1


def test_readers_do_not_stop_a_writer(ledger, path, make_record):
    ledger.write(Settled(tuple(make_record() for _ in range(5))))
    rows = read_requests(path)
    next(rows)
    ledger.write(Settled((make_record(),)))
    assert len(list(rows)) == 4  # the snapshot at the time the reading began
    assert len(list(read_requests(path))) == 6


def test_a_copy_on_read_only_media_can_be_read(path, engine, make_record, monkeypatch):
    ledger = open_ledger(path, engine)
    ledger.write(Settled((make_record(),)))
    ledger.close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    rows = read_requests(path)
    next(rows)
    assert os.listdir(path.parent) == [path.name]  # SQLite needed no file beside it


def test_a_closed_ledger_refuses_to_write(path, engine, make_record):
    ledger = open_ledger(path, engine)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        ledger.write(Settled((make_record(),)))


def test_a_power_cut_cannot_take_a_written_batch(ledger):
    connection = ledger._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
