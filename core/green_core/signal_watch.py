"""How the carbon signal fares in one process: counted, remembered, and told to who waits for it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import msgspec

from green_core.doctor.facts import SignalFacts
from green_core.errors import SignalUnavailable
from green_core.export.prometheus import EngineMetrics
from green_core.grid.signal import CarbonSignal
from green_core.values import GridView, Quality

logger = logging.getLogger("greenserve")

_END_OF_TIME_S = 253_402_300_799.0  # the last second of the year 9999


class SignalWatch:
    """Listens to the signal; ``on_change`` is called from the signal's own thread.

    ``stock_when_stale``: without a fresh signal policies are not asked (``carbon.on_stale``).
    """

    def __init__(
        self, source: str, *, stock_when_stale: bool, on_change: Callable[[], None]
    ) -> None:
        self.stock_when_stale = stock_when_stale
        self.problem = ""
        self._source = source
        self._on_change = on_change
        self._fetches = 0
        self._failures: dict[str, int] = {}
        self._quality: Quality = "fresh"

    def signal_changed(self) -> None:
        """A newer value or forecast."""
        self._on_change()

    def signal_fetched(self) -> None:
        """The service gave a usable answer."""
        self._fetches += 1
        self.problem = ""

    def signal_failed(self, error: SignalUnavailable) -> None:
        """The service gave none."""
        self._failures[error.reason] = self._failures.get(error.reason, 0) + 1
        self.problem = str(error)
        self._on_change()

    def steers(self, grid: GridView) -> bool:
        """Whether policies may act on this view."""
        return grid.quality == "fresh" or not self.stock_when_stale

    def heed(self, grid: GridView) -> None:
        """Log when the signal is lost, and when it is back, if policies depend on it."""
        before, self._quality = self._quality, grid.quality
        if before == grid.quality or not self.stock_when_stale:
            return
        now = "on again" if self.steers(grid) else "off until it is fresh (carbon.on_stale)"
        logger.warning("greenserve: the carbon signal is %s: policies are %s", grid.quality, now)

    def show(self, metrics: EngineMetrics, grid: GridView, now_s: float) -> None:
        """Bring the metrics of the signal up to date."""
        metrics.set(
            "greenserve_carbon_intensity_grams_per_kwh",
            grid.intensity_g_per_kwh,
            zone=grid.zone,
            kind=grid.kind,
            basis=grid.basis,
            source=grid.source,
        )
        metrics.set("greenserve_carbon_signal_age_seconds", max(now_s - grid.observed_at_s, 0.0))
        metrics.set("greenserve_carbon_signal_quality", 1.0, quality=grid.quality)
        metrics.set_total("greenserve_carbon_fetches_total", self._fetches, source=self._source)
        for reason, count in tuple(self._failures.items()):
            metrics.set_total(
                "greenserve_carbon_fetch_failures_total",
                count,
                source=self._source,
                reason=reason,
            )

    def facts(self, signal: CarbonSignal, grid: GridView) -> SignalFacts:
        """For the status page."""
        # The process that polls hears of failures; the others read of them.
        problem = self.problem or str(getattr(signal, "problem", ""))
        if math.isinf(grid.valid_until_s):  # which JSON cannot say
            grid = msgspec.structs.replace(grid, valid_until_s=_END_OF_TIME_S)
        return SignalFacts(grid, self._fetches, dict(self._failures), problem)
