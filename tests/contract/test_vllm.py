"""vLLM keeps the adapter contract: its own schedulers, sync and async with run-ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from harness import Loop, make_request, make_scheduler
from vllm.v1.request import RequestStatus

from green_core.activation import activate, deactivate
from green_core.marks import WIRE_KEY, Marks
from green_core.testing.contract import (
    NO_MARKS,
    AccountingContract,
    Answered,
    DecisionContract,
    ExitContract,
    HoldingContract,
)
from green_core.testing.doubles import ScriptedClock


class VllmDouble:
    """vLLM's scheduler and loop; ``ahead`` steps are scheduled before the first is answered."""

    def __init__(
        self,
        config: Mapping[str, Any],
        plugins: Mapping[str, Any],
        clock: ScriptedClock,
        *,
        ahead: int,
    ) -> None:
        activate(overrides=config)
        try:
            self._scheduler = make_scheduler(
                asynchronous=ahead > 0, max_seqs=8, max_tokens=64, plugins=plugins, clock=clock
            )
        except BaseException:
            deactivate()
            raise
        # Without an engine process the scheduler sleeps a little when asked for work in vain.
        self._scheduler.green_attach(_Core())
        self._clock = clock
        self._loop = Loop(self._scheduler, ahead=ahead, clock=clock)
        self._pool = self._scheduler.kv_cache_manager.block_pool
        self._free_blocks = self._pool.get_num_free_blocks()
        self.runtime = self._scheduler.green
        self.answers: dict[str, Answered] = {}

    def submit(
        self,
        request_id: str,
        *,
        prompt_tokens: int = 8,
        output_tokens: int = 4,
        stop_after: int | None = None,
        marks: Marks = NO_MARKS,
    ) -> None:
        request = make_request(
            request_id,
            prompt=prompt_tokens,
            max_tokens=output_tokens,
            stop_after=stop_after,
            marks=msgspec.to_builtins(marks),
            arrival_s=self._clock.wall(),
            ignore_eos=False,
        )
        self._scheduler.add_request(request)

    def abort(self, request_id: str) -> None:
        self._scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def has_work(self) -> bool:
        return bool(self._scheduler.has_requests())

    def step(self) -> dict[str, int] | None:
        before = len(self._loop.steps)
        if not self._loop.step():
            return None
        for output in self._loop.outputs:
            answer = self.answers.setdefault(output.request_id, Answered())
            answer.tokens.extend(output.new_token_ids)
            if output.finish_reason is not None:
                answer.finish_reason = str(output.finish_reason)
                answer.account = (output.kv_transfer_params or {}).get(WIRE_KEY)
        self._loop.outputs.clear()
        return self._loop.steps[-1] if len(self._loop.steps) > before else {}

    def running(self) -> list[str]:
        return [request.request_id for request in self._scheduler.running]

    def counted(self) -> tuple[int, int]:
        stats = self._scheduler.make_stats()
        return stats.num_running_reqs, stats.num_waiting_reqs + stats.num_skipped_waiting_reqs

    def limits(self) -> tuple[int, int]:
        return self._scheduler.max_num_active_reqs, self._scheduler.max_num_scheduled_tokens

    def occupied(self) -> int:
        used = self._free_blocks - self._pool.get_num_free_blocks()
        return used + len(self._scheduler.running)

    def close(self) -> None:
        self._scheduler.shutdown()
        deactivate()


class _Core:
    """The engine process as far as the scheduler needs it."""

    class input_queue:
        @staticmethod
        def put_nowait(item: Any) -> None:
            """The loop is turned by hand: there is nobody to wake."""

    output_queue = input_queue

    @staticmethod
    def is_running() -> bool:
        return True


@pytest.mark.parametrize("ahead", [0, 1], ids=["sync", "async"], scope="class")
class TestVllm(HoldingContract, DecisionContract, ExitContract, AccountingContract):
    @pytest.fixture(autouse=True)
    def _mode(self, ahead: int) -> None:
        self._ahead = ahead

    def start(
        self, config: Mapping[str, Any], *, plugins: Mapping[str, Any], clock: ScriptedClock
    ) -> VllmDouble:
        return VllmDouble(config, plugins, clock, ahead=self._ahead)
