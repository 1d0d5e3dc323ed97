"""Turns what a meter shows into stretches of time, each with its energy or with a gap.

A counter moves every ``period_s`` and is read at other moments, so a stretch runs from one
reading at which it had moved to the next (FIELD E12). A counter that ran backwards, began anew,
moved faster than the devices can draw, stood still or could not be read gives a gap, never a
number (FIELD E11, E17). The time between two good readings may be of any length: a counter that
kept counting while nobody looked lost nothing.
"""

from __future__ import annotations

import math

import msgspec

from green_core.values import MeterReading

METHOD_GAP = "estimated:model(meter gap)"


class Stretch(msgspec.Struct):
    """Time up to ``end_s`` (from the end of the stretch before).

    ``metered_j`` is the counter's delta; ``None`` leaves the stretch to the model.
    """

    end_s: float
    metered_j: float | None
    method: str


class CounterTrack:
    """Follows one cumulative counter. ``gaps`` counts the stretches it could not vouch for."""

    def __init__(
        self,
        *,
        method: str,
        model_method: str,
        period_s: float,
        max_w: float,
        max_gap_s: float,
        start_s: float,
    ) -> None:
        self.gaps = 0
        self._method = method
        self._model_method = model_method
        self._period_s = period_s
        self._max_w = max_w
        self._max_gap_s = max_gap_s
        self._edge_s = start_s
        self._base: MeterReading | None = None
        self._had_base = False
        self._still_since_s: float | None = None
        self._in_gap = False

    def observe(self, now_s: float, reading: MeterReading | None) -> Stretch | None:
        """The stretch that ``reading`` ends, or ``None`` while the counter has not moved."""
        if reading is None or not self._is_usable(now_s, reading):
            return self._waiting(now_s, None)
        base = self._base
        if base is None:
            return self._restart(reading)
        span_s = reading.at_s - base.at_s
        delta_j = reading.energy_j - base.energy_j
        if span_s <= 0.0:
            return None
        # One period more than the time between the readings, since the counter's own steps
        # do not fall on them.
        most_j = self._max_w * (span_s + self._period_s)
        if reading.restarts or not 0.0 <= delta_j <= most_j:
            self.gaps += 1
            return self._restart(reading)
        if delta_j == 0.0 and reading.method is None:
            return self._waiting(reading.at_s, reading)
        self._base = reading
        self._still_since_s = None
        self._in_gap = False
        return self._stretch(reading.at_s, delta_j, reading.method or self._method)

    def close(self, now_s: float) -> Stretch | None:
        """The tail that the counter has not seen: left to the model."""
        return self._stretch(now_s, None, self._model_method)

    def _is_usable(self, now_s: float, reading: MeterReading) -> bool:
        if not (math.isfinite(reading.energy_j) and math.isfinite(reading.at_s)):
            return False
        # Counting from a reading older than what is settled would pay for that time twice.
        is_late = self._base is None and reading.at_s < self._edge_s
        return not is_late and reading.at_s - now_s <= self._max_gap_s

    def _waiting(self, at_s: float, base: MeterReading | None) -> Stretch | None:
        """Nothing new; after ``max_gap_s`` the time is given up to the model."""
        if self._still_since_s is None:
            self._still_since_s = at_s
        if at_s - self._still_since_s < self._max_gap_s:
            return None
        if not self._in_gap:  # an outage is one gap, however often it is looked at
            self.gaps += 1
        self._in_gap = True
        self._base = base
        self._had_base = True
        return self._stretch(at_s, None, METHOD_GAP)

    def _restart(self, reading: MeterReading) -> Stretch | None:
        # Before the first reading there was no meter to have a gap.
        method = METHOD_GAP if self._had_base else self._model_method
        self._base = reading
        self._had_base = True
        self._still_since_s = None
        self._in_gap = False
        return self._stretch(reading.at_s, None, method)

    def _stretch(self, end_s: float, metered_j: float | None, method: str) -> Stretch | None:
        if end_s <= self._edge_s and not metered_j:
            return None
        self._edge_s = max(end_s, self._edge_s)
        return Stretch(self._edge_s, metered_j, method)
