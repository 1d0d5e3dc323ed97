"""Deadline-bound admission: patient work waits for a cleaner hour, nobody else waits for it.

The shape is that of carbon-aware temporal shifting ("Let's Wait Awhile", Wiesner et al.,
Middleware 2021, arXiv:2110.13234), reduced to what can be decided for one request from the views
alone. The saving is bounded by the grid's own swing: with perfect knowledge, 30 % of the load
deferrable within a day, about 8 % of all carbon in California and 1 % in Sweden or PJM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from green_core import (
    Admission,
    AdmissionPolicy,
    Admit,
    ConfigError,
    ForecastPoint,
    GreenConfig,
    GridState,
    GridView,
    Hold,
    RequestView,
    convert_params,
    hookimpl,
)

PATH = "policies.deadline"


class DeadlineParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[policies.deadline]``.

    ``threshold_g_per_kwh``: flex work starts below it (unset: ``carbon.medium_threshold``).
    ``min_saving``: share by which a later slot must be cleaner to be worth the wait.
    ``safety``: factor on the estimated run time. ``margin_s``: time kept free before a deadline.
    ``unknown_run_s``: run time assumed while none is estimated.
    ``start_spacing_s``: by how much each other held request brings the latest start forward.
    ``company``: running plus waiting requests with which a standard request need not wait.
    """

    threshold_g_per_kwh: float | None = None
    min_saving: float = 0.05
    safety: float = 1.5
    margin_s: float = 5.0
    unknown_run_s: float = 60.0
    start_spacing_s: float = 0.05
    company: int = 8


class DeadlineAdmission:
    """``(RequestView, GridView) -> Admit | Hold``; keeps no state, so asking again is free."""

    def __init__(self, params: DeadlineParams, config: GreenConfig) -> None:
        self._params = params
        self._bounds = config.admission
        threshold = params.threshold_g_per_kwh
        self._threshold = config.carbon.medium_threshold if threshold is None else threshold

    def __call__(self, request: RequestView, grid: GridView) -> Admission:
        """Admit, or hold until the first moment at which the answer could change."""
        if request.urgency == "interactive":
            return Admit(reason="interactive")
        latest_s = self.latest_start_s(request)
        if request.now_s >= latest_s:
            return Admit(reason="latest start reached")
        if request.urgency == "standard":
            return self._standard(request, grid, latest_s)
        return self._flex(request, grid, latest_s)

    def latest_start_s(self, request: RequestView) -> float:
        """When the request must start at the latest, in epoch seconds.

        Every other held request brings it forward a little, so that many held requests with one
        deadline start one after the other instead of all in the last second (FIELD P10).
        """
        longest_s = request.arrival_s + self._bounds.max_hold_s
        deadline_s = request.deadline_s
        if deadline_s is None:
            if request.urgency == "standard":
                return longest_s
            deadline_s = request.arrival_s + self._bounds.default_deadline_s
        params = self._params
        run_s = request.estimated_run_s if request.estimated_run_s > 0 else params.unknown_run_s
        reserve_s = params.safety * run_s + params.margin_s + request.held * params.start_spacing_s
        return min(deadline_s - reserve_s, longest_s)

    def _standard(self, request: RequestView, grid: GridView, latest_s: float) -> Admission:
        """A short wait for company while the grid is not clean: full steps cost less per token."""
        if grid.state is GridState.CLEAN:
            return Admit(reason="clean grid")
        if request.running + request.waiting >= self._params.company:
            return Admit(reason="enough company")
        until_s = min(request.arrival_s + self._bounds.batch_window_s, latest_s)
        if request.now_s >= until_s:
            return Admit(reason="batching window over")
        return Hold(until_s, reason="waits for company")

    def _flex(self, request: RequestView, grid: GridView, latest_s: float) -> Admission:
        now_s, current = request.now_s, grid.intensity_g_per_kwh
        if current < self._threshold:
            return Admit(reason="below threshold")
        wake_s = [latest_s]
        if grid.valid_until_s > now_s:  # a stale view has no next change to wait for
            wake_s.append(grid.valid_until_s)
        if grid.forecast:
            best = cleanest_slot(grid.forecast, now_s, latest_s)
            if best is None or not self._pays(best.intensity_g_per_kwh, current):
                return Admit(reason="no cleaner slot before the latest start")
            wake_s.append(best.start_s)
            reason = "waits for the cleanest slot"
        elif grid.valid_until_s >= latest_s:
            return Admit(reason="grid does not change before the latest start")
        else:
            reason = "waits for the threshold"
        return Hold(min(wake_s), reason=reason)

    def _pays(self, later: float, now: float) -> bool:
        return later < now and later <= now * (1 - self._params.min_saving)


def cleanest_slot(
    forecast: tuple[ForecastPoint, ...], now_s: float, latest_s: float
) -> ForecastPoint | None:
    """The cleanest slot that starts after ``now_s`` and by ``latest_s``; the earliest of equals."""
    usable = (point for point in forecast if now_s < point.start_s <= latest_s)
    return min(usable, key=_intensity, default=None)


def _intensity(point: ForecastPoint) -> float:
    return point.intensity_g_per_kwh


class Deadline:
    """The plugin."""

    @hookimpl
    def green_admission_policy(
        self, config: GreenConfig, params: Mapping[str, Any]
    ) -> AdmissionPolicy:
        """Build the rule from ``[policies.deadline]``."""
        checked = convert_params(DeadlineParams, params, PATH)
        for name, least in (
            ("threshold_g_per_kwh", 0.0),
            ("min_saving", 0.0),
            ("safety", 1.0),
            ("margin_s", 0.0),
            ("unknown_run_s", 0.0),
            ("start_spacing_s", 0.0),
            ("company", 1),
        ):
            value = getattr(checked, name)
            if value is not None and not (math.isfinite(value) and value >= least):
                raise ConfigError(
                    f"{PATH}.{name}", f"must be a finite number of at least {least}, not {value}"
                )
        if checked.min_saving >= 1:
            raise ConfigError(
                f"{PATH}.min_saving",
                f"must be below 1, not {checked.min_saving}",
                remedy="0.05 asks for a slot that is 5 % cleaner",
            )
        return DeadlineAdmission(checked, config)
