"""Guarantees of the ledger while its file cannot be written, and when it goes away."""

import sqlite3

import pytest

from green_core.errors import LedgerUnavailable
from green_core.export.ledger import Ledger, PatientLedger, balance, patient, read_requests, schema
from green_core.testing.builders import interval_record
from green_core.values import Settled

LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
connection.close()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def failures():
    return []


@pytest.fixture
def ledger(path, engine, failures, monkeypatch):
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.1)
    opened = PatientLedger(
        lambda: Ledger.open(path, engine=engine, keep_days=0.0),
        on_failure=lambda: failures.append(1),
    )
    yield opened
    opened.close()


@pytest.fixture
def lock(path):
    """Locks the ledger when called; the answer lets go."""
    connection = sqlite3.connect(path, isolation_level=None)

    def take():
        connection.execute("BEGIN IMMEDIATE")
        return lambda: connection.execute("ROLLBACK")

    yield take
    connection.close()


@pytest.fixture
def batch(make_record):
    """Batches that balance, each of the second that ends at ``end_s``."""

    def make(end_s, energy_j=10.0):
        interval = interval_record(energy_j, 0.0, start_s=end_s - 1.0, end_s=end_s)
        return Settled((make_record(energy_j, request_id=f"r{end_s:g}"),), (interval,))

    return make


def ids(path):
    return sorted(row["request_id"] for row in read_requests(path))


def test_a_lock_of_another_process_costs_no_row(
    ledger, path, batch, *, failures, start_script, caplog
):
    locker = start_script(LOCKER, str(path))
    assert locker.stdout.readline() == "locked\n"
    for now_s in (1.0, 2.0, 3.0, 4.0):
        ledger.write(batch(now_s), now_s)
    assert ledger.behind
    locker.communicate("\n", timeout=60)
    ledger.write(Settled(), 100.0)
    assert not ledger.behind
    assert ids(path) == ["r1", "r2", "r3", "r4"]
    assert len(failures) == 3  # at 1, 2 and 4 s
    ledger.close()
    (book,) = balance(path)
    assert book.closed
    assert book.balanced
    assert [r.levelname for r in caplog.records] == ["ERROR", "WARNING"]
    assert "nothing was lost" in caplog.text


def test_pauses_grow_to_half_a_minute_and_start_anew(ledger, batch, failures, lock):
    unlock = lock()
    tried_s = []
    for now_s in range(100):
        before = len(failures)
        ledger.write(Settled() if now_s else batch(1.0), float(now_s))
        if len(failures) > before:
            tried_s.append(now_s)
    assert tried_s == [0, 1, 3, 7, 15, 31, 61, 91]
    unlock()
    ledger.write(Settled(), 200.0)
    assert not ledger.behind
    unlock = lock()
    failures.clear()
    ledger.write(batch(2.0), 201.0)
    ledger.write(Settled(), 202.0)
    assert len(failures) == 2
    unlock()


@pytest.mark.parametrize("limit", ["KEEP_RECORDS", "KEEP_INTERVALS"])
def test_what_waits_is_bounded_and_what_is_dropped_is_told(
    ledger, path, batch, lock, *, caplog, monkeypatch, limit
):
    monkeypatch.setattr(patient, limit, 3)
    unlock = lock()
    for end_s in range(1, 8):
        ledger.write(batch(float(end_s)), 0.0)
    unlock()
    ledger.write(Settled(), 100.0)
    assert ids(path) == ["r5", "r6", "r7"]
    assert "without 4 requests and 4 intervals" in caplog.text


def test_a_batch_that_was_written_before_the_error_is_not_written_twice(
    ledger, path, batch, monkeypatch
):
    write = Ledger.write

    def fail_late(self, settled, **options):
        write(self, settled, **options)
        raise LedgerUnavailable("the answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "write", fail_late)
        ledger.write(batch(1.0), 0.0)
    assert ledger.behind
    ledger.write(batch(2.0), 100.0)
    assert ids(path) == ["r1", "r2"]
    assert balance(path)[0].metered_j == pytest.approx(20.0)
    assert balance(path)[0].balanced


def test_a_refused_batch_does_not_keep_the_others_out(ledger, path, batch, lock, caplog):
    unlock = lock()
    ledger.write(batch(1.0), 0.0)
    ledger.write(batch(2.0, energy_j=float("nan")), 0.0)
    ledger.write(batch(3.0), 0.0)
    unlock()
    ledger.write(Settled(), 100.0)
    assert ids(path) == ["r1", "r3"]
    assert not ledger.behind
    assert "left out" in caplog.text


@pytest.mark.parametrize("locked", [False, True])
def test_the_end_makes_one_last_attempt(ledger, path, batch, lock, *, caplog, failures, locked):
    unlock = lock()
    ledger.write(batch(1.0), 0.0)
    if not locked:
        unlock()
    ledger.close(batch(2.0))
    if locked:
        unlock()
    assert ids(path) == ([] if locked else ["r1", "r2"])
    assert ("ends without 2 requests" in caplog.text) == locked
    assert len(failures) == 1 + locked


@pytest.mark.parametrize("also", ["", "-wal", "-shm"])
def test_a_moved_file_keeps_its_rows_and_a_new_one_takes_the_rest(
    ledger, path, batch, *, caplog, failures, also
):
    aside = path.with_name("aside.db")
    ledger.write(batch(1.0), 0.0)
    path.rename(aside)
    if also:
        path.with_name(path.name + also).rename(aside.with_name(aside.name + also))
    ledger.write(batch(2.0), 1.0)
    ledger.close()
    assert ids(aside) == ["r1"]
    assert ids(path) == ["r2"]
    assert balance(path)[0].instance_id != balance(aside)[0].instance_id
    assert caplog.text.count("was moved, deleted or replaced") == 1
    assert not failures


def test_a_deleted_file_is_begun_anew(ledger, path, batch):
    ledger.write(batch(1.0), 0.0)
    path.unlink()
    ledger.write(batch(2.0), 1.0)
    assert ids(path) == ["r2"]


def test_a_file_put_in_its_place_is_gone_on_with(ledger, path, engine, batch):
    other = path.with_name("other.db")
    own = Ledger.open(other, engine=engine, keep_days=0.0)
    own.write(batch(7.0))
    own.close()
    ledger.write(batch(1.0), 0.0)
    other.replace(path)
    ledger.write(batch(2.0), 1.0)
    ledger.close()
    assert ids(path) == ["r2", "r7"]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_two_writers_of_a_moved_file_meet_again_in_the_new_one(ledger, path, engine, batch):
    second = PatientLedger(
        lambda: Ledger.open(path, engine=engine, keep_days=0.0), on_failure=lambda: None
    )
    for writer, end_s in ((ledger, 1.0), (second, 2.0)):
        writer.write(batch(end_s), 0.0)
    aside = path.rename(path.with_name("aside.db"))
    for writer, end_s in ((ledger, 3.0), (second, 4.0), (ledger, 5.0), (second, 6.0)):
        writer.write(batch(end_s), 1.0)
    ledger.close()
    second.close()
    assert ids(aside) == ["r1", "r2"]
    assert ids(path) == ["r3", "r4", "r5", "r6"]


def test_a_folder_that_comes_back_is_written_again(ledger, path, batch, tmp_path, failures):
    gone = tmp_path.rename(tmp_path.with_name("gone"))
    ledger.write(batch(1.0), 0.0)
    assert ledger.behind
    assert failures
    gone.rename(tmp_path)
    ledger.write(Settled(), 100.0)
    assert ids(path) == ["r1"]
