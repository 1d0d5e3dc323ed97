"""A vendor's management library as one process holds it.

Such a library does not survive a fork, and its driver can go away under it (FIELD E16, E17). So it
is opened late, opened again by a process that finds itself forked, and asked again with growing
pauses while the driver is away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")
RETRY_S, MAX_RETRY_S = 1.0, 60.0


class DriverSession:
    """Opens, queries and closes one library.

    ``start`` and ``stop`` are the library's own, ``find`` answers a device's handle by its name,
    ``errors`` are what all three and every query may raise.
    """

    def __init__(
        self,
        *,
        start: Callable[[], object],
        stop: Callable[[], object],
        find: Callable[[str], Any],
        errors: tuple[type[Exception], ...],
        now_s: Callable[[], float],
    ) -> None:
        self.now_s = now_s
        self._start = start
        self._stop = stop
        self._find = find
        self._errors = errors
        self._pid = 0
        self._handles: dict[str, Any] = {}
        self._retry_at_s = 0.0
        self._pause_s = RETRY_S

    def open(self) -> None:
        """Open the library in this process; raises one of ``errors``."""
        if self._pid:
            # What is open belongs to a driver that went away, or to the parent process.
            with contextlib.suppress(*self._errors):
                self._stop()
        self._pid = 0
        self._handles = {}
        self._start()
        self._pid = os.getpid()

    def close(self) -> None:
        """Give the library back, if this very process holds it."""
        if self._pid == os.getpid():
            with contextlib.suppress(*self._errors):
                self._stop()
        self._pid = 0

    def query(self, name: str, function: Callable[[Any], Answer]) -> Answer | None:
        """``function(handle)``, or ``None`` for a gap.

        One failure is asked again at once, since "busy" passes; a second one closes the library
        until the pause is over.
        """
        for _ in range(2):
            if not self._ready():
                return None
            try:
                handle = self._handles.get(name)
                if handle is None:
                    handle = self._handles[name] = self._find(name)
                answer = function(handle)
            except self._errors:
                continue
            self._pause_s = RETRY_S
            return answer
        self._lose()
        return None

    def _ready(self) -> bool:
        if self._pid == os.getpid():
            return True
        if not self._pid and self.now_s() < self._retry_at_s:
            return False
        try:
            self.open()
        except self._errors:
            self._lose()
            return False
        return True

    def _lose(self) -> None:
        self.close()
        self._handles = {}
        self._retry_at_s = self.now_s() + self._pause_s
        self._pause_s = min(2.0 * self._pause_s, MAX_RETRY_S)


def close_together(close: Callable[[], None], count: int) -> list[Callable[[], None]]:
    """One ``close`` for each of ``count`` users; the last one that is called calls ``close``."""
    still_open = set(range(count))

    def closer(number: int) -> Callable[[], None]:
        def done() -> None:
            still_open.discard(number)
            if not still_open:
                close()

        return done

    return [closer(number) for number in range(count)]
