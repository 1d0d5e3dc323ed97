"""Guarantees of the ledger that need processes of their own."""

import os
import signal
import sqlite3

import msgspec
import pytest

from green_core.errors import LedgerUnavailable
from green_core.export.ledger import Ledger, balance, read_requests
from green_core.testing.builders import interval_record
from green_core.values import Settled

WRITER = """
import resource, sys, msgspec
from green_core.errors import LedgerUnavailable
from green_core.export.ledger import Ledger, schema
from green_core.values import EngineInfo, IntervalRecord, RequestRecord, Settled

schema.BUSY_TIMEOUT_S = 60.0  # a slow disk under test must not look like a lock
path, name, batches, size, file_limit = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
engine = msgspec.json.decode(sys.stdin.readline(), type=EngineInfo)
record = msgspec.json.decode(sys.stdin.readline(), type=RequestRecord)
interval = msgspec.json.decode(sys.stdin.readline(), type=IntervalRecord)
ledger = Ledger.open(path, engine=engine, keep_days=0)
if file_limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
for batch in range(batches):
    records = tuple(
        msgspec.structs.replace(record, request_id=f"{name}-{batch}-{i}") for i in range(size)
    )
    end_s = interval.start_s + batch + 1
    active_j = sum(r.energy_j for r in records)
    time = msgspec.structs.replace(
        interval, start_s=end_s - 1, end_s=end_s, active_j=active_j
    )
    try:
        ledger.write(Settled(records, (time,)))
    except LedgerUnavailable as error:
        print("unavailable", error, flush=True)
        break
    print("written", batch, flush=True)
else:
    ledger.close()
"""


@pytest.fixture
def start_writer(start_script, engine, make_record, tmp_path):
    def start(name, *, batches, size, file_limit=0):
        arguments = [str(tmp_path / "ledger.db"), name, *map(str, (batches, size, file_limit))]
        process = start_script(WRITER, *arguments)
        for value in (engine, make_record(), interval_record()):
            process.stdin.write(msgspec.json.encode(value).decode() + "\n")
        process.stdin.flush()
        return process

    return start


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


def test_two_processes_that_write_at_once_lose_nothing(start_writer, path):
    """They also create the file at once."""
    writers = [start_writer(name, batches=40, size=5) for name in ("a", "b")]
    for writer in writers:
        output, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors
        assert output.count("written") == 40, output
    ids = [row["request_id"] for row in read_requests(path)]
    assert sorted(ids) == sorted(f"{n}-{b}-{i}" for n in "ab" for b in range(40) for i in range(5))
    assert [(book.closed, book.balanced) for book in balance(path)] == [(True, True)] * 2


def test_a_writer_killed_in_the_middle_leaves_whole_batches(start_writer, path, engine):
    size = 50
    writer = start_writer("victim", batches=1_000_000, size=size)
    for _ in range(5):
        assert writer.stdout.readline().startswith("written")
    writer.send_signal(signal.SIGKILL)
    output, _ = writer.communicate(timeout=60)
    told = 5 + output.count("written")

    rows = list(read_requests(path))
    assert len(rows) % size == 0
    assert len(rows) >= told * size
    Ledger.open(path, engine=engine, keep_days=0).close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert len(list(read_requests(path))) == len(rows)
    assert all(book.balanced for book in balance(path))


def test_a_full_disk_is_told_and_keeps_what_was_written(start_writer, path):
    """The file-size limit stands in for the end of the disk."""
    writer = start_writer("full", batches=10_000, size=100, file_limit=400_000)
    output, errors = writer.communicate(timeout=120)
    *written, last = output.splitlines()
    assert last.startswith("unavailable"), (output, errors)
    assert str(path) in last
    assert written
    assert len(list(read_requests(path))) == len(written) * 100


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_write_through_its_parents_connection(path, engine, make_record):
    """FIELD P1: handles belong to the process that opened them."""
    ledger = Ledger.open(path, engine=engine, keep_days=0)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ledger.write(Settled((make_record(),)))
        except LedgerUnavailable:
            ledger.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    ledger.write(Settled((make_record(),)))
    ledger.close()
    assert len(list(read_requests(path))) == 1
