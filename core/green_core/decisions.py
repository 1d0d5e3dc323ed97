"""Policies as the engine's loop calls them: chosen, guarded, shadowed, and switched off at once.

One :class:`Decisions` is built per configuration; a changed config builds another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from green_core.config import GreenConfig
from green_core.exits import Exits
from green_core.guard import Guard
from green_core.manager import GreenManager
from green_core.policies.shadow import Shadow, ShadowReport
from green_core.values import (
    Admission,
    Admit,
    BatchPlan,
    GridView,
    Hold,
    QueueView,
    Refuse,
    RequestView,
)

_STOCK_PLAN = BatchPlan(reason="stock")
_STOCK_ADMIT = Admit(reason="stock")
_STOCK_ADMITS: tuple[Admission, ...] = ()  # shorter than asked: the rest is admitted


class Decisions:
    """The batch, admission and exit decisions of one process under one config.

    ``on_trip`` is told (family, policy, reason) once when a policy is switched off; ``is_stock``
    tells the exit policy's worker whether policies are off for now.
    """

    def __init__(
        self,
        manager: GreenManager,
        *,
        on_trip: Callable[[str, str, str], None] | None = None,
        is_stock: Callable[[], bool] = lambda: False,
    ) -> None:
        self.config: GreenConfig = manager.config
        self._on_trip = on_trip
        self._shadows: dict[str, Shadow] = {}
        self._guards: dict[str, Guard[Any]] = {}
        enabled = self.config.policies.enabled
        for family, stock, valid in (
            ("batch", _STOCK_PLAN, plan_problem),
            ("admission", _STOCK_ADMITS, admissions_problem),
        ):
            policy = manager.policy(family) if enabled else None
            if policy is not None:
                self._guards[family] = self._guard(family, policy, stock, valid)
        self.exits = self._exits(manager, is_stock) if enabled else None
        if self.exits is not None:
            self._guards["exit"] = self.exits.guard
        self._batch = self._guards.get("batch")
        self._admission = self._guards.get("admission")

    @property
    def may_hold(self) -> bool:
        """Whether a request could be held now."""
        guard = self._admission
        return guard is not None and guard.tripped is None and "admission" not in self._shadows

    @property
    def plans(self) -> bool:
        """Whether a batch policy is alive."""
        return self._batch is not None and self._batch.tripped is None

    @property
    def decides(self) -> bool:
        """Whether an admission policy is alive, be it in shadow."""
        return self._admission is not None and self._admission.tripped is None

    @property
    def active(self) -> Mapping[str, str]:
        """Policy name by family, for those that are alive (shadows included)."""
        return {
            family: guard.name for family, guard in self._guards.items() if guard.tripped is None
        }

    def plan(self, queue: QueueView, grid: GridView) -> BatchPlan:
        """Limits for the next step; never waits."""
        guard = self._batch
        return _STOCK_PLAN if guard is None else guard.latest(queue, grid)

    def admit_all(self, requests: list[RequestView], grid: GridView) -> list[Admission]:
        """Decide on requests; waits for the policy at most for its time budget."""
        guard = self._admission
        answers: tuple[Admission, ...] = ()
        if guard is not None and "admission" in self._shadows:
            guard.tell(requests, grid)
        elif guard is not None:
            answers = guard.ask(requests, grid)
        padded = answers + (_STOCK_ADMIT,) * (len(requests) - len(answers))
        return [self._bounded(a, r) for a, r in zip(padded, requests, strict=True)]

    def shadow_reports(self) -> dict[str, ShadowReport]:
        """What shadowed policies would have done, by family."""
        reports = {family: shadow.report() for family, shadow in self._shadows.items()}
        if self.exits is not None and self.exits.shadow:
            reports["exit"] = self.exits.report()
        return reports

    def trip(self, family: str, reason: str) -> None:
        """Switch a policy off from outside (the progress watchdog)."""
        if (guard := self._guards.get(family)) is not None:
            guard.trip(reason)

    def close(self) -> None:
        """Let the workers end."""
        for guard in self._guards.values():
            guard.close()

    def _guard(
        self,
        family: str,
        policy: Callable[..., Any],
        stock: Any,
        valid: Callable[[Any], str | None],
    ) -> Guard[Any]:
        name = self.config.policies.choice(family)
        if family in self.config.policies.shadow:
            one = _STOCK_ADMIT if family == "admission" else stock
            policy = self._shadows[family] = Shadow(family, policy, one, self.config.carbon.state)
        if family == "admission":
            policy = _for_all(policy)
        return Guard(
            name,
            policy,
            stock=stock,
            valid=valid,
            budget_s=self.config.policies.budget_ms / 1e3,
            on_trip=partial(self._tripped, family, name),
        )

    def _exits(self, manager: GreenManager, is_stock: Callable[[], bool]) -> Exits | None:
        policy = manager.policy("exit")
        if policy is None:
            return None
        policies = self.config.policies
        return Exits(
            policies.exit,
            policy,
            shadow="exit" in policies.shadow,
            budget_s=policies.budget_ms / 1e3,
            is_stock=is_stock,
            on_trip=partial(self._tripped, "exit", policies.exit),
        )

    def _tripped(self, family: str, name: str, reason: str) -> None:
        if self._on_trip is not None:
            self._on_trip(family, name, reason)

    def _bounded(self, answer: Admission, request: RequestView) -> Admission:
        """No policy may hold past the configured bounds."""
        if not isinstance(answer, Hold):
            return answer
        bounds = self.config.admission
        latest_s = request.arrival_s + bounds.max_hold_s
        if request.deadline_s is not None:
            latest_s = min(latest_s, request.deadline_s)
        if request.held >= bounds.max_held or latest_s <= request.now_s:
            return Admit(reason="hold bound reached")
        return Hold(min(answer.until_s, latest_s), answer.reason)


def plan_problem(answer: Any) -> str | None:
    """What is wrong with a batch plan, in words; ``None`` when it can be used."""
    if not isinstance(answer, BatchPlan):
        return f"{type(answer).__name__} instead of BatchPlan"
    for name in ("max_running", "max_tokens"):
        value = getattr(answer, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            return f"BatchPlan with {name}={value!r}"
    return None


def admissions_problem(answers: Any) -> str | None:
    """What is wrong with any of several admissions."""
    return next((p for answer in answers if (p := admission_problem(answer))), None)


def admission_problem(answer: Any) -> str | None:
    """What is wrong with an admission, in words; ``None`` when it can be used."""
    if isinstance(answer, Admit):
        return None
    if isinstance(answer, Hold):
        return None if _finite(answer.until_s) else f"Hold until {answer.until_s!r}"
    if isinstance(answer, Refuse):
        good = _finite(answer.retry_after_s) and answer.retry_after_s >= 0
        return None if good else f"Refuse with retry_after_s={answer.retry_after_s!r}"
    return f"{type(answer).__name__} instead of Admit, Hold or Refuse"


def _for_all(policy: Callable[..., Admission]) -> Callable[..., tuple[Admission, ...]]:
    """One trip to the policy's thread for many requests."""

    def decide(requests: list[RequestView], grid: GridView) -> tuple[Admission, ...]:
        return tuple(policy(request, grid) for request in requests)

    return decide


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
