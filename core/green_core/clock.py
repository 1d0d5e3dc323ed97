"""A clock that tells epoch time and never steps back.

Deadlines, holds and step times must survive an operator's or NTP's step of the wall clock, so
the wall clock is read once and advanced by the kernel's boot-time clock, which also runs while
the machine is suspended. A step of the wall clock is never followed; a restart takes it over.
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

    def __init__(
        self, wall_s: Callable[[], float] = time.time, steady_s: Callable[[], float] = _boot_s
    ) -> None:
        self._wall_s = wall_s
        self._steady_s = steady_s
        self._offset_s = wall_s() - steady_s()

    def now(self) -> float:
        """Epoch seconds; never less than an earlier answer."""
        return self._steady_s() + self._offset_s

    def from_wall(self, at_s: float) -> float:
        """This clock's time for a recent wall-clock stamp, after any step of the wall clock.

        Only the stamp's age is taken over, and none of it where the stamp lies ahead.
        """
        return self.now() - max(self._wall_s() - at_s, 0.0)
