"""A clock that tells epoch time and never steps back.

Deadlines, holds and step times must survive an operator's or NTP's step of the wall clock, so
the wall clock is read once and advanced by the kernel's boot-time clock, which also runs while
the machine is suspended. A step that lasts is adopted only when nothing is being timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _boot_s() -> float:
    return time.clock_gettime(_BOOTTIME)


class SteadyClock:
    """Epoch seconds from a steady source.

    ``wall_s`` and ``steady_s`` are the two sources (epoch seconds; any steady seconds).
    """

    tolerance_s = 2.0

    def __init__(
        self, wall_s: Callable[[], float] = time.time, steady_s: Callable[[], float] = _boot_s
    ) -> None:
        self._wall_s = wall_s
        self._steady_s = steady_s
        self._offset_s = wall_s() - steady_s()

    def now(self) -> float:
        """Epoch seconds; never less than an earlier answer unless :meth:`adopt` moved it."""
        return self._steady_s() + self._offset_s

    def from_wall(self, at_s: float) -> float:
        """This clock's time for a recent wall-clock stamp, after any step of the wall clock.

        Only the stamp's age is taken over, and none of it where the stamp lies ahead.
        """
        return self.now() - max(self._wall_s() - at_s, 0.0)

    def adopt(self) -> float:
        """Follow the wall clock if it was stepped; answers by how many seconds (0.0: it was not).

        Call only while no request, hold or step is being timed.
        """
        drift_s = self._wall_s() - self.now()
        if abs(drift_s) <= self.tolerance_s:
            return 0.0
        self._offset_s += drift_s
        return drift_s
