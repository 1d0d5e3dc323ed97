"""Lets a power policy move a lever: at most once per period, and only where something changes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import msgspec

from green_core.guard import Guard
from green_core.manager import GreenManager
from green_core.power.lever import InertLever, PowerLever
from green_core.power.nvml_lever import nvml_lever, repair
from green_core.values import EngineInfo, GridView, LoadView, PowerPolicy, PowerTarget

logger = logging.getLogger("greenserve")

PERIOD_S = 1.0
BUDGET_S = 0.5
_NOTHING = PowerTarget(reason="the operator's own")


class PowerSteering:
    """One policy and one lever; used by one thread, which waits for the policy at most
    ``budget_s``.

    A policy that raises, answers nonsense or takes longer is switched off for good (see
    :mod:`green_core.guard`) and the limits are the operator's again; ``on_trip`` is told why.
    Nothing here raises.
    """

    def __init__(
        self,
        policy: PowerPolicy,
        lever: PowerLever,
        *,
        name: str = "power",
        period_s: float = PERIOD_S,
        budget_s: float = BUDGET_S,
        on_trip: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self.lever = lever
        self.target: PowerTarget | None = None  # what the policy last asked for
        self._period_s = period_s
        self._asked_s = -math.inf
        self._applied = _NOTHING
        self._guard: Guard[PowerTarget] = Guard(
            name,
            policy,
            stock=_NOTHING,
            valid=target_problem,
            budget_s=budget_s,
            on_trip=on_trip,
        )

    @property
    def active(self) -> bool:
        """Whether the policy is alive and its lever moves something."""
        return self._guard.tripped is None and not self.lever.problem

    @property
    def problem(self) -> str:
        """Why nothing is steered; empty while it is."""
        if self._guard.tripped is not None:
            return f"the policy {self._guard.tripped}"
        return self.lever.problem

    def control(self, load: LoadView, grid: GridView) -> None:
        """Ask the policy, unless that was less than a period ago, and apply what changed.

        ``load`` is told the operator's limit. An inert lever's policy is asked all the same, so
        that ``target`` shows what it would do.
        """
        if self._guard.tripped is not None or 0.0 <= load.now_s - self._asked_s < self._period_s:
            return
        self._asked_s = load.now_s
        try:
            if load.power_limit_w is None:
                load = msgspec.structs.replace(load, power_limit_w=self.lever.limit_w)
            target = self._guard.ask(load, grid)
            self.target = None if self._guard.tripped is not None else target
            if (target.clock_mhz, target.power_limit_w) != (
                self._applied.clock_mhz,
                self._applied.power_limit_w,
            ):
                self._applied = target
                self.lever.apply(target)
        except Exception:  # a lever of a plugin may raise what it likes
            logger.exception("greenserve: the power lever failed")
            self._guard.trip("could not be applied: the lever failed")
        if self._guard.tripped is not None:
            self.restore()

    def idle(self) -> None:
        """The engine rests and nobody looks: the limits are the operator's until it works again."""
        self.restore()

    def restore(self) -> None:
        """Take back what was set; the next :meth:`control` may set it again."""
        self._applied = _NOTHING
        try:
            self.lever.restore()
        except Exception:
            logger.exception("greenserve: the power lever failed to restore limits")

    def close(self) -> None:
        """Restore, and let policy and lever go."""
        self._guard.close()
        self._applied = _NOTHING
        try:
            self.lever.close()
        except Exception:
            logger.exception("greenserve: the power lever failed to close")


def build_steering(
    manager: GreenManager, engine: EngineInfo, *, on_trip: Callable[[str], None] | None = None
) -> PowerSteering | None:
    """What the config asks for; ``None``: no power policy. In shadow the lever is inert.

    Where nothing will be steered, limits that a killed process left are taken back all the same.

    Raises ``ConfigError`` for a policy that cannot be had. Call after any fork.
    """
    policies = manager.config.policies
    policy = manager.policy("power") if policies.enabled else None
    is_shadow = "power" in policies.shadow
    if policy is None or is_shadow:
        repair(engine)
    if policy is None:
        return None
    lever = InertLever("the policy runs in shadow (policies.shadow)") if is_shadow else None
    return PowerSteering(
        policy,
        lever or nvml_lever(engine),
        name=policies.choice("power"),
        budget_s=policies.budget_ms / 1e3,
        on_trip=on_trip,
    )


def target_problem(answer: Any) -> str | None:
    """What is wrong with a power target, in words; ``None`` when it can be used."""
    if not isinstance(answer, PowerTarget):
        return f"{type(answer).__name__} instead of PowerTarget"
    clock, limit = answer.clock_mhz, answer.power_limit_w
    if clock is not None and (type(clock) is not int or clock < 1):
        return f"PowerTarget with clock_mhz={clock!r}"
    if limit is not None and not (
        isinstance(limit, int | float) and math.isfinite(limit) and limit > 0
    ):
        return f"PowerTarget with power_limit_w={limit!r}"
    return None
