"""What is known of the grid as steps in time: pure, with no clock and no I/O.

Built whole whenever something new is heard, then only looked up. The past is what the service
measured, else what it estimated; the present and the coming may also be its forecast. Where
nothing is said the value before is carried.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from green_core.config import CarbonConfig
from green_core.grid.persistence import NOTE, persistence
from green_core.grid.slots import overlay, typical_length_s
from green_core.grid.source import Slot, Snapshot
from green_core.grid.static import ZoneAverage, stand_in
from green_core.values import ForecastPoint, GridView

SOURCE_NOTE = "; forecast: the service's own"
LEAST_STEP_S = 300.0  # of a persistence forecast
MOST_PIECES = 500  # into which a carried value is cut


class _Step(NamedTuple):
    """A value from ``start_s`` until the next step. ``ends_s``: where a forecast begins."""

    start_s: float
    intensity_g_per_kwh: float
    observed_at_s: float
    ends_s: float
    is_estimate: bool
    is_stale: bool


class Timeline:
    """Answers views from one snapshot. Never raises; safe to ask from several threads.

    ``offset_s`` is added to the snapshot's wall times to get those of the asking clock.
    ``heard_s`` is when, on that clock, the service last answered (``-inf``: cannot be told).

    A value is stale ``carbon.stale_after_s`` after the newest word on it: the last answer while
    some slot covers the instant; else the end of the last slot, where that is earlier.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        carbon: CarbonConfig,
        *,
        offset_s: float,
        heard_s: float,
        period_s: float,
    ) -> None:
        self._snapshot = snapshot
        self._carbon = carbon
        self._heard_s = heard_s
        self._known = _moved(snapshot.history, offset_s)
        self._known_s = [slot.start_s for slot in self._known]
        self._ends_s = [slot.end_s for slot in self._known]
        self._values = [slot.intensity_g_per_kwh for slot in self._known]
        coming = _moved(snapshot.forecast, offset_s, is_estimate=True)
        self._slots = overlay(coming, self._known)
        self._slot_s = [slot.start_s for slot in self._slots]
        self._step_s = max(typical_length_s(self._known, period_s), LEAST_STEP_S)
        self._method = _method(carbon.forecast, has_own=bool(snapshot.forecast))
        note = {"source": SOURCE_NOTE, "persistence": NOTE}.get(self._method, "")
        self._source = snapshot.source + note
        self._average: ZoneAverage | None = None
        if carbon.on_stale == "static":
            self._average, _ = stand_in(carbon.zone)
        self._steps = self._all_steps()
        self._starts_s = [step.start_s for step in self._steps]
        self._heard = bisect_right(self._starts_s, heard_s) - 1  # the step of the last answer
        # The step that was asked last: its start, its end, its view.
        self.slice = (math.inf, -math.inf, self._build(0))

    def view(self, now_s: float) -> GridView:
        """The snapshot at ``now_s``; the same object while nothing changes."""
        index = bisect_right(self._starts_s, now_s) - 1
        view = self._build(index)
        self.slice = (self._starts_s[index], view.valid_until_s, view)
        return view

    def intensity_at(self, at_s: float) -> float:
        """Intensity in g/kWh at an instant; what ``view`` says for it."""
        return self._steps[bisect_right(self._starts_s, at_s) - 1].intensity_g_per_kwh

    def _build(self, index: int) -> GridView:
        step = self._steps[index]
        last = index + 1 == len(self._steps)
        average = self._average if step.is_stale else None
        forecast, end_s = self._forecast(step) if average is None else ((), 0.0)
        snapshot, is_heard = self._snapshot, index == self._heard
        return GridView(
            intensity_g_per_kwh=step.intensity_g_per_kwh,
            kind=snapshot.kind,
            zone=average.zone if average else snapshot.zone,
            observed_at_s=step.observed_at_s,
            valid_until_s=math.inf if last else self._starts_s[index + 1],
            source=self._source if average is None else self._in_place(average),
            is_estimate=step.is_estimate or step.is_stale,
            state=self._carbon.state(step.intensity_g_per_kwh),
            forecast=forecast,
            forecast_end_s=end_s,
            basis=average.basis if average else snapshot.basis,
            quality="stale" if step.is_stale else "fresh",
            renewable_ratio=snapshot.renewable_ratio if is_heard and not average else None,
            licence=average.licence if average else snapshot.licence,
        )

    def _in_place(self, average: ZoneAverage) -> str:
        return f"static table: {average.provenance}, in place of stale {self._snapshot.source}"

    # --- steps ----------------------------------------------------------------------------

    def _all_steps(self) -> list[_Step]:
        steps: list[_Step] = []
        first, heard_s = self._slots[0], self._heard_s
        limit_s = self._carbon.stale_after_s
        self._add(steps, -math.inf, first.start_s, first, heard_s + limit_s)
        for index, slot in enumerate(self._slots):
            self._add(steps, slot.start_s, slot.end_s, slot, heard_s + limit_s)
            has_next = index + 1 < len(self._slots)
            gap_ends_s = self._slot_s[index + 1] if has_next else math.inf
            if slot.end_s < gap_ends_s:
                stale_at_s = min(heard_s, slot.end_s) + limit_s
                self._carry(steps, slot, gap_ends_s, stale_at_s)
        return steps

    def _carry(self, steps: list[_Step], slot: Slot, ends_s: float, stale_at_s: float) -> None:
        """A value past its slot, in pieces, so that each has its forecast from its end on."""
        start_s, until_s = slot.end_s, min(ends_s, stale_at_s)
        if self._method == "persistence" and until_s > self._heard_s:
            for n in range(1, MOST_PIECES):
                piece_ends_s = slot.end_s + n * self._step_s
                if piece_ends_s >= until_s:
                    break
                self._add(steps, start_s, piece_ends_s, slot, stale_at_s)
                start_s = piece_ends_s
        self._add(steps, start_s, ends_s, slot, stale_at_s)

    def _add(
        self,
        steps: list[_Step],
        start_s: float,
        ends_s: float,
        slot: Slot,
        stale_at_s: float,
    ) -> None:
        """One step of a slot's value, or two where it turns stale on the way."""
        is_estimate = slot.is_estimate or not slot.start_s <= start_s < slot.end_s
        value, observed_s = slot.intensity_g_per_kwh, min(slot.start_s, self._heard_s)
        if not math.isfinite(observed_s):
            observed_s = slot.start_s
        if start_s < stale_at_s:
            steps.append(_Step(start_s, value, observed_s, ends_s, is_estimate, False))
        stale_s = max(start_s, stale_at_s)
        if stale_s >= ends_s:
            return
        if self._average is None:
            steps.append(_Step(stale_s, value, observed_s, ends_s, is_estimate, True))
        elif not (steps and steps[-1].is_stale):
            value, observed_s = self._average.intensity_g_per_kwh, self._average.known_at_s
            steps.append(_Step(stale_s, value, observed_s, ends_s, True, True))

    # --- forecast -------------------------------------------------------------------------

    def _forecast(self, step: _Step) -> tuple[tuple[ForecastPoint, ...], float]:
        """Points from the end of the step's value on, and where the last of them ends."""
        start_s = step.ends_s
        if self._method == "none" or not math.isfinite(start_s):
            return (), 0.0
        horizon_s = start_s + self._carbon.forecast_hours * 3600.0
        if self._method == "source":
            first, last = bisect_left(self._slot_s, start_s), bisect_left(self._slot_s, horizon_s)
            ahead = self._slots[first:last]
            points = tuple(ForecastPoint(s.start_s, s.intensity_g_per_kwh) for s in ahead)
            return points, min(horizon_s, ahead[-1].end_s) if ahead else 0.0
        expected = persistence(
            self._known_s,
            self._values,
            present_s=max(step.start_s, self._slot_s[0]),
            present=step.intensity_g_per_kwh,
            start_s=start_s,
            horizon_s=horizon_s,
            step_s=self._step_s,
            ends_s=self._ends_s,
        )
        points = tuple(ForecastPoint(at_s, value) for at_s, value in expected)
        return points, horizon_s if points else 0.0


