"""The meter of a scheduler: accounts of unfinished requests, and the steps between
``schedule`` and ``update_from_output``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from green_core.runtime import Runtime
from green_core.values import RequestFacts, RequestRecord, StepShare, StepView
from vllm_green.account import Account, attach, open_account

# A step that starts this soon after the last one ended counts from that end: the time between
# is the engine's own work for the batch, not idleness.
_CONTINUOUS_S = 0.01
_PEEK_GROWTH = 1.06


class _Flying(NamedTuple):
    """A step under way: what it computes, how many requests had to wait for a later one, and the
    accounts that close with it, since their requests ended meanwhile.
    """

    start_s: float
    waiting: int
    shares: list[StepShare]
    tokens: dict[str, int]
    leaving: list[RequestFacts]


class StepMeter:
    """Used from the engine's thread only."""

    def __init__(self, runtime: Runtime, max_model_len: int) -> None:
        self._runtime = runtime
        self._max_model_len = max_model_len
        self._accounts: dict[str, Account] = {}
        self._stopping: set[str] = set()  # those that a stop string may end
        self._flying: dict[int, _Flying] = {}
        self._busy_until_s = 0.0

    def __getitem__(self, request_id: str) -> Account:
        return self._accounts[request_id]

    def get(self, request_id: str) -> Account | None:
        """The open account of a request."""
        return self._accounts.get(request_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._accounts)

    def open(self, request: Any) -> Account:
        """Open the account of an engine request."""
        runtime = self._runtime
        account = open_account(request, runtime.config, runtime.clock, self._max_model_len)
        self._accounts[request.request_id] = account
        if account.has_stop_strings:
            self._stopping.add(request.request_id)
        return account

    def next_turn(self, session: Any, requests: dict[str, Any]) -> None:
        """Each turn of a streaming session is an answer, and has an account of its own."""
        from vllm.v1.request import RequestStatus

        waits = session.status == RequestStatus.WAITING_FOR_STREAMING_REQ
        request_id = session.request_id
        if request_id in requests and request_id not in self._accounts and not waits:
            self.open(session)

    def note(self, output: Any, start_s: float, waiting: int) -> None:
        """Remember what a scheduled step will compute; ``waiting`` requests are not in it."""
        shares = []
        accounts = self._accounts
        scheduled = output.num_scheduled_tokens
        for request_id, tokens in scheduled.items():
            account = accounts[request_id]
            context = account.request.num_computed_tokens
            left = account.prompt_tokens - (context - tokens)
            if left <= 0 and account.first_scheduled_s is not None:  # nearly all shares are these
                shares.append(StepShare(request_id, 0, tokens, context))
                continue
            if account.first_scheduled_s is None:
                account.first_scheduled_s = start_s
                account.cached_tokens = min(context - tokens, account.prompt_tokens)
            prefill = min(tokens, max(left, 0))
            shares.append(StepShare(request_id, prefill, tokens - prefill, context))
        self._flying[id(output)] = _Flying(start_s, waiting, shares, scheduled, [])
        if len(self._flying) == 1:
            self._tell_busy()

    def price(self, output: Any, overhead_s: float) -> bool:
        """Hand a finished step to the runtime; false when it computed nothing."""
        flying = self._flying.pop(id(output), None)
        if flying is None:
            return False
        start_s = self._began_s(flying)
        end_s = self._runtime.clock.now()
        self._busy_until_s = end_s
        step = StepView(min(start_s, end_s), end_s, tuple(flying.shares))
        self._runtime.step(step, overhead_s, flying.waiting)
        self._leave(flying)
        self._drop_before(flying)
        self._tell_busy()
        return True

    def _began_s(self, flying: _Flying) -> float:
        if flying.start_s - self._busy_until_s < _CONTINUOUS_S:
            return self._busy_until_s  # also keeps run-ahead steps from overlapping
        return flying.start_s

    def _drop_before(self, ended: _Flying) -> None:
        """Steps end in order: one that began earlier and has not ended was lost to a fault."""
        for key, flying in list(self._flying.items()):
            if flying.start_s >= ended.start_s:
                return
            self._leave(self._flying.pop(key))

    def _tell_busy(self) -> None:
        oldest = next(iter(self._flying.values()), None)
        self._runtime.busy_since(None if oldest is None else self._began_s(oldest))

    def answer(self, outputs: Iterable[Any], requests: dict[str, Any]) -> None:
        """Put accounts into those outputs that end their request, or may end it."""
        for output in outputs:
            if output.finish_reason is not None:
                self._end(output, requests)
            elif output.request_id in self._stopping:
                self._peek(output)

    def _end(self, output: Any, requests: dict[str, Any]) -> None:
        account = self._accounts.get(output.request_id)
        if account is None:
            return
        record = self.close(output.request_id, str(output.finish_reason))
        if account.request.resumable:
            self.next_turn(account.request, requests)
        if record is not None:
            attach(output, record)

    def _peek(self, output: Any) -> None:
        """The front may end it on a stop string, without another word from here. An account with
        every token would cost; with growing pauses it lags by a few tokens in a hundred.
        """
        account = self._accounts[output.request_id]
        tokens = account.request.num_output_tokens
        if tokens < account.next_peek:
            return
        account.next_peek = max(tokens + 1, int(tokens * _PEEK_GROWTH))
        now_s = self._runtime.clock.now()
        record = self._runtime.peek(account.facts(output.request_id, now_s, "running"))
        if record is not None:
            attach(output, record)

    def close(self, request_id: str, reason: str) -> RequestRecord | None:
        """Close an account; with a step under way it is final only after that step."""
        account = self._accounts.pop(request_id)
        self._stopping.discard(request_id)
        if reason == "abort" and account.has_stop_strings and account.request.num_output_tokens:
            reason = "stop_string_or_abort"
        facts = account.facts(request_id, self._runtime.clock.now(), reason)
        for flying in reversed(self._flying.values()):
            if request_id in flying.tokens:  # the engine ran ahead: that step is its cost too
                flying.leaving.append(facts)
                return self._runtime.peek(facts)
        return self._runtime.finish(facts)

    def close_all(self, reason: str) -> None:
        """Close every account at the end of the process."""
        for request_id in list(self._accounts):
            self.close(request_id, reason)
        for flying in self._flying.values():
            self._leave(flying)

    def _leave(self, flying: _Flying) -> None:
        while flying.leaving:
            self._runtime.finish(flying.leaving.pop())
