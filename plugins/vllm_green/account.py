"""What the scheduler remembers of a request, and its translation to the core's values."""

from __future__ import annotations

from typing import Any

import msgspec

from green_core.clock import SteadyClock
from green_core.config import GreenConfig
from green_core.export.usage import to_wire
from green_core.marks import WIRE_KEY, Marks
from green_core.runtime import Runtime
from green_core.values import EarlyStop, RequestFacts, RequestRecord, RequestView, Urgency


class EndedEarly(msgspec.Struct, frozen=True):
    """An exit policy's verdict on a request, and how many tokens it had when that took effect."""

    policy: str
    reason: str
    tokens: int
    shadow: bool


class Account(msgspec.Struct):
    """One unfinished request; ``request`` is the engine's own object."""

    request: Any
    tenant: str
    urgency: Urgency
    arrival_s: float
    deadline_s: float | None
    prompt_tokens: int
    max_tokens: int
    open_ended: bool
    has_stop_strings: bool
    next_peek: int = 1
    first_scheduled_s: float | None = None
    held_s: float = 0.0
    cached_tokens: int = 0
    ended_early: EndedEarly | None = None

    def facts(self, request_id: str, now_s: float, reason: str) -> RequestFacts:
        """The account as of now."""
        started_s = now_s if self.first_scheduled_s is None else self.first_scheduled_s
        return RequestFacts(
            request_id=request_id,
            tenant=self.tenant,
            urgency=self.urgency,
            arrival_s=self.arrival_s,
            finished_s=now_s,
            wait_s=max(started_s - self.arrival_s, 0.0),
            held_s=self.held_s,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.request.num_output_tokens,
            finish_reason=reason,
            early_stop=self._early_stop(),
        )

    def _early_stop(self) -> EarlyStop | None:
        ended = self.ended_early
        if ended is None:
            return None
        if ended.shadow:
            saved = self.request.num_output_tokens - ended.tokens
        else:  # against a limit that nobody named there is nothing to be saved
            saved = 0 if self.open_ended else self.max_tokens - ended.tokens
        return EarlyStop(ended.policy, ended.reason, max(saved, 0), shadow=ended.shadow)


def open_account(
    request: Any, config: GreenConfig, clock: SteadyClock, max_model_len: int
) -> Account:
    """Start an account for an engine ``Request``; pooling ones have no sampling parameters."""
    marks = read_marks(request)
    urgency = marks.urgency or config.admission.default_class
    deadline_s = marks.deadline_s
    if deadline_s is None and urgency == "flex":
        deadline_s = config.admission.default_deadline_s
    arrival_s = clock.from_wall(request.arrival_time)  # the front stamps with the wall clock
    sampling = request.sampling_params
    return Account(
        request=request,
        tenant=marks.tenant or config.marks.default_tenant,
        urgency=urgency,
        arrival_s=arrival_s,
        deadline_s=None if deadline_s is None else arrival_s + deadline_s,
        prompt_tokens=request.num_prompt_tokens,
        max_tokens=request.max_tokens,
        # vLLM fills in what the context leaves where the client named no limit.
        open_ended=request.num_prompt_tokens + request.max_tokens >= max_model_len,
        has_stop_strings=bool(sampling is not None and sampling.stop),
    )


def read_marks(request: Any) -> Marks:
    """The marks that the front attached; an unmarked request has none."""
    if request.sampling_params is not None:
        extra = request.sampling_params.extra_args
    else:
        extra = request.pooling_params.extra_kwargs
    wire = (extra or {}).get(WIRE_KEY)
    return msgspec.convert(wire, Marks) if wire else Marks()


def may_be_held(request: Any) -> bool:
    """Sessions, immediate aborts and KV hand-overs are bound to other parties: never held."""
    return not (
        request.resumable
        or request.abort_immediately
        or request.kv_transfer_params
        or request.ec_transfer_params
    )


def request_view(
    request: Any, account: Account, runtime: Runtime, counts: tuple[int, int, int]
) -> RequestView:
    """The request as an admission policy sees it."""
    running, waiting, held = counts
    return RequestView(
        request_id=request.request_id,
        tenant=account.tenant,
        urgency=account.urgency,
        now_s=runtime.clock.now(),
        arrival_s=account.arrival_s,
        deadline_s=account.deadline_s,
        prompt_tokens=account.prompt_tokens,
        max_tokens=account.max_tokens,
        estimated_run_s=runtime.estimate_run_s(
            account.prompt_tokens, account.max_tokens, open_ended=account.open_ended
        ),
        running=running,
        waiting=waiting,
        held=held,
    )


def attach(output: Any, record: RequestRecord) -> None:
    """Send an account to the front beside ``kv_transfer_params``, which stay as they are."""
    output.kv_transfer_params = {**(output.kv_transfer_params or {}), WIRE_KEY: to_wire(record)}
