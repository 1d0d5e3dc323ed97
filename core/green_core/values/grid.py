"""The carbon signal as it is handed around."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

import msgspec

SignalKind: TypeAlias = Literal["average", "marginal"]
Basis: TypeAlias = Literal["lifecycle", "direct", "unknown"]
Quality: TypeAlias = Literal["fresh", "stale", "fallback"]


class GridState(Enum):
    """The grid against the two configured thresholds."""

    CLEAN = "clean"
    MEDIUM = "medium"
    DIRTY = "dirty"


class ForecastPoint(msgspec.Struct, frozen=True):
    """Intensity expected from ``start_s`` until the next point's start (or the view's horizon)."""

    start_s: float
    intensity_g_per_kwh: float


class GridView(msgspec.Struct, frozen=True):
    """The carbon signal as a policy sees it: an in-memory snapshot, never a request.

    ``kind`` is part of the value: average and marginal intensities rank regions in opposite
    order and are never mixed. ``basis`` says what a value counts: ``lifecycle`` (fuels and plants
    from cradle to grave) or ``direct`` (what leaves the stack). ``quality`` is ``fresh`` while the
    source is heard, ``stale`` once its newest word is too old, ``fallback`` while it was never
    heard and a yearly average stands in. ``forecast`` is ordered by time and may be empty.
    """

    intensity_g_per_kwh: float
    kind: SignalKind
    zone: str
    observed_at_s: float
    valid_until_s: float
    source: str
    is_estimate: bool
    state: GridState
    forecast: tuple[ForecastPoint, ...] = ()
    forecast_end_s: float = 0.0
    basis: Basis = "unknown"
    quality: Quality = "fresh"
    renewable_ratio: float | None = None
    licence: str = ""
