"""The writing side of the ledger."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from green_core.errors import LedgerUnavailable
from green_core.export.ledger import schema
from green_core.export.text import greenserve_version, storable
from green_core.values import EngineInfo, Settled

_DAY_S = 86_400.0
# Pruning holds the write lock, for which other engines wait at most BUSY_TIMEOUT_S: many short
# transactions, a few of them at the start and one each hour.
_PRUNE_ROWS = 2_000
_PRUNE_BATCHES_AT_OPEN = 20
_PRUNE_EVERY_S = 3_600.0
_CLOSE_WAIT_S = 0.4  # an exit may have to wait for a write first, and must end within 2 s


class Ledger:
    """One engine process's connection to the ledger.

    ``write`` is called from one background thread; ``close`` may be called from another. Every
    failure is a ``LedgerUnavailable``; no call waits longer than about two seconds for a lock.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        engine: EngineInfo,
        keep_days: float,
        now_s: Callable[[], float],
    ) -> None:
        self.instance_id = str(uuid.uuid4())
        self._connection = connection
        self._path = path
        self._keep_s = keep_days * _DAY_S
        self._now_s = now_s
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._next_prune_s = 0.0
        # As they are once the file is set up; an open file keeps its inode from being used again.
        self._inodes: dict[Path, tuple[int, int] | None] = {}
        self._owner = (
            self.instance_id,
            engine.engine,
            engine.engine_index,
            storable(engine.model),
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        engine: EngineInfo,
        keep_days: float,
        now_s: Callable[[], float] = time.time,
    ) -> Ledger:
        """Open or create the ledger at ``path`` and enter this process in it.

        Rows that ended more than ``keep_days`` ago are pruned (0 keeps everything). Raises
        ``LedgerUnavailable``.
        """
        file = Path(path).absolute()
        if not file.parent.is_dir():
            raise LedgerUnavailable(
                f"{file}: its directory does not exist. Create it, or change ledger.path"
            )
        with schema.errors_told(file):
            connection = sqlite3.connect(
                file,
                timeout=schema.BUSY_TIMEOUT_S,
                isolation_level=None,  # transactions are ours
                check_same_thread=False,  # opened by the start-up, written by a thread
            )
            try:
                ledger = cls(connection, file, engine, keep_days, now_s)
                ledger._set_up(engine)
                ledger._inodes = {name: _inode(name) for name in (file, *_side_files(file))}
            except BaseException:
                connection.close()
                raise
        return ledger

    @property
    def path(self) -> Path:
        """The file, absolute."""
        return self._path

    def displaced(self) -> bool:
        """Whether the file at the path is no longer the one that is open."""
        with schema.errors_told(self._path):
            return _inode(self._path) != self._inodes[self._path]

    def write(self, settled: Settled, *, wait_s: float | None = None) -> None:
        """Write all of ``settled`` in one transaction, or nothing; writing it again is harmless.

        ``wait_s`` is the longest wait for a lock; ``None``: ``BUSY_TIMEOUT_S``.
        """
        if not (settled.records or settled.intervals):
            return
        requests = [(*self._owner, *schema.request_values(r)) for r in settled.records]
        intervals = [(self.instance_id, *schema.interval_values(i)) for i in settled.intervals]
        with self._lock, schema.errors_told(self._path):
            self._check_usable()
            self._wait_at_most(schema.BUSY_TIMEOUT_S if wait_s is None else wait_s)
            with self._transaction():
                self._connection.executemany(schema.INSERT_REQUEST, requests)
                self._connection.executemany(schema.INSERT_INTERVAL, intervals)
            self._prune(batches=1)

    def close(self) -> None:
        """Note the orderly end of this process and close the file; safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if os.getpid() != self._pid:
                return  # a forked child must not touch its parent's connection
            with schema.errors_told(self._path):
                try:
                    self._wait_at_most(_CLOSE_WAIT_S)
                    with self._transaction():
                        self._connection.execute(
                            "UPDATE instances SET ended_s = ? WHERE instance_id = ?",
                            (self._now_s(), self.instance_id),
                        )
                finally:
                    self._connection.close()

    def abandon(self) -> None:
        """Let go of a displaced file, so that another can take its place at the path.

        What was written goes along with the file; this process stays in it as not ended. Its log
        and shared memory are removed from beside the path: SQLite would take them for the new
        file's. Raises nothing.
        """
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
            with suppress(sqlite3.Error):
                self._wait_at_most(0)
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with suppress(sqlite3.Error):
                self._connection.close()
            for name in _side_files(self._path):
                with suppress(OSError):
                    if _inode(name) == self._inodes[name]:
                        name.unlink(missing_ok=True)

    def _check_usable(self) -> None:
        if self._closed:
            raise LedgerUnavailable(f"{self._path}: was closed. Open it again to write")
        if os.getpid() != self._pid:
            # SQLite forbids carrying a connection across fork(): locks would be dropped silently.
            raise LedgerUnavailable(
                f"{self._path}: was opened by process {self._pid}, which forked this one. "
                "Open the ledger in the process that writes"
            )

    def _set_up(self, engine: EngineInfo) -> None:
        deadline_s = time.monotonic() + schema.BUSY_TIMEOUT_S
        self._use_wal(deadline_s)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._wait_at_most(deadline_s - time.monotonic())
        with self._transaction():
            found = schema.version(self._connection, self._path)
            for statement in schema.UPGRADES.get(found, ()) if found else schema.DDL:
                self._connection.execute(statement)
            self._connection.execute(
                "INSERT INTO instances (instance_id, engine, engine_version, engine_index, model,"
                " device, device_count, started_s, greenserve_version)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    self.instance_id,
                    engine.engine,
                    engine.version,
                    engine.engine_index,
                    storable(engine.model),
                    storable(engine.device),
                    engine.device_count,
                    self._now_s(),
                    greenserve_version(),
                ),
            )
        self._wait_at_most(schema.BUSY_TIMEOUT_S)
        self._prune(batches=_PRUNE_BATCHES_AT_OPEN)

    def _wait_at_most(self, seconds: float) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {max(0, int(seconds * 1000))}")

    def _use_wal(self, deadline_s: float) -> None:
        # A foreign database must be refused before its journal mode is changed.
        schema.version(self._connection, self._path)
        while True:
            self._wait_at_most(deadline_s - time.monotonic())
            try:
                (mode,) = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                # Two processes that create the file together: SQLite reports this lock at once,
                # without the busy timeout, because waiting could deadlock.
                if not schema.is_busy(error) or time.monotonic() >= deadline_s:
                    raise
                time.sleep(0.02)
        if mode != "wal":
            raise LedgerUnavailable(
                f"{self._path}: its file system cannot hold a write-ahead log (mode {mode!r}). "
                "Put the ledger on a local disk"
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # IMMEDIATE takes the write lock first, where the busy timeout applies; a transaction that
        # asks for it later fails at once.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _prune(self, batches: int) -> None:
        now_s = self._now_s()
        if not self._keep_s or now_s < self._next_prune_s:
            return
        self._next_prune_s = now_s + _PRUNE_EVERY_S
        self._wait_at_most(0)  # the caller may have waited for a lock already
        try:
            for _ in range(batches):
                with self._transaction():
                    more = self._prune_batch(now_s - self._keep_s)
                if not more:
                    return
        except sqlite3.OperationalError as error:
            if not schema.is_busy(error):
                raise  # a busy file is pruned at the next turn
        finally:
            self._wait_at_most(schema.BUSY_TIMEOUT_S)

    def _prune_batch(self, before_s: float) -> bool:
        """Prune the oldest rows, a batch of each table; answer whether more are left."""
        requests = self._prune_rows(
            "requests", "finished_s", before_s, "pruned_requests_j = pruned_requests_j + ?",
            "sum(energy_j)",
        )  # fmt: skip
        intervals = self._prune_rows(
            "intervals", "end_s", before_s,
            "pruned_idle_j = pruned_idle_j + ?, pruned_metered_j = pruned_metered_j + ?",
            "sum(idle_j), sum(active_j + idle_j)",
        )  # fmt: skip
        return requests or intervals

    def _prune_rows(self, table: str, ended: str, before_s: float, carry: str, sums: str) -> bool:
        last = self._connection.execute(
            f"SELECT {ended} FROM {table} WHERE {ended} < ? ORDER BY {ended} LIMIT 1 OFFSET ?",
            (before_s, _PRUNE_ROWS),
        ).fetchone()
        # At or before the batch's last row: rows of one instant go together, so it always ends.
        limit, value = ("<", before_s) if last is None else ("<=", last[0])
        groups = self._connection.execute(
            f"SELECT {sums}, instance_id FROM {table} WHERE {ended} {limit} ? GROUP BY instance_id",
            (value,),
        ).fetchall()
        self._connection.executemany(f"UPDATE instances SET {carry} WHERE instance_id = ?", groups)
        self._connection.execute(f"DELETE FROM {table} WHERE {ended} {limit} ?", (value,))
        return last is not None


def _side_files(path: Path) -> tuple[Path, Path]:
    return Path(f"{path}-wal"), Path(f"{path}-shm")


def _inode(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at ``path``; ``None`` without one."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
