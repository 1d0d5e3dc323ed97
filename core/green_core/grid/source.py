"""The contract of a live source: one question to a service, one answer with its provenance."""

from __future__ import annotations

from typing import Protocol

import msgspec

from green_core.values import Basis, SignalKind


class Slot(msgspec.Struct, frozen=True):
    """An intensity that holds from ``start_s`` to ``end_s`` (epoch seconds, UTC).

    ``is_estimate``: the service modelled it, for want of a measurement. Of a forecast every slot is
    one.
    """

    start_s: float
    end_s: float
    intensity_g_per_kwh: float
    is_estimate: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """All that one round of questions brought; what the disk cache holds.

    ``history`` are past and present slots, ``forecast`` coming ones, each in order of time and
    without overlap; gaps are left out, never filled. ``fetched_at_s`` is wall time, and so is
    ``forecast_at_s``: when the forecast was got, where that was in an earlier round.
    ``renewable_ratio`` (0..1) is that of the present, where the service tells. ``licence`` says
    under which terms the data may be used.
    """

    source: str
    zone: str
    kind: SignalKind
    basis: Basis
    licence: str
    fetched_at_s: float
    history: tuple[Slot, ...]
    forecast: tuple[Slot, ...] = ()
    renewable_ratio: float | None = None
    forecast_at_s: float | None = None


class Source(Protocol):
    """A live source. ``period_s`` is how often the service itself publishes."""

    name: str
    period_s: float

    def fetch(self, now_s: float) -> Snapshot:
        """Ask the service; blocks for ``carbon.timeout_s`` per question at most.

        ``now_s`` is wall time. Raises ``SignalUnavailable``, and nothing else, when there is no
        usable answer. A missing forecast alone is no failure.
        """

    def close(self) -> None:
        """Give connections back."""
