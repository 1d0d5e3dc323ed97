"""Joins settled stretches into interval records of at least a second."""

from __future__ import annotations

from green_core.values import JOULES_PER_KWH, IntervalRecord

MIN_INTERVAL_S = 1.0


class IntervalBuffer:
    """Collects stretches; a record leaves when it is long enough or the method changes.

    So a ledger gets at most about one row a second, and never one that mixes methods
    (FIELD E13).
    """

    def __init__(self, start_s: float, pue: float) -> None:
        self._pue = pue
        self._ready: list[IntervalRecord] = []
        self._method = ""
        self._intensity = 0.0
        self._begin(start_s)

    def _begin(self, start_s: float) -> None:
        self._start_s = self._end_s = start_s
        self.active_j = self._idle_j = self._operational_g = self._embodied_g = 0.0

    def add(
        self,
        end_s: float,
        *,
        active_j: float,
        idle_j: float,
        operational_g: float,
        embodied_g: float,
        intensity_g_per_kwh: float,
        method: str,
    ) -> None:
        """Append the stretch that ends at ``end_s``; the intensity is used if it took nothing."""
        if method != self._method:
            self.flush()
            self._method = method
        self._end_s = end_s
        self._intensity = intensity_g_per_kwh
        self.active_j += active_j
        self._idle_j += idle_j
        self._operational_g += operational_g
        self._embodied_g += embodied_g
        if self._end_s - self._start_s >= MIN_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """End the record that is being collected."""
        energy_j = self.active_j + self._idle_j
        if self._end_s <= self._start_s and energy_j == 0.0:
            return
        intensity = (
            self._operational_g * JOULES_PER_KWH / (energy_j * self._pue)
            if energy_j > 0.0
            else self._intensity
        )
        self._ready.append(
            IntervalRecord(
                start_s=self._start_s,
                end_s=self._end_s,
                active_j=self.active_j,
                idle_j=self._idle_j,
                intensity_g_per_kwh=intensity,
                operational_g=self._operational_g,
                embodied_g=self._embodied_g,
                method=self._method,
            )
        )
        self._begin(self._end_s)

    def take(self) -> tuple[IntervalRecord, ...]:
        """The records that are complete, once."""
        ready, self._ready = tuple(self._ready), []
        return ready
