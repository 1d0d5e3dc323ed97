"""A power cap by the grid's state: full power while it is clean, less while it is dirty.

A cap trades time for power. Decoding is bound by memory, so it often slows down less than its
power falls: Samsi et al. (From Words to Watts, arXiv:2310.03003) report 23 % less energy for 7 %
more time at 70 % of the limit. That holds down to the device's efficient point; below it a token
costs more energy, since the static power runs for longer. Measure before choosing a ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from green_core import (
    ConfigError,
    GreenConfig,
    GridState,
    GridView,
    LoadView,
    PowerPolicy,
    PowerTarget,
    convert_params,
    hookimpl,
)

PATH = "policies.power_cap"
_ORDER = (GridState.CLEAN, GridState.MEDIUM, GridState.DIRTY)


class Cap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of one grid state, per device. ``ratio`` is a share of the operator's own limit."""

    power_limit_w: float | None = None
    ratio: float | None = None
    clock_mhz: int | None = None


class PowerCapParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[policies.power_cap]``.

    A state is left for a cleaner one only once the intensity is ``margin`` (a share) below its
    threshold; ``dwell_s`` is the least time between two changes.
    """

    clean: Cap = Cap()
    medium: Cap = Cap()
    dirty: Cap = Cap(ratio=0.7)
    margin: float = 0.05
    dwell_s: float = 60.0


class CapPlan:
    """``(LoadView, GridView) -> PowerTarget``. Remembers the state it is in, and since when."""

    def __init__(self, params: PowerCapParams, config: GreenConfig) -> None:
        self._params = params
        self._state_of = config.carbon.state
        self._state: GridState | None = None
        self._since_s = 0.0

    def __call__(self, load: LoadView, grid: GridView) -> PowerTarget:
        """The limits of the state that the grid is in, with hysteresis."""
        state = self._next(grid)
        if self._state is None or (
            state is not self._state and load.now_s - self._since_s >= self._params.dwell_s
        ):
            self._state, self._since_s = state, load.now_s
        cap: Cap = getattr(self._params, self._state.value)
        limit_w = cap.power_limit_w
        reason = f"grid {self._state.value}"
        if cap.ratio is not None and cap.ratio < 1.0:
            if load.power_limit_w is None:
                reason += "; the operator's limit is not known, so there is no share of it"
            else:
                limit_w = cap.ratio * load.power_limit_w
        return PowerTarget(clock_mhz=cap.clock_mhz, power_limit_w=limit_w, reason=reason)

    def _next(self, grid: GridView) -> GridState:
        """Dirtier at once, cleaner only when that holds for an intensity higher by the margin."""
        if self._state is None or _ORDER.index(grid.state) >= _ORDER.index(self._state):
            return grid.state
        eased = self._state_of(grid.intensity_g_per_kwh / (1.0 - self._params.margin))
        return min(eased, self._state, key=_ORDER.index)


class PowerCap:
    """The plugin."""

    @hookimpl
    def green_power_policy(self, config: GreenConfig, params: Mapping[str, Any]) -> PowerPolicy:
        """Build the policy from ``[policies.power_cap]``."""
        checked = convert_params(PowerCapParams, params, PATH)
        for state in _ORDER:
            _check(f"{PATH}.{state.value}", getattr(checked, state.value))
        _within(f"{PATH}.margin", checked.margin, 0.0, 0.5)
        _within(f"{PATH}.dwell_s", checked.dwell_s, 0.0, 86_400.0)
        return CapPlan(checked, config)


def _check(path: str, cap: Cap) -> None:
    if cap.power_limit_w is not None and cap.ratio is not None:
        raise ConfigError(path, "has both power_limit_w and ratio", remedy="Give one of them")
    _within(f"{path}.power_limit_w", cap.power_limit_w, 10.0, 10_000.0)
    _within(f"{path}.ratio", cap.ratio, 0.1, 1.0)
    _within(f"{path}.clock_mhz", cap.clock_mhz, 100, 10_000)


def _within(path: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise ConfigError(path, f"must lie between {low:g} and {high:g}, not {value:g}")
