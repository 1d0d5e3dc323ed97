"""Splits stretches of time between the steps that fall into them and idle time."""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import NamedTuple

from green_core.config import EnergyConfig
from green_core.energy.accounts import Account, PricedStep
from green_core.energy.fit import Fit
from green_core.energy.intervals import IntervalBuffer
from green_core.energy.track import Stretch
from green_core.grid.signal import CarbonSignal
from green_core.values import JOULES_PER_KWH

_IDLE_PIECE_S = 300.0  # idle time is priced in pieces no longer than this
_MAX_IDLE_PIECES = 1000


class _Part(NamedTuple):
    """What one stretch takes of a step: modelled joules and seconds.

    ``late_s`` are seconds of the step before the stretch, which passed for idle time.
    """

    step: PricedStep
    weight_j: float
    busy_s: float
    late_s: float


class Settler:
    """Owns the steps that are not settled yet; used by the housekeeping thread alone.

    ``open`` holds those steps in order, ``done`` counts the ones handed to their requests,
    ``horizon_s`` is the time up to which everything is settled. Energy is in joules.

    Time that the model charged as idle and a step claims later is owed: the step takes it whole,
    and as much of the idle time that follows is not charged. The books are off by the longest
    such mistake at most, until idle time has followed. A meter's joules are counted once in any
    case, so there nothing is owed.

    ``distributes``: each request's part of settled energy is summed up; without a meter it is
    the estimate by definition, and summing thousands of shares again would only hold the
    interpreter while the engine's thread wants it.
    """

    def __init__(
        self,
        *,
        config: EnergyConfig,
        signal: CarbonSignal,
        fit: Fit,
        embodied_g_per_s: float,
        start_s: float,
        distributes: bool,
    ) -> None:
        self.open: deque[PricedStep] = deque()
        self.done = 0
        self.horizon_s = start_s
        self._owed_s = 0.0
        self.intervals = IntervalBuffer(start_s, config.pue)
        self.active_j = self.idle_j = 0.0
        self.prefill_tokens = self.decode_tokens = 0
        self._signal = signal
        self._pue = config.pue
        self._shares_idle = config.idle == "shared"
        self._fit = fit
        self._embodied_g_per_s = embodied_g_per_s
        self._distributes = distributes
        self._lent_s = 0.0  # idle by the model since a meter last vouched, not owed

    def settle(self, stretch: Stretch) -> None:
        """Attribute the time from the horizon to the end of ``stretch``."""
        start_s, end_s = self.horizon_s, max(self.horizon_s, stretch.end_s)
        if stretch.metered_j is not None:
            self._lent_s = self._owed_s = 0.0
        parts = self._cut(start_s, end_s)
        modelled_j = sum(part.weight_j for part in parts)
        busy_s = sum(part.busy_s for part in parts)
        idle_s = max(0.0, end_s - start_s - busy_s)
        if stretch.metered_j is None:
            idle_s = self._pay_back(idle_s)
            active_j = modelled_j * self._fit.scale
            idle_j = self._fit.idle_w * idle_s
        else:
            active_j = self._fit.split(
                stretch.metered_j, modelled_j=modelled_j, busy_s=busy_s, idle_s=idle_s
            )
            idle_j = stretch.metered_j - active_j
        operational_g = embodied_g = 0.0
        scale = active_j / modelled_j if modelled_j > 0.0 else 0.0
        for part in parts:
            step, energy_j = part.step, part.weight_j * scale
            step.settled_j += energy_j
            step_g = (part.busy_s + part.late_s) * self._embodied_g_per_s
            step.settled_g += step_g
            step.methods.add(stretch.method)
            operational_g += energy_j * step.grams_per_j
            embodied_g += step_g
        intensity = self._mean_intensity(start_s, end_s)
        idle_g = idle_j * self._pue * intensity / JOULES_PER_KWH
        idle_embodied_g = idle_s * self._embodied_g_per_s
        if self._shares_idle and self._share_idle(parts, idle_j, idle_g, idle_embodied_g):
            active_j, idle_j = active_j + idle_j, 0.0
        self._hand_out()
        self.horizon_s = end_s
        self.active_j += active_j
        self.idle_j += idle_j
        self.intervals.add(
            end_s,
            active_j=active_j,
            idle_j=idle_j,
            operational_g=operational_g + idle_g,
            embodied_g=embodied_g + idle_embodied_g,
            intensity_g_per_kwh=intensity,
            method=stretch.method,
        )

    def _cut(self, start_s: float, end_s: float) -> list[_Part]:
        """Take the parts of open steps that belong to ``start_s``..``end_s``.

        A step that straddles the end keeps the rest. One that was handed over after its own
        time had been settled is taken whole: nothing is lost, however late. What it takes of
        time that was lent to idle is owed from then on.
        """
        parts = []
        for step in self.open:
            if step.from_s >= end_s and step.end_s > end_s:
                break
            from_s = max(step.from_s, start_s)
            whole_s = step.end_s - from_s
            busy_s = min(step.end_s, end_s) - from_s
            fraction = busy_s / whole_s if busy_s < whole_s else 1.0
            if fraction <= 0.0:
                continue
            late_s = min(max(0.0, min(step.end_s, start_s) - step.from_s), self._lent_s)
            self._lent_s -= late_s
            self._owed_s += late_s
            weight_j = step.cost.total_j * step.left * fraction
            parts.append(_Part(step, weight_j, max(0.0, busy_s), late_s))
            step.left *= 1.0 - fraction
            step.from_s = end_s
        return parts

    def _pay_back(self, idle_s: float) -> float:
        """The part of an idle time that is charged: what is left of it after debts."""
        paid_s = min(idle_s, self._owed_s)
        self._owed_s -= paid_s
        self._lent_s += idle_s - paid_s
        return idle_s - paid_s

    def _hand_out(self) -> None:
        """Give the energy of steps that are settled whole to their requests."""
        while self.open and self.open[0].left <= 0.0:
            step = self.open.popleft()
            if self._distributes:
                step.distribute()
            self.prefill_tokens += step.prefill_tokens
            self.decode_tokens += step.decode_tokens
            self.done += 1

    def _share_idle(
        self,
        parts: list[_Part],
        idle_j: float,
        idle_g: float,
        embodied_g: float,
    ) -> bool:
        """Split idle energy over the requests of a stretch by active time; false: none active."""
        active_s: dict[Account, float] = {}
        # Most steps compute the same requests as the one before.
        for accounts, run in itertools.groupby(parts, key=lambda part: part.step.accounts):
            busy_s = sum(part.busy_s for part in run)
            for account in accounts:
                active_s[account] = active_s.get(account, 0.0) + busy_s
        total_s = sum(active_s.values())
        if total_s <= 0.0:
            return False
        for account, seconds in active_s.items():
            share = seconds / total_s
            account.settled.idle_j += idle_j * share
            account.settled.operational_g += idle_g * share
            account.settled.embodied_g += embodied_g * share
        return True

    def _mean_intensity(self, start_s: float, end_s: float) -> float:
        """Mean over a stretch, in g/kWh; long idle times span many values of the signal."""
        pieces = min(max(1, math.ceil((end_s - start_s) / _IDLE_PIECE_S)), _MAX_IDLE_PIECES)
        width_s = (end_s - start_s) / pieces
        return (
            sum(self._signal.intensity_at(start_s + (i + 0.5) * width_s) for i in range(pieces))
            / pieces
        )
