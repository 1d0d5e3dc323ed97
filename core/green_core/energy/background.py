"""Takes slow readings in a thread of its own, so that nobody waits for them.

The thread sleeps until it is asked: an engine that is idle, and therefore asks nothing, causes no
wake-ups.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
RETRY_S, MAX_RETRY_S = 1.0, 60.0

logger = logging.getLogger("greenserve")


class BackgroundReader(Generic[T]):
    """``read`` answers the newest reading at once and asks for the next one.

    ``take`` makes a reading and may block, raise or answer ``None`` (no reading). It is called no
    more often than every ``every_s``, an attribute that may be changed at any time, and after a
    failure with growing pauses. A reading is answered until it is ``late_s`` older than
    ``every_s``. ``now_s`` is any clock in seconds. A forked child starts with a thread of its own
    and without readings.
    """

    def __init__(
        self,
        take: Callable[[], T | None],
        *,
        every_s: float,
        late_s: float,
        now_s: Callable[[], float],
        name: str,
    ) -> None:
        self.every_s = every_s
        self._take = take
        self._late_s = late_s
        self._now_s = now_s
        self._name = name
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        # The condition may be one that the parent's thread held when this process was forked.
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._newest: T | None = None
        self._problem: Exception | None = None
        self._taken_at_s = self._next_s = float("-inf")
        self._pause_s = RETRY_S
        self._takes = 0
        self._asked = False

    def read(self) -> T | None:
        """The newest reading, or ``None`` when there is none that is new enough."""
        if self._pid != os.getpid():
            self._begin()
        with self._changed:
            now_s = self._now_s()
            self._ask(now_s)
            if self._newest is None or now_s - self._taken_at_s > self.every_s + self._late_s:
                return None
            return self._newest

    def wait(self, timeout_s: float) -> T | None:
        """Ask, and wait for what comes of it; for the start of a process."""
        with self._changed:
            taken = self._takes
            self._ask(self._now_s())
            self._changed.wait_for(lambda: self._takes > taken or self._closed, timeout_s)
            return self._newest if self._takes > taken else None

    @property
    def problem(self) -> Exception | None:
        """Why the last attempt failed, if it raised."""
        return self._problem

    def close(self) -> None:
        """Let the thread end, without waiting for it."""
        self._closed = True
        if self._pid == os.getpid():
            with self._changed:
                self._newest = None
                self._changed.notify_all()

    def _ask(self, now_s: float) -> None:
        if self._closed or now_s < self._next_s:
            return
        self._asked = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked or self._closed)
                if self._closed:
                    return
            at_s = self._now_s()
            taken: T | None = None
            problem: Exception | None = None
            try:
                taken = self._take()
            except Exception as error:
                problem = error
                logger.debug("greenserve: %s: no reading: %s", self._name, error)
            with self._changed:
                self._note(at_s, taken, problem)

    def _note(self, at_s: float, taken: T | None, problem: Exception | None) -> None:
        self._asked = False
        self._takes += 1
        self._problem = problem
        if taken is None:
            self._next_s = self._now_s() + self._pause_s
            self._pause_s = min(2.0 * self._pause_s, MAX_RETRY_S)
        else:
            self._newest = None if self._closed else taken
            self._taken_at_s = at_s
            self._next_s = at_s + self.every_s
            self._pause_s = RETRY_S
        self._changed.notify_all()
