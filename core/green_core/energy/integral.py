"""Adds up power samples into a counter."""

from __future__ import annotations

from green_core.values import MeterReading

MAX_GAP_S = 10.0  # beyond it two samples say nothing about the time between them


class PowerIntegral:
    """A counter in joules that starts at zero, by the trapezoid rule.

    Where two samples lie more than ``max_gap_s`` apart, nothing is added for the time between
    them, and the reading says that it restarts.
    """

    def __init__(self, max_gap_s: float = MAX_GAP_S) -> None:
        self._max_gap_s = max_gap_s
        self._energy_j = 0.0
        self._last: tuple[float, float] | None = None

    def add(self, at_s: float, watts: float) -> MeterReading:
        """The counter after one more sample."""
        restarts = False
        if self._last is not None:
            last_s, last_w = self._last
            span_s = max(0.0, at_s - last_s)
            restarts = span_s > self._max_gap_s
            if not restarts:
                self._energy_j += 0.5 * (watts + last_w) * span_s
        self._last = (at_s, watts)
        return MeterReading(at_s, self._energy_j, restarts=restarts)