class StandIn:
    """The yearly average of the zone while the service was never heard; says so in the view.

    It is of average kind whatever was configured, and labelled as that (FIELD G12).
    """

    def __init__(self, carbon: CarbonConfig) -> None:
        row, place = stand_in(carbon.zone)
        view = GridView(
            intensity_g_per_kwh=row.intensity_g_per_kwh,
            kind="average",
            zone=row.zone,
            observed_at_s=row.known_at_s,
            valid_until_s=math.inf,
            source=f"static table: {place}{row.provenance}, while {carbon.source} was never heard",
            is_estimate=True,
            state=carbon.state(row.intensity_g_per_kwh),
            basis=row.basis,
            quality="fallback",
            licence=row.licence,
        )
        self.slice = (-math.inf, math.inf, view)

    def view(self, now_s: float) -> GridView:
        """The same at any time."""
        return self.slice[2]

    def intensity_at(self, at_s: float) -> float:
        """The same g/kWh at any time."""
        return self.slice[2].intensity_g_per_kwh


def _method(wanted: str, *, has_own: bool) -> str:
    if wanted == "auto":
        return "source" if has_own else "persistence"
    return wanted


def _moved(
    slots: tuple[Slot, ...], offset_s: float, *, is_estimate: bool = False
) -> tuple[Slot, ...]:
    """Onto the asking clock; what its resolution cannot show is left out."""
    moved = (
        Slot(
            slot.start_s + offset_s,
            slot.end_s + offset_s,
            slot.intensity_g_per_kwh,
            slot.is_estimate or is_estimate,
        )
        for slot in slots
    )
    return tuple(slot for slot in moved if slot.start_s < slot.end_s)
