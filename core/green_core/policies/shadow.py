"""Run a policy beside the engine without letting it decide, and report what it would have done.

The saving is an estimate and says so: nothing was held, so nothing was saved. It covers
admission only, is relative (grams would need the energy of requests that have not run), and
takes the signal's forecast for the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from green_core.values import GridState, GridView, Hold, RequestView

# A policy that re-checks hourly over the longest deadline (7 days) stays below this.
MAX_HOPS = 200


class ShadowReport(msgspec.Struct, frozen=True):
    """What a shadowed policy would have done since the start.

    ``differing`` decisions were not the stock one. Of the ``held`` requests, ``foreseen`` have a
    start within the forecast; ``mean_hold_s`` is over those. ``saving_ratio`` is the drop of
    intensity from now to that start, averaged over all calls (requests that would not have been
    held count as 0).
    """

    family: str
    calls: int
    differing: int
    held: int
    foreseen: int
    mean_hold_s: float
    saving_ratio: float
    method: Literal["estimated"] = "estimated"


class Shadow:
    """A callable that asks ``policy``, keeps count, and always answers ``stock``.

    ``judge`` tells the grid's state from a forecast intensity (``None``: it stays that of now).
    An error of the policy is passed on: whoever guards policies treats it as usual.
    """

    def __init__(
        self,
        family: str,
        policy: Callable[..., Any],
        stock: Any,
        judge: Callable[[float], GridState] | None = None,
    ) -> None:
        self._family = family
        self._policy = policy
        self._stock = stock
        self._judge = judge
        self._calls = self._differing = self._held = self._foreseen = 0
        self._hold_s = self._saving = 0.0

    def __call__(self, *views: Any) -> Any:
        """Ask the policy and answer the stock decision."""
        decision = self._policy(*views)
        self._calls += 1
        if not same_decision(decision, self._stock):
            self._differing += 1
        if isinstance(decision, Hold):
            self._held += 1
            self._follow(decision, *views)
        return self._stock

    def report(self) -> ShadowReport:
        """The counts so far; zeros before the first call."""
        return ShadowReport(
            family=self._family,
            calls=self._calls,
            differing=self._differing,
            held=self._held,
            foreseen=self._foreseen,
            mean_hold_s=self._hold_s / max(1, self._foreseen),
            saving_ratio=self._saving / max(1, self._calls),
        )

    def _follow(self, hold: Hold, request: RequestView, grid: GridView) -> None:
        started = self._start(hold, request, grid)
        if started is None:
            return
        start_s, intensity = started
        self._foreseen += 1
        self._hold_s += start_s - request.now_s
        if grid.intensity_g_per_kwh > 0:
            self._saving += 1 - intensity / grid.intensity_g_per_kwh

    def _start(
        self, hold: Hold, request: RequestView, grid: GridView
    ) -> tuple[float, float] | None:
        """When the policy would let go if the forecast came true, and the intensity then.

        A hold often ends only to be asked again, so the policy is asked along the forecast.
        ``None`` when that leaves the forecast or leads nowhere.
        """
        until_s = hold.until_s
        for _ in range(MAX_HOPS):
            ahead = self._view_at(grid, until_s)
            if ahead is None:
                return None
            answer = self._policy(msgspec.structs.replace(request, now_s=until_s), ahead)
            if not isinstance(answer, Hold):
                return until_s, ahead.intensity_g_per_kwh
            if answer.until_s <= until_s:
                return None
            until_s = answer.until_s
        return None

    def _view_at(self, grid: GridView, at_s: float) -> GridView | None:
        """The grid as its own forecast sees it at ``at_s``; ``None`` beyond the forecast."""
        if at_s < grid.valid_until_s:
            return grid
        past = [point for point in grid.forecast if point.start_s <= at_s]
        if not past or at_s >= grid.forecast_end_s:
            return None
        ahead = grid.forecast[len(past) :]
        intensity = past[-1].intensity_g_per_kwh
        return msgspec.structs.replace(
            grid,
            intensity_g_per_kwh=intensity,
            state=self._judge(intensity) if self._judge else grid.state,
            valid_until_s=ahead[0].start_s if ahead else math.inf,  # no later change is foreseen
            forecast=ahead,
            is_estimate=True,
        )


def same_decision(one: Any, other: Any) -> bool:
    """Whether two decisions ask for the same; what they give as reason does not matter."""
    if type(one) is not type(other):
        return False
    if not isinstance(one, msgspec.Struct):
        return bool(one == other)
    return all(
        getattr(one, name) == getattr(other, name)
        for name in one.__struct_fields__
        if name != "reason"
    )
