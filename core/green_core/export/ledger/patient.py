"""A ledger that outlasts locks, full disks and files that go away."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable

from green_core.errors import LedgerUnavailable
from green_core.export.ledger import schema
from green_core.export.ledger.writer import Ledger
from green_core.values import Settled

logger = logging.getLogger("greenserve")

KEEP_RECORDS = 10_000  # most requests that wait in memory, and most intervals
KEEP_INTERVALS = 10_000
FIRST_PAUSE_S = 1.0  # after a failed attempt; doubles with each further one
LONGEST_PAUSE_S = 30.0


class PatientLedger:
    """Writes what it is given now or, while the file cannot be written, later.

    Batches that could not be written wait in memory, the oldest giving way, and go into one
    transaction once the file can be written again. A file that was moved away, deleted or
    replaced is noticed before a write, and a ledger is opened at the path anew. No call raises
    ``LedgerUnavailable``; each failed attempt calls ``on_failure``. Calls must not overlap.
    """

    def __init__(
        self,
        open_ledger: Callable[[], Ledger],
        *,
        on_failure: Callable[[], None],
    ) -> None:
        """Open the ledger at once; raises ``LedgerUnavailable`` if that fails."""
        self._open = open_ledger
        self._on_failure = on_failure
        self._ledger: Ledger | None = open_ledger()
        self._waiting: deque[Settled] = deque()
        self._pause_s = 0.0  # 0: the newest attempt succeeded
        self._next_try_s = 0.0
        self._dropped_records = self._dropped_intervals = 0

    @property
    def behind(self) -> bool:
        """Whether batches wait for another attempt."""
        return bool(self._waiting)

    def write(self, settled: Settled, now_s: float) -> None:
        """Write ``settled`` and all that waits, unless the pause after a failure goes on."""
        if settled.records or settled.intervals:
            self._waiting.append(settled)
        if self._waiting and now_s >= self._next_try_s and not self._attempt():
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._next_try_s = now_s + self._pause_s
        if self._pause_s:
            self._make_room()

    def close(self, last: Settled | None = None) -> None:
        """Try once more to write what waits and ``last``; then close the file."""
        if last is not None and (last.records or last.intervals):
            self._waiting.append(last)
        if self._waiting and not self._attempt():
            while self._waiting:
                self._drop_oldest()
            logger.error("the ledger ends without %s", self._dropped())
        if self._ledger is not None:
            with contextlib.suppress(LedgerUnavailable):
                self._ledger.close()

    def _attempt(self) -> bool:
        """Write all that waits; answers whether that worked."""
        try:
            before = self._ledger
            ledger = self._usable_ledger()
            # To open it may have taken all the time that an attempt has for locks.
            self._write_waiting(ledger, schema.BUSY_TIMEOUT_S if ledger is before else 0.0)
        except LedgerUnavailable as error:
            self._on_failure()
            if not self._pause_s:
                logger.error("%s. What is to be written waits in memory; serving goes on", error)
            return False
        if self._pause_s:
            lost = self._dropped_records or self._dropped_intervals
            logger.warning(
                "the ledger is written again, %s",
                f"without {self._dropped()}" if lost else "nothing was lost",
            )
        self._pause_s = self._next_try_s = 0.0
        self._dropped_records = self._dropped_intervals = 0
        return True

    def _usable_ledger(self) -> Ledger:
        if self._ledger is not None and self._ledger.displaced():
            logger.error(
                "%s: was moved, deleted or replaced. A new ledger is begun there",
                self._ledger.path,
            )
            ledger, self._ledger = self._ledger, None
            ledger.abandon()
        if self._ledger is None:
            self._ledger = self._open()
        return self._ledger

    def _write_waiting(self, ledger: Ledger, wait_s: float) -> None:
        try:
            ledger.write(_together(self._waiting), wait_s=wait_s)
            self._waiting.clear()
        except LedgerUnavailable as error:
            if not _is_refused(error):
                raise
            self._write_singly(ledger, wait_s)

    def _write_singly(self, ledger: Ledger, wait_s: float) -> None:
        """A batch whose values no table takes must not keep the others out."""
        while self._waiting:
            try:
                ledger.write(self._waiting[0], wait_s=wait_s)
            except LedgerUnavailable as error:
                if not _is_refused(error):
                    raise
                self._on_failure()
                logger.error("%s. A batch is left out of the ledger", error)
            self._waiting.popleft()

    def _make_room(self) -> None:
        # The newest batch stays whatever its size.
        while len(self._waiting) > 1 and (
            sum(len(s.records) for s in self._waiting) > KEEP_RECORDS
            or sum(len(s.intervals) for s in self._waiting) > KEEP_INTERVALS
        ):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._waiting.popleft()
        self._dropped_records += len(oldest.records)
        self._dropped_intervals += len(oldest.intervals)

    def _dropped(self) -> str:
        return f"{self._dropped_records} requests and {self._dropped_intervals} intervals"


def _together(batches: Iterable[Settled]) -> Settled:
    batches = tuple(batches)
    return Settled(
        tuple(record for batch in batches for record in batch.records),
        tuple(interval for batch in batches for interval in batch.intervals),
    )


def _is_refused(error: LedgerUnavailable) -> bool:
    """Whether the values are at fault rather than the file: trying again would be in vain."""
    return isinstance(error.__cause__, sqlite3.IntegrityError)
