"""Dates the counters on a page that shows the same values until they are collected again.

A value is of the moment it was collected, which the page does not tell. It is dated by the look
that first showed it, so looks are close together when the next collection is due. The exporter's
own period is found out from that.
"""

from __future__ import annotations

from collections.abc import Mapping

from green_core.values import MeterReading

LOOK_S = 1.0  # between looks for a value that is due
PERIOD_S = 30.0  # the exporter's own until it is known: the default of dcgm-exporter
_MAX_PERIOD_S = 300.0
_CLOSE_S = 3.0 * LOOK_S  # looks nearer to each other than this date a value well enough
_STUCK_PERIODS = 3.0


class CounterTimes:
    """``readings`` holds the newest dated value of each counter, in joules, by name.

    A counter has none until it has moved once, since the age of a first value is unknown. A move
    that was seen late (after a pause of the engine) is dated half a period back.
    """

    def __init__(self) -> None:
        self.period_s = PERIOD_S
        self.readings: dict[str, MeterReading] = {}
        self._shown: dict[str, float] = {}
        self._looked_at_s = float("-inf")
        self._moved_at_s: float | None = None  # if that was seen well enough
        self._is_known = False

    @property
    def rest_s(self) -> float:
        """How long after the last look the next one is worth while."""
        if self._is_known and self._moved_at_s == self._looked_at_s:
            return max(LOOK_S, self.period_s - _CLOSE_S)  # as far off as it may be
        return LOOK_S

    @property
    def stuck_after_s(self) -> float:
        """Age at which a reading is too old: whoever collects has stopped."""
        return _STUCK_PERIODS * self.period_s

    def observe(self, at_s: float, energy_j: Mapping[str, float]) -> None:
        """Note the counters on a page that was asked for at ``at_s``."""
        since_s = at_s - self._looked_at_s
        moved = {
            name: value for name, value in energy_j.items() if self._shown.get(name, value) != value
        }
        if moved:
            dated_s = self._date(at_s, since_s)
            self.readings |= {name: MeterReading(dated_s, value) for name, value in moved.items()}
        self._shown |= energy_j
        self._looked_at_s = at_s

    def _date(self, at_s: float, since_s: float) -> float:
        if since_s <= _CLOSE_S:
            if self._moved_at_s is not None:
                self.period_s = min(max(at_s - self._moved_at_s, LOOK_S), _MAX_PERIOD_S)
                self._is_known = True
            self._moved_at_s = at_s
            return at_s
        dated_s = at_s - 0.5 * min(self.period_s, since_s)
        if since_s < self.period_s:  # it came before it was due: the period is shorter
            self.period_s = max(0.5 * self.period_s, LOOK_S)
        self._moved_at_s = None
        return dated_s
