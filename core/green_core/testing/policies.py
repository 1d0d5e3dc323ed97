"""Scripted policies: they answer what a test says, also what no policy should answer.

``ScriptedPolicy(hold_forever)`` is a plugin of the admission and the batch family,
``ScriptedExit(stop_after(40))`` one of the exit family; a config names them like any other.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from green_core.config import GreenConfig
from green_core.spec import hookimpl
from green_core.values import (
    Admission,
    Admit,
    BatchPlan,
    ExitNeeds,
    ExitReason,
    GridView,
    Hold,
    Progress,
    QueueView,
    Refuse,
)

Rule = Callable[[Any, GridView], Any]


class ScriptedPolicy:
    """Answers by ``rule``, which may be exchanged at any time; ``views`` are all it was shown."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.views: list[Any] = []

    @hookimpl
    def green_admission_policy(self, config: GreenConfig, params: Mapping[str, Any]) -> Rule:
        """Serve as admission policy."""
        return self._decide

    @hookimpl
    def green_batch_policy(self, config: GreenConfig, params: Mapping[str, Any]) -> Rule:
        """Serve as batch policy."""
        return self._decide

    def _decide(self, view: Any, grid: GridView) -> Any:
        self.views.append(view)
        return self.rule(view, grid)


class ScriptedExit:
    """An exit policy that answers by ``rule``; ``views`` are all it was shown."""

    def __init__(self, rule: Callable[[Progress], Any], needs: ExitNeeds | None = None) -> None:
        self.rule = rule
        self.needs = needs or ExitNeeds(every_tokens=5)
        self.views: list[Progress] = []

    @hookimpl
    def green_exit_policy(self, config: GreenConfig, params: Mapping[str, Any]) -> ScriptedExit:
        """Serve as exit policy."""
        return self

    def __call__(self, progress: Progress) -> Any:
        """Judge one look."""
        self.views.append(progress)
        return self.rule(progress)


def stop_after(tokens: int) -> Callable[[Progress], ExitReason | None]:
    """Stop every answer that has so many tokens."""
    return lambda progress: (
        ExitReason("green:scripted") if progress.output_tokens >= tokens else None
    )


def admit(view: Any, grid: GridView) -> Admission:
    """Let everything run."""
    return Admit(reason="scripted")


def hold_forever(view: Any, grid: GridView) -> Admission:
    """Never let go."""
    return Hold(view.now_s + 1e9, reason="scripted")


def hold_until(at_s: float) -> Rule:
    """Hold until an instant (epoch seconds)."""

    def rule(view: Any, grid: GridView) -> Admission:
        return Hold(at_s, reason="scripted") if view.now_s < at_s else Admit(reason="scripted")

    return rule


def plan(max_running: int | None = None, max_tokens: int | None = None) -> Rule:
    """Ask for the same limits always."""
    answer = BatchPlan(max_running, max_tokens, reason="scripted")
    return lambda view, grid: answer


def raises(view: Any, grid: GridView) -> Any:
    """Fail."""
    raise RuntimeError("a policy failed on purpose")


def nonsense(view: Any, grid: GridView) -> Any:
    """Answer what is not a decision."""
    return "as you like"


def unusable(view: Any, grid: GridView) -> Any:
    """Answer a decision of the right type that means nothing."""
    return BatchPlan(max_running=0) if isinstance(view, QueueView) else Hold(math.nan)


def refuse(view: Any, grid: GridView) -> Admission:
    """Send the client away, which an engine's loop cannot do."""
    return Refuse(retry_after_s=60.0, reason="scripted")


class Stalls:
    """Does not answer until :meth:`let_go`."""

    def __init__(self) -> None:
        self._gone = threading.Event()

    def __call__(self, view: Any, grid: GridView) -> Any:
        """Wait."""
        self._gone.wait()

    def let_go(self) -> None:
        """Let the policy's thread end."""
        self._gone.set()
