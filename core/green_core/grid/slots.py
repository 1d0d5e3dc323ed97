"""Slots of a live source: checked, laid over each other, gathered over many fetches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from green_core.config import CarbonConfig
from green_core.errors import SignalUnavailable
from green_core.export.text import printable
from green_core.grid.source import Slot, Snapshot

KEEP_S = 8 * 86_400.0  # a week for patterns, and a day for what comes late
FINE_S = 3_600.0  # how long slots are kept as they came
COARSE_S = 300.0  # what shorter ones are averaged to after that, and in a forecast
MOST_G_PER_KWH = 5_000.0  # several times what any plant emits
LONGEST_TEXT = 500  # of a service's name or zone, which become labels
SHORTEST_S = 0.001
LATEST_S = 253_402_300_800.0  # the year 10000


def checked(snapshot: Snapshot, carbon: CarbonConfig) -> Snapshot:
    """The snapshot itself, if it can be used for ``carbon``.

    Raises ``SignalUnavailable``: no slot ("empty"), slots that are not ordered or whose values are
    not within 0 and ``MOST_G_PER_KWH`` ("malformed"), another kind or basis than configured
    ("kind", FIELD G12).
    """
    if snapshot.kind != carbon.kind:
        raise SignalUnavailable(
            f"{snapshot.source} serves {snapshot.kind} values where {carbon.kind} ones are asked "
            "for; the two kinds are never mixed",
            reason="kind",
        )
    if carbon.basis not in {"any", snapshot.basis}:
        raise SignalUnavailable(
            f"{snapshot.source} serves values of {snapshot.basis} basis where {carbon.basis} ones "
            "are asked for",
            reason="kind",
        )
    if not snapshot.history and not snapshot.forecast:
        raise SignalUnavailable(f"{snapshot.source} gave no value", reason="empty")
    if not math.isfinite(snapshot.fetched_at_s):
        raise SignalUnavailable(f"{snapshot.source} was asked at no known time", reason="malformed")
    if not (snapshot.renewable_ratio is None or 0 <= snapshot.renewable_ratio <= 1):
        raise SignalUnavailable(
            f"{snapshot.source} gave a renewable share of {snapshot.renewable_ratio}, not 0 to 1",
            reason="malformed",
        )
    for slots in (snapshot.history, snapshot.forecast):
        for slot in slots:
            value = slot.intensity_g_per_kwh
            in_time = 0 <= slot.start_s <= slot.end_s - SHORTEST_S <= LATEST_S
            if not (in_time and 0 <= value <= MOST_G_PER_KWH):
                raise SignalUnavailable(
                    f"{snapshot.source} gave a value that is none: {value} g/kWh from "
                    f"{slot.start_s} to {slot.end_s}",
                    reason="malformed",
                )
        if any(a.end_s > b.start_s for a, b in pairwise(slots)):
            raise SignalUnavailable(
                f"{snapshot.source} gave values whose times overlap", reason="malformed"
            )
    return snapshot


def overlay(under: Sequence[Slot], over: Sequence[Slot]) -> tuple[Slot, ...]:
    """Both in order of time; where they overlap, ``over`` counts. Each by itself has no overlap."""
    if not under or not over:
        return tuple(under or over)
    result: list[Slot] = []
    index = 0
    for slot in under:
        start_s = slot.start_s
        while index < len(over) and over[index].end_s <= start_s:
            index += 1
        at = index
        while at < len(over) and over[at].start_s < slot.end_s:
            if over[at].start_s > start_s:
                result.append(replace(slot, start_s=start_s, end_s=over[at].start_s))
            start_s = over[at].end_s
            at += 1
        if start_s == slot.start_s:
            result.append(slot)
        elif start_s < slot.end_s:
            result.append(replace(slot, start_s=start_s))
    result.extend(over)
    result.sort(key=_start_s)
    return tuple(result)


def merged(earlier: Snapshot | None, newer: Snapshot, *, keep_forecast_s: float = 0.0) -> Snapshot:
    """``newer`` with the history of ``earlier`` added, where both speak of the same thing.

    A measured value counts before an estimate, then the newer before the earlier. What ended
    ``KEEP_S`` ago is dropped; so is what, by the clock of ``newer``, has not begun: a clock that
    was set back leaves such slots behind.

    Where ``newer`` brought no forecast, that of ``earlier`` stays while it is younger than
    ``keep_forecast_s``; what has begun of it is an estimate. Raises ``SignalUnavailable``
    ("empty") when nothing is left.
    """
    now_s = newer.fetched_at_s
    newer = replace(newer, source=one_line(newer.source), zone=one_line(newer.zone))
    old: Sequence[Slot] = ()
    forecast, heard_s = newer.forecast, newer.forecast_at_s
    begun: Sequence[Slot] = ()
    if earlier is not None and (earlier.kind, earlier.basis, earlier.zone) == (
        newer.kind,
        newer.basis,
        newer.zone,
    ):
        old = [slot for slot in earlier.history if slot.start_s <= now_s]
        said_s = earlier.fetched_at_s if earlier.forecast_at_s is None else earlier.forecast_at_s
        if not forecast and earlier.forecast and 0 <= now_s - said_s < keep_forecast_s:
            begun = [
                replace(slot, is_estimate=True)
                for slot in earlier.forecast
                if slot.start_s <= now_s
            ]
            forecast, heard_s = earlier.forecast[len(begun) :], said_s
    estimates = overlay(
        [slot for slot in old if slot.is_estimate],
        [slot for slot in newer.history if slot.is_estimate],
    )
    measured = overlay(
        [slot for slot in old if not slot.is_estimate],
        [slot for slot in newer.history if not slot.is_estimate],
    )
    known = overlay(begun, overlay(estimates, measured))
    kept = [slot for slot in known if slot.end_s > now_s - KEEP_S]
    if not kept and not forecast:
        raise SignalUnavailable(
            f"{newer.source} gave no value of the last {KEEP_S / 86_400:g} days", reason="empty"
        )
    return replace(
        newer,
        history=_thinned(kept, now_s - FINE_S),
        forecast=_thinned(forecast, math.inf),
        forecast_at_s=heard_s,
    )


def _thinned(slots: Sequence[Slot], before_s: float) -> tuple[Slot, ...]:
    """Short slots that ended before ``before_s``, averaged by ``COARSE_S``; all others as is."""
    result: list[Slot] = []
    bin_at = math.nan
    for slot in slots:
        length_s = slot.end_s - slot.start_s
        is_fine = length_s < COARSE_S and slot.end_s <= before_s
        slot_bin = slot.start_s // COARSE_S if is_fine else math.nan
        last = result[-1] if result else slot
        if slot_bin == bin_at and last.end_s == slot.start_s:
            had_s = last.end_s - last.start_s
            total = last.intensity_g_per_kwh * had_s + slot.intensity_g_per_kwh * length_s
            result[-1] = Slot(
                last.start_s,
                slot.end_s,
                total / (had_s + length_s),
                last.is_estimate or slot.is_estimate,
            )
        else:
            result.append(slot)
        bin_at = slot_bin
    return tuple(result)


def one_line(text: str, longest: int = LONGEST_TEXT) -> str:
    """A service's words, fit for logs, labels and JSON: printable and of bounded length."""
    return printable(" ".join(text.split()))[:longest]


def typical_length_s(slots: Iterable[Slot], otherwise_s: float) -> float:
    """The median length of a slot, seconds; ``otherwise_s`` when there is none."""
    lengths = sorted(slot.end_s - slot.start_s for slot in slots)
    return lengths[len(lengths) // 2] if lengths else otherwise_s


def _start_s(slot: Slot) -> float:
    return slot.start_s
