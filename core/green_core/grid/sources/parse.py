"""From somebody else's JSON to slots. Nothing is indexed blindly: a shape that is not understood is
``SignalUnavailable`` ("malformed"), one without a value "empty" (FIELD G4, G7, G8).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from statistics import median_low
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.series import parse_time
from green_core.grid.slots import overlay
from green_core.grid.source import Slot

T = TypeVar("T")
# Failures of a part (the forecast) that say the whole is not what was asked for.
_OF_THE_WHOLE = frozenset({"kind", "unit", "synthetic"})


class Point(msgspec.Struct, frozen=True):
    """A value (g/kWh) that holds from ``at_s`` (epoch seconds); ``None`` is a gap.

    ``end_s`` is how long it holds, where the service says so.
    """

    at_s: float
    value: float | None
    is_estimate: bool = False
    end_s: float | None = None


def seconds(text: Any, where: str) -> float:
    """Epoch seconds of an ISO 8601 time with an offset; a naive one is refused (FIELD G8)."""
    try:
        return parse_time(text, where)
    except ConfigError as error:
        raise SignalUnavailable(str(error), reason="malformed") from None


def iso_minute(at_s: float) -> str:
    """A time as services take it, in UTC to the minute: ``2024-05-01T12:30Z``."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%MZ}"


def number(raw: Any, where: str) -> float | None:
    """A finite number of at least 0, or ``None`` for a gap (null, NaN; FIELD G4).

    Text is read without regard to the locale: "1.5" is a number, "1,5" is not (FIELD G6).
    """
    if raw is None:
        return None
    try:
        value = math.inf if isinstance(raw, bool) or "_" in str(raw) else float(raw)
    except (TypeError, ValueError, OverflowError):
        value = math.inf
    if math.isnan(value):
        return None
    if math.isinf(value) or value < 0:
        raise SignalUnavailable(
            f"{where}: {raw!r:.60} is no number of at least 0", reason="malformed"
        )
    return value


def member(tree: Any, where: str, *names: str) -> Any:
    """What stands under the first of ``names`` that is there."""
    if tree is None or tree == {}:
        raise SignalUnavailable(f"{where}: the answer is empty ({tree})", reason="empty")
    if isinstance(tree, dict):
        for name in names:
            if name in tree:
                return tree[name]
    found = f"keys {', '.join(map(str, tree))}" if isinstance(tree, dict) else type(tree).__name__
    raise SignalUnavailable(
        f"{where}: the answer has no {' or '.join(map(repr, names))} (it has {found:.120})",
        reason="malformed",
    )


def as_list(found: Any, where: str) -> list[dict[str, Any]]:
    """The objects of a list, or of the one object that some services send instead (FIELD G7)."""
    items = found if isinstance(found, list) else [found]
    items = [item for item in items if item is not None and item != {}]
    if not items:
        raise SignalUnavailable(f"{where}: the answer holds no values", reason="empty")
    if not all(isinstance(item, dict) for item in items):
        raise SignalUnavailable(f"{where}: the answer is no list of objects", reason="malformed")
    return items


def slots_from_points(
    points: Iterable[Point], *, period_s: float | None = None, fallback_s: float = 3600.0
) -> tuple[Slot, ...]:
    """Points in any order as slots in order of time and without overlap; gaps are left out.

    A point holds for ``period_s``, or without it for the usual spacing of the points
    (``fallback_s`` where there is only one), and never beyond the next one. Of two points for one
    time the later one that is no gap counts.
    """
    by_time: dict[float, Point] = {}
    for point in points:
        if point.value is not None or point.at_s not in by_time:
            by_time[point.at_s] = point
    times = sorted(by_time)
    spacings = [later - earlier for earlier, later in itertools.pairwise(times)]
    length_s = period_s or (median_low(spacings) if spacings else fallback_s)
    slots = []
    nexts_s = [*times[1:], math.inf][: len(times)]
    for at_s, next_s in zip(times, nexts_s, strict=True):
        point = by_time[at_s]
        end_s = min(next_s, at_s + length_s if point.end_s is None else point.end_s)
        if point.value is not None and end_s > at_s:
            slots.append(Slot(at_s, end_s, point.value, point.is_estimate))
    return tuple(slots)


def past_and_coming(
    known: Iterable[Slot], foreseen: Iterable[Slot], now_s: float
) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """History and forecast of a snapshot: slots that began by ``now_s``, and those that will.

    What is known stands before what was foreseen for the same time; both must be in order. A
    foreseen slot that has begun is an estimate; so it is where nothing is known.
    """
    estimates = [replace(slot, is_estimate=True) for slot in foreseen]
    slots = overlay(estimates, tuple(known))
    history = tuple(slot for slot in slots if slot.start_s <= now_s)
    return history, tuple(slot for slot in slots if slot.start_s > now_s)


def unless_missing(ask: Callable[[], T], otherwise: T) -> T:
    """What ``ask`` answers; ``otherwise`` when this part of the data cannot be had now.

    A forecast that is not in the plan is no failure. One in another unit or of another kind is.
    """
    try:
        return ask()
    except SignalUnavailable as error:
        if error.reason in _OF_THE_WHOLE:
            raise
        return otherwise
