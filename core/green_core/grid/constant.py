"""A signal that never changes."""

from __future__ import annotations

import math

from green_core.values import Basis, GridState, GridView, SignalKind


class ConstantSignal:
    """One intensity for all times: the static table, controls in experiments, tests.

    ``valid_until_s`` is infinite, which tells a policy that waiting brings nothing.
    """

    def __init__(
        self,
        intensity_g_per_kwh: float,
        *,
        kind: SignalKind,
        zone: str,
        source: str,
        state: GridState,
        observed_at_s: float,
        is_estimate: bool = False,
        basis: Basis = "unknown",
        licence: str = "",
    ) -> None:
        self._view = GridView(
            intensity_g_per_kwh=intensity_g_per_kwh,
            kind=kind,
            zone=zone,
            observed_at_s=observed_at_s,
            valid_until_s=math.inf,
            source=source,
            is_estimate=is_estimate,
            state=state,
            basis=basis,
            licence=licence,
        )

    def view(self, now_s: float) -> GridView:
        """The same snapshot at any time."""
        return self._view

    def intensity_at(self, at_s: float) -> float:
        """The same g/kWh at any time."""
        return self._view.intensity_g_per_kwh

    def next_change_s(self, now_s: float) -> float:
        """Never."""
        return math.inf

    def close(self) -> None:
        """Nothing to stop."""
