"""Tables of the ledger, and how its errors are told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from green_core.errors import LedgerUnavailable
from green_core.export.text import storable
from green_core.values import IntervalRecord, RequestRecord

SCHEMA_VERSION = 2
APPLICATION_ID = 0x67726E73  # "grns": tells a ledger from any other SQLite file
BUSY_TIMEOUT_S = 1.5  # longest wait for another process's lock

# (column, SQL type, attribute of RequestRecord). Written out rather than derived: a new field of
# the record must not change the file's format without a new SCHEMA_VERSION.
REQUEST_FIELDS = (
    ("request_id", "TEXT", "request_id"),
    ("tenant", "TEXT", "tenant"),
    ("urgency", "TEXT", "urgency"),
    ("arrival_s", "REAL", "arrival_s"),
    ("finished_s", "REAL", "finished_s"),
    ("wait_s", "REAL", "wait_s"),
    ("held_s", "REAL", "held_s"),
    ("prompt_tokens", "INTEGER", "prompt_tokens"),
    ("cached_tokens", "INTEGER", "cached_tokens"),
    ("output_tokens", "INTEGER", "output_tokens"),
    ("energy_j", "REAL", "energy_j"),
    ("prefill_j", "REAL", "prefill_j"),
    ("decode_j", "REAL", "decode_j"),
    ("compute_j", "REAL", "parts.compute_j"),
    ("memory_j", "REAL", "parts.memory_j"),
    ("idle_j", "REAL", "parts.idle_j"),
    ("cooling_j", "REAL", "parts.cooling_j"),
    ("avoided_j", "REAL", "avoided_j"),
    ("operational_g", "REAL", "operational_g"),
    ("embodied_g", "REAL", "embodied_g"),
    ("intensity_g_per_kwh", "REAL", "intensity_g_per_kwh"),
    ("kind", "TEXT", "kind"),
    ("zone", "TEXT", "zone"),
    ("method", "TEXT", "method"),
    ("settled", "INTEGER", "settled"),
    ("finish_reason", "TEXT", "finish_reason"),
    ("basis", "TEXT", "basis"),
    ("uncertainty_ratio", "REAL", "uncertainty_ratio"),
)
NULLABLE = frozenset({"uncertainty_ratio"})
# Columns that a schema brought, with what rows of the schemas before it get.
ADDED_IN_2 = (("basis", "TEXT NOT NULL DEFAULT 'unknown'"), ("uncertainty_ratio", "REAL"))
INTERVAL_FIELDS = (
    ("start_s", "REAL", "start_s"),
    ("end_s", "REAL", "end_s"),
    ("active_j", "REAL", "active_j"),
    ("idle_j", "REAL", "idle_j"),
    ("intensity_g_per_kwh", "REAL", "intensity_g_per_kwh"),
    ("operational_g", "REAL", "operational_g"),
    ("embodied_g", "REAL", "embodied_g"),
    ("method", "TEXT", "method"),
)
OWNER_FIELDS = (
    ("instance_id", "TEXT"),
    ("engine", "TEXT"),
    ("engine_index", "INTEGER"),
    ("model", "TEXT"),
)
REQUEST_COLUMNS = tuple(f[0] for f in OWNER_FIELDS) + tuple(f[0] for f in REQUEST_FIELDS)
INTERVAL_COLUMNS = ("instance_id", *(f[0] for f in INTERVAL_FIELDS))
_request_values = attrgetter(*(f[2] for f in REQUEST_FIELDS))
_interval_values = attrgetter(*(f[2] for f in INTERVAL_FIELDS))


def _columns(fields: tuple[tuple[str, ...], ...]) -> str:
    return ", ".join(
        f"{field[0]} {field[1]}{'' if field[0] in NULLABLE else ' NOT NULL'}" for field in fields
    )


def _insert(table: str, columns: tuple[str, ...], key: str) -> str:
    marks = ", ".join("?" * len(columns))
    names = ", ".join(columns)
    return f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({key}) DO NOTHING"


# The natural keys make a replay harmless. Clients choose request ids and may use one again, so
# the end time is part of the key.
REQUEST_KEY = "instance_id, request_id, finished_s"
INTERVAL_KEY = "instance_id, start_s, end_s"
INSERT_REQUEST = _insert("requests", REQUEST_COLUMNS, REQUEST_KEY)
INSERT_INTERVAL = _insert("intervals", INTERVAL_COLUMNS, INTERVAL_KEY)

DDL = (
    # pruned_*: energy of rows that were pruned, so the books still balance afterwards.
    """CREATE TABLE instances (
        instance_id TEXT PRIMARY KEY, engine TEXT NOT NULL, engine_version TEXT NOT NULL,
        engine_index INTEGER NOT NULL, model TEXT NOT NULL, device TEXT NOT NULL,
        device_count INTEGER NOT NULL, started_s REAL NOT NULL, ended_s REAL,
        greenserve_version TEXT NOT NULL,
        pruned_requests_j REAL NOT NULL DEFAULT 0, pruned_idle_j REAL NOT NULL DEFAULT 0,
        pruned_metered_j REAL NOT NULL DEFAULT 0)""",
    f"CREATE TABLE requests (id INTEGER PRIMARY KEY, {_columns(OWNER_FIELDS)}, "
    f"{_columns(REQUEST_FIELDS)}, UNIQUE ({REQUEST_KEY}))",
    f"CREATE TABLE intervals (id INTEGER PRIMARY KEY, instance_id TEXT NOT NULL, "
    f"{_columns(INTERVAL_FIELDS)}, UNIQUE ({INTERVAL_KEY}))",
    "CREATE INDEX requests_by_end ON requests (finished_s)",
    "CREATE INDEX intervals_by_end ON intervals (end_s)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def request_values(record: RequestRecord) -> tuple[Any, ...]:
    """Values of ``record`` in the order of ``REQUEST_FIELDS``."""
    return tuple([storable(v) if isinstance(v, str) else v for v in _request_values(record)])


def interval_values(interval: IntervalRecord) -> tuple[Any, ...]:
    """Values of ``interval`` in the order of ``INTERVAL_FIELDS``."""
    values: tuple[Any, ...] = _interval_values(interval)
    return values


# What brings a file of an earlier schema up to date, by that schema.
UPGRADES = {
    1: (
        *(f"ALTER TABLE requests ADD COLUMN {name} {sql}" for name, sql in ADDED_IN_2),
        "PRAGMA user_version = 2",
    )
}
# What shows a file of an earlier schema, which a reader must not change, in today's columns.
VIEWS = {
    1: "CREATE TEMP VIEW requests AS"
    " SELECT *, 'unknown' AS basis, NULL AS uncertainty_ratio FROM main.requests"
}


def version(connection: sqlite3.Connection, path: Path) -> int:
    """The file's schema, 0 without tables; raises ``LedgerUnavailable`` if it is no ledger."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables or found:
            raise LedgerUnavailable(
                f"{path}: is an SQLite database of another program, not a greenserve ledger. "
                "Name another file"
            )
        return 0
    if found != SCHEMA_VERSION and found not in UPGRADES:
        raise LedgerUnavailable(
            f"{path}: has schema {found}, this greenserve knows schema {SCHEMA_VERSION}. "
            "Use the greenserve release that wrote it (or a later one), or name another file"
        )
    return int(found)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether ``error`` means that another connection holds the lock."""
    return _primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@contextmanager
def errors_told(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors into ``LedgerUnavailable``."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"{path}: {_explain(error)}") from error
    except OSError as error:
        raise LedgerUnavailable(f"{path}: {error.strerror or error}") from error


_REASONS = {
    sqlite3.SQLITE_FULL: "no space is left for it. Free some, or lower ledger.keep_days",
    sqlite3.SQLITE_BUSY: f"another process has locked it for over {BUSY_TIMEOUT_S} s. "
    "Find who holds it open (an sqlite3 shell?) and let it finish",
    sqlite3.SQLITE_LOCKED: "it is locked by another connection. Let that one finish",
    sqlite3.SQLITE_NOTADB: "is not an SQLite database. Name another file, or move this one away",
    sqlite3.SQLITE_CORRUPT: "is damaged. Move it away and recover it with 'sqlite3 FILE .recover'",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Check that the directory exists and may be written",
    sqlite3.SQLITE_READONLY: "may not be written. Check the permissions of file and directory",
    sqlite3.SQLITE_IOERR: "reading or writing failed. Check the disk and its free space",
}


def _primary_code(error: sqlite3.Error) -> int:
    # The low byte is the primary code; Python sets none on errors of its own (misuse).
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _explain(error: sqlite3.Error) -> str:
    reason = _REASONS.get(_primary_code(error))
    return f"{reason} ({error})" if reason else f"SQLite refused ({error})"
