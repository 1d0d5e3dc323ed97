"""Batching and admission: steps, queues, requests, and what policies answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from green_core.values.grid import GridView

Urgency: TypeAlias = Literal["interactive", "standard", "flex"]
URGENCIES: tuple[Urgency, ...] = ("interactive", "standard", "flex")


class StepShare(msgspec.Struct, frozen=True, gc=False):
    """One request's part in one engine step. Tokens are those computed in this step.

    ``context_tokens`` is the length attended to, this step's tokens included.
    """

    request_id: str
    prefill_tokens: int
    decode_tokens: int
    context_tokens: int


class StepView(msgspec.Struct, frozen=True):
    """One finished engine step. ``start_s``..``end_s`` never overlaps another step's span.

    ``energy_j`` is the estimate known when the step ended (0.0 until priced).
    """

    start_s: float
    end_s: float
    shares: tuple[StepShare, ...]
    energy_j: float = 0.0

    @property
    def duration_s(self) -> float:
        """Length of the step."""
        return self.end_s - self.start_s


class QueueView(msgspec.Struct, frozen=True):
    """The scheduler's queues just before a step.

    ``engine_max_running`` and ``engine_max_tokens`` are the engine's own limits: a plan can only
    lower them. ``last_step`` holds committed facts only (no run-ahead placeholders).
    """

    now_s: float
    running: int
    waiting: int
    held: int
    engine_max_running: int
    engine_max_tokens: int
    kv_usage: float
    preemptions: int
    last_step: StepView | None


class BatchPlan(msgspec.Struct, frozen=True):
    """Limits for the next step; ``None`` leaves the engine's own. Running requests are kept."""

    max_running: int | None = None
    max_tokens: int | None = None
    reason: str = ""


# --- admission ----------------------------------------------------------------------------


class RequestView(msgspec.Struct, frozen=True):
    """A request that asks to be scheduled. ``deadline_s`` is when its answer must be complete.

    ``estimated_run_s`` is the time it is expected to need once running (0.0 when unknown).
    """

    request_id: str
    tenant: str
    urgency: Urgency
    now_s: float
    arrival_s: float
    deadline_s: float | None
    prompt_tokens: int
    max_tokens: int
    estimated_run_s: float
    running: int = 0
    waiting: int = 0
    held: int = 0


class Admit(msgspec.Struct, frozen=True, tag=True):
    """Schedule it now."""

    reason: str = ""


class Hold(msgspec.Struct, frozen=True, tag=True):
    """Keep it aside until ``until_s``, then ask again. It takes no slot and no CPU."""

    until_s: float
    reason: str = ""


class Refuse(msgspec.Struct, frozen=True, tag=True):
    """Answer "come back later". Only a front door that can still answer 503 may honour it."""

    retry_after_s: float
    reason: str = ""


Admission: TypeAlias = Admit | Hold | Refuse

BatchPolicy: TypeAlias = Callable[[QueueView, GridView], BatchPlan]
AdmissionPolicy: TypeAlias = Callable[[RequestView, GridView], Admission]
