"""Early stops as the engine's loop asks for them: looked at beside the step, carried out in it.

An exit policy runs in the guard's worker, as batch policies do: one that stalls cannot hold a
step, and an offer costs the engine's thread no wake-up. What the policy says of one look is
carried out at the request's next look. The worker has ``every_tokens`` of time to answer, so an
answer ends at the same token whatever the load is, as long as it keeps up.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from green_core.errors import ConfigError
from green_core.guard import Guard
from green_core.policies.shadow import ShadowReport
from green_core.values import (
    STOP_PREFIX,
    URGENCIES,
    ExitNeeds,
    ExitPolicy,
    ExitReason,
    Progress,
    Urgency,
)

_STOCK: Mapping[int, Any] = {}
_REASON = re.compile(STOP_PREFIX + r"[a-z0-9_]{1,40}")  # a label on /metrics: no free text


class Exits:
    """The exit policy of one process under one config.

    ``is_stock`` tells, from the worker, whether policies are off for now.
    """

    def __init__(
        self,
        name: str,
        policy: ExitPolicy,
        *,
        shadow: bool,
        budget_s: float,
        is_stock: Callable[[], bool],
        on_trip: Callable[[str], None],
    ) -> None:
        self.name = name
        self.needs = needs_of(name, policy)
        self.shadow = shadow
        self._policy = policy
        self._is_stock = is_stock
        self._keys = itertools.count()
        self._verdicts: dict[int, Any] = {}
        self._inbox: deque[tuple[int, Progress | None]] = deque()
        self._looks = self._stops = 0
        self.guard: Guard[Mapping[int, Any]] = Guard(
            name,
            self._judge,
            stock=_STOCK,
            valid=_problem,
            budget_s=budget_s,
            on_trip=on_trip,
        )

    def wants(self, urgency: Urgency, asked: bool | None) -> bool:
        """Whether to look at a request that ``asked`` for it, or said nothing (``None``)."""
        return self.guard.tripped is None and (
            urgency in self.needs.classes if asked is None else asked
        )

    def begin(self) -> int:
        """A key for a request that is looked at now; each needs its :meth:`end`."""
        return next(self._keys)

    def look(self, key: int, progress: Progress) -> ExitReason | None:
        """Hand a look over; answers what was said of an earlier one. Never waits."""
        if self.guard.tripped is not None:
            self._inbox.clear()
            return None
        self._inbox.append((key, progress))
        reason: ExitReason | None = self.guard.latest(self._inbox).get(key)
        return reason

    def end(self, key: int) -> None:
        """The request is not looked at any more."""
        self._inbox.append((key, None))

    def report(self) -> ShadowReport:
        """Looks so far, and how many of them said stop."""
        return ShadowReport(
            family="exit",
            calls=self._looks,
            differing=self._stops,
            held=0,
            foreseen=0,
            mean_hold_s=0.0,
            saving_ratio=0.0,
        )

    # --- worker's thread ------------------------------------------------------------------

    def _judge(self, inbox: deque[tuple[int, Progress | None]]) -> Mapping[int, Any]:
        """All verdicts on living requests, with those on what was handed over since."""
        verdicts, stock = self._verdicts, self._is_stock()
        while inbox:
            key, progress = inbox.popleft()
            if progress is None:
                verdicts.pop(key, None)
            elif not stock:
                answer = self._policy(progress)
                self._looks += 1
                if answer is not None:
                    self._stops += 1
                    verdicts[key] = answer
        if stock:
            verdicts.clear()
        return dict(verdicts)


def needs_of(name: str, policy: ExitPolicy) -> ExitNeeds:
    """What the policy wants to see; raises ``ConfigError`` when that makes no sense."""
    needs = getattr(policy, "needs", ExitNeeds())
    if (
        not isinstance(needs, ExitNeeds)
        or not all(isinstance(n, int) and n >= 1 for n in (needs.every_tokens, needs.window_tokens))
        or not isinstance(needs.classes, (tuple, list))
        or any(urgency not in URGENCIES for urgency in needs.classes)
    ):
        raise ConfigError(
            "policies.exit",
            f"policy {name!r} has needs={needs!r}",
            remedy="Expected ExitNeeds with at least 1 token each, and known classes",
        )
    return needs


def exit_problem(answer: Any) -> str | None:
    """What is wrong with the answer to a look, in words; ``None`` when it can be used."""
    if not isinstance(answer, ExitReason):
        return f"{type(answer).__name__} instead of ExitReason or None"
    if not isinstance(answer.stop_reason, str) or not _REASON.fullmatch(answer.stop_reason):
        return f"ExitReason with stop_reason={answer.stop_reason!r}, not green: and a word"
    return None


def _problem(verdicts: Mapping[int, Any]) -> str | None:
    return next((p for answer in verdicts.values() if (p := exit_problem(answer))), None)
