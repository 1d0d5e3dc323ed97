"""Early stops in the scheduler: which requests are looked at, when, and what is shown of them.

Only committed tokens are seen: those that the engine has taken into the request (FIELD P7). What
a client asked for in full is never cut: ``min_tokens``, ``ignore_eos``, a schema, a reasoning
block (FIELD P14).
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from green_core.exits import Exits
from green_core.faults import Faults
from green_core.runtime import Runtime
from green_core.values import Progress
from vllm_green.account import Account, EndedEarly
from vllm_green.thinking import Thinking


class Watch(msgspec.Struct):
    """One request that is looked at; ``thinks`` while it is inside a reasoning block."""

    account: Account
    asked: bool | None
    exits: Exits
    min_tokens: int
    temperature: float
    next_look: int
    seen: int = 0  # output tokens of which is known whether they are reasoning
    begins: int = 0  # first output token that may be shown
    thinks: bool = False
    key: int | None = None
    logprobs: list[float] = []


class Stopper:
    """Used from the engine's thread only. ``results`` are those of the step that is taken in."""

    def __init__(self, runtime: Runtime, structured: Any, logprobs_mode: str) -> None:
        self._runtime = runtime
        self._as_sampled = logprobs_mode.startswith("processed")
        self._structured = structured
        self._watches: dict[str, Watch] = {}
        self._hidden: set[str] = set()  # those whose logprobs no client asked for
        self._faults = Faults()
        self._cost_s = 0.0
        self.results: Any = None

    @functools.cached_property
    def _thinking(self) -> Thinking:
        return Thinking(self._structured)

    def open(self, request: Any, account: Account, asked: bool | None) -> None:
        """Look at a new request, if it may be stopped and its client or its class wants that."""
        try:
            self._open(request, account, asked)
        except Exception:
            self._fail(request.request_id)

    def _open(self, request: Any, account: Account, asked: bool | None) -> None:
        exits, params = self._runtime.exits, request.sampling_params
        if (
            exits is None
            or not exits.wants(account.urgency, asked)
            or not may_be_stopped(request)
            or self._runtime.is_stock
        ):
            return
        if exits.needs.logprobs and params.num_logprobs is None:
            params = copy.copy(params)  # the front's own may be the same object
            params.logprobs = 0
            request.sampling_params = params
            self._hidden.add(request.request_id)
        watch = Watch(account, asked, exits, params.min_tokens, params.temperature, 0)
        watch.thinks = self._thinking.at_start(request.prompt_token_ids or ())
        _plan_look(watch, 0)
        self._watches[request.request_id] = watch

    def reason(self, request: Any, new_token_ids: Sequence[int]) -> str | None:
        """The stop reason if the answer is to end here; call once its new tokens are in it."""
        watch = self._watches.get(request.request_id)
        if watch is None:
            return None
        started = time.perf_counter()
        try:
            return self._reason(watch, request, new_token_ids)
        except Exception:
            self._fail(request.request_id)
            return None
        finally:
            self._cost_s += time.perf_counter() - started

    def take_cost_s(self) -> float:
        """What looking has cost the engine's thread since the last call."""
        cost_s, self._cost_s = self._cost_s, 0.0
        return cost_s

    def _fail(self, request_id: str) -> None:
        self._faults.note("stopping early")
        self.drop(request_id)

    def _reason(self, watch: Watch, request: Any, new_token_ids: Sequence[int]) -> str | None:
        if watch.exits.needs.logprobs and request.sampling_params.num_logprobs is not None:
            self._take_logprobs(watch, request.request_id, len(new_token_ids))
        if request.num_output_tokens < watch.next_look:
            return None
        return self._look(watch, request)

    def _take_logprobs(self, watch: Watch, request_id: str, count: int) -> None:
        results = self.results
        if results is None or results.logprobs is None:
            return
        row, starts = results.req_id_to_index[request_id], results.logprobs.cu_num_generated_tokens
        if starts is not None:  # several tokens a step
            row = starts[row]
        window = watch.logprobs
        # The sampled token's stands first.
        window += results.logprobs.logprobs[row : row + count, 0].tolist()
        if len(window) > 2 * watch.exits.needs.window_tokens:
            del window[: -watch.exits.needs.window_tokens]

    def _look(self, watch: Watch, request: Any) -> str | None:
        tokens: int = request.num_output_tokens
        if not self._is_current(watch):
            self.drop(request.request_id)
            return None
        _plan_look(watch, tokens)
        if self._still_thinks(watch, request, tokens) or self._runtime.is_stock:
            _forget(watch)  # what was said before that is not carried out after it
            return None
        exits = watch.exits
        if watch.key is None:
            watch.key = exits.begin()
        shown = min(tokens - watch.begins, exits.needs.window_tokens)
        verdict = exits.look(
            watch.key,
            Progress(
                request_id=request.request_id,
                output_tokens=tokens,
                min_tokens=watch.min_tokens,
                max_tokens=request.max_tokens,
                temperature=1.0 if self._as_sampled else watch.temperature,
                token_ids=tuple(request.output_token_ids[-shown:]),
                logprobs=tuple(watch.logprobs[-shown:]),
            ),
        )
        if verdict is None:
            return None
        watch.account.ended_early = EndedEarly(
            policy=exits.name, reason=verdict.stop_reason, tokens=tokens, shadow=exits.shadow
        )
        self.drop(request.request_id)
        return None if exits.shadow else verdict.stop_reason

    def _is_current(self, watch: Watch) -> bool:
        """Whether there is a policy for it still; an edited config brings another one."""
        exits = self._runtime.exits
        if exits is watch.exits:
            return exits.guard.tripped is None
        if exits is None or not exits.wants(watch.account.urgency, watch.asked):
            return False
        watch.exits, watch.key = exits, None
        watch.logprobs.clear()  # the last policy may have left gaps
        return True

    def _still_thinks(self, watch: Watch, request: Any, tokens: int) -> bool:
        """Whether the answer is inside a reasoning block; what was in it is never shown."""
        before = watch.thinks
        fresh = request.output_token_ids[watch.seen :]
        watch.seen = tokens
        watch.thinks = self._thinking.after(before, request.output_token_ids, fresh)
        if before or watch.thinks or self._thinking.opens(fresh):
            watch.begins = tokens
            watch.logprobs.clear()
            return True
        return False

    def hide(self, outputs: Iterable[Any]) -> None:
        """Take out what no client asked for; the front would not know what to do with it."""
        if self._hidden:
            for output in outputs:
                if output.request_id in self._hidden:
                    output.new_logprobs = None
                    if output.finish_reason is not None:
                        self._hidden.discard(output.request_id)

    def drop(self, request_id: str) -> None:
        """Look at a request no more. Its logprobs go on being hidden while it runs."""
        watch = self._watches.pop(request_id, None)
        if watch is not None:
            _forget(watch)

    def close(self, request_id: str) -> None:
        """The request has ended without an output of its own."""
        self.drop(request_id)
        self._hidden.discard(request_id)


def may_be_stopped(request: Any) -> bool:
    """Not where the client asked for the whole length or a form, nor in a session."""
    params = request.sampling_params
    return not (
        params is None or params.ignore_eos or request.use_structured_output or request.resumable
    )


def end_here(request: Any, reason: str) -> None:
    """End a request as a stop token would, with a reason of its own."""
    from vllm.v1.request import RequestStatus

    request.status = RequestStatus.FINISHED_STOPPED
    request.stop_reason = reason


def _forget(watch: Watch) -> None:
    if watch.key is not None:
        watch.exits.end(watch.key)
        watch.key = None


def _plan_look(watch: Watch, tokens: int) -> None:
    every = watch.exits.needs.every_tokens
    least = max(tokens + 1, watch.min_tokens)
    watch.next_look = -(-least // every) * every
