"""A real vLLM scheduler in this process, driven without a model.

The scheduler, block pool, request and output classes are vLLM's own; only the model runner's
answers are made here: each request that has its prompt computed gets one token per step.
A request with a stop token gets it as its last one, which the scheduler cannot foresee.
"""

from __future__ import annotations

import functools
import os
import warnings
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import vllm_green.engine
from green_core.activation import activate, deactivate
from green_core.marks import WIRE_KEY
from green_core.testing.doubles import ScriptedClock

with warnings.catch_warnings(action="ignore"):  # the engine's own, while it is imported
    import torch
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        ModelConfig,
        ParallelConfig,
        SchedulerConfig,
        VllmConfig,
    )
    from vllm.pooling_params import PoolingParams
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager

BLOCK = 16
TOKEN, STOP_TOKEN = 7, 9
# Read by the scripted model among a request's extra arguments.
STOP_AFTER = "scripted_stop_after"
VARIED = "scripted_varied"  # no two tokens alike
LOGPROB = "scripted_logprob"  # of every token
init_none_hash(sha256)
_hasher = get_request_block_hasher(BLOCK, sha256)


def make_scheduler(
    *,
    asynchronous: bool = False,
    green: bool = True,
    max_seqs: int = 16,
    max_tokens: int = 256,
    blocks: int = 200,
    plugins: Mapping[str, Any] | None = None,
    clock: ScriptedClock | None = None,
    parallel: ParallelConfig | None = None,
    base: type | None = None,
    logprobs_mode: Any = "raw_logprobs",
    **scheduler_options: Any,
) -> Any:
    """A scheduler of the stock class or of the green one; its runtime is in ``.green``.

    ``plugins`` and ``clock`` are given to that runtime. ``base`` stands for ``--scheduler-cls``.
    """
    model_config = ModelConfig(
        model=os.environ["GREENSERVE_TEST_MODEL"],
        dtype="float32",
        max_model_len=1024,
        seed=0,
        logprobs_mode=logprobs_mode,
    )
    scheduler_config = SchedulerConfig(
        max_num_seqs=max_seqs,
        max_num_batched_tokens=max_tokens,
        max_model_len=1024,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=asynchronous,
        **scheduler_options,
    )
    cache_config = CacheConfig(block_size=BLOCK, enable_prefix_caching=True)
    config = VllmConfig(
        model_config=model_config,
        scheduler_config=scheduler_config,
        cache_config=cache_config,
        parallel_config=parallel or ParallelConfig(),
        device_config=DeviceConfig("cpu"),
    )
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=3, head_size=64, dtype=torch.float32)
    cache_config.num_gpu_blocks = blocks
    kv_cache_config = KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    chosen = base or (AsyncScheduler if asynchronous else Scheduler)
    if green:
        chosen = vllm_green.engine.choose_class(chosen)
    start = functools.partial(vllm_green.engine.start_runtime, plugins=plugins, clock=clock)
    with mock.patch.object(vllm_green.engine, "start_runtime", start):
        return chosen(
            vllm_config=config,
            kv_cache_config=kv_cache_config,
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
            hash_block_size=BLOCK,
            log_stats=True,
        )


@contextmanager
def green_scheduler(config: Mapping[str, Any] | None = None, **options: Any) -> Iterator[Any]:
    """A green scheduler under ``config`` (dotted keys), shut down at the end."""
    activate(overrides={"energy.meter": "model", "carbon.zone": "DE", **(config or {})})
    try:
        scheduler = make_scheduler(**options)
        try:
            yield scheduler
        finally:
            scheduler.shutdown()
    finally:
        deactivate()


def make_request(
    request_id: str,
    *,
    prompt: int | list[int] = 8,
    max_tokens: int = 4,
    marks: dict[str, Any] | None = None,
    pooling: bool = False,
    arrival_s: float | None = None,
    stop_after: int | None = None,
    priority: int = 0,
    extra: dict[str, Any] | None = None,
    resumable: bool = False,
    **sampling: Any,
) -> Request:
    """An engine request as the front would send it.

    A ``prompt`` given as a length is made of tokens that no other request id has. ``stop_after``
    tokens the model ends the answer.
    """
    extra = {**(extra or {}), **({WIRE_KEY: marks} if marks else {})} or None
    sampling.setdefault("ignore_eos", True)
    if stop_after is not None:
        sampling["stop_token_ids"] = [STOP_TOKEN]
        extra = {**(extra or {}), STOP_AFTER: stop_after}
    return Request(
        request_id=request_id,
        prompt_token_ids=tokens(request_id, prompt) if isinstance(prompt, int) else list(prompt),
        sampling_params=None
        if pooling
        else SamplingParams(max_tokens=max_tokens, extra_args=extra, **sampling),
        pooling_params=PoolingParams(task="embed", extra_kwargs=extra) if pooling else None,
        arrival_time=arrival_s,
        block_hasher=_hasher,
        priority=priority,
        resumable=resumable,
    )


def tokens(seed: str, count: int) -> list[int]:
    """Token ids that are the same in every run."""
    return [zlib.crc32(f"{seed}:{index}".encode()) % 30_000 for index in range(count)]


def answer(scheduler: Any, output: Any) -> ModelRunnerOutput:
    """What a model would answer to a scheduled step."""
    ids = list(output.num_scheduled_tokens)
    sampled, pooled, logprobs = [], [], []
    for request_id in ids:
        request = scheduler.requests.get(request_id)
        done = request is not None and request.num_computed_tokens >= request.num_prompt_tokens
        pooling = request is not None and request.pooling_params is not None
        sampled.append([_next_token(request)] if done and not pooling else [])
        pooled.append(torch.zeros(4) if done and pooling else None)
        logprobs.append(_logprob(request))
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
        sampled_token_ids=sampled,
        logprobs=_lists(logprobs),
        prompt_logprobs_dict={},
        pooler_output=pooled,
    )


def _next_token(request: Request) -> int:
    extra = request.sampling_params.extra_args or {}
    if request.num_output_tokens + 1 == extra.get(STOP_AFTER):
        return STOP_TOKEN
    return 100 + request.num_output_tokens if extra.get(VARIED) else TOKEN


def _logprob(request: Request | None) -> float | None:
    """As the model's runner: for the requests that ask for it, and only for them."""
    params = None if request is None else request.sampling_params
    if params is None or params.num_logprobs is None:
        return None
    return float((params.extra_args or {}).get(LOGPROB, -0.5))


def _lists(found: list[float | None]) -> LogprobsLists | None:
    if all(value is None for value in found):
        return None
    values = np.array([[np.nan if value is None else value] for value in found])
    ids = np.full(values.shape, TOKEN)
    return LogprobsLists(ids, values, np.ones(len(found), dtype=int))


class Loop:
    """The engine's loop: ``ahead`` steps are scheduled before the first is answered.

    A step takes ``step_s`` on ``clock``, where there is one.
    """

    def __init__(
        self,
        scheduler: Any,
        *,
        ahead: int = 0,
        clock: ScriptedClock | None = None,
        step_s: float = 0.01,
    ) -> None:
        self.scheduler = scheduler
        self.ahead = ahead
        self.clock = clock
        self.step_s = step_s
        self.flying: deque[Any] = deque()
        self.outputs: list[Any] = []
        self.steps: list[dict[str, int]] = []

    def step(self) -> bool:
        """One turn; false when there was nothing to do."""
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            self.steps.append(dict(output.num_scheduled_tokens))
            self.flying.append(output)
        elif not self.flying:
            return False
        if len(self.flying) > self.ahead or not self.scheduler.has_requests():
            output = self.flying.popleft()
            if self.clock is not None and output.num_scheduled_tokens:
                self.clock.advance(self.step_s)
            results = self.scheduler.update_from_output(output, answer(self.scheduler, output))
            for client in results.values():
                self.outputs.extend(client.outputs)
        return True

    def text(self, request_id: str) -> list[int]:
        """The tokens that the client of a request has got."""
        mine = [output for output in self.outputs if output.request_id == request_id]
        return [token for output in mine for token in output.new_token_ids]

    def account(self, request_id: str) -> dict[str, Any]:
        """The account that came with the end of a request."""
        (last,) = self.ends(request_id)
        return dict(last.kv_transfer_params[WIRE_KEY])

    def ends(self, request_id: str) -> list[Any]:
        """The outputs that end a request (a session has several)."""
        mine = [output for output in self.outputs if output.request_id == request_id]
        return [output for output in mine if output.finish_reason is not None]

    def run(self, most: int = 500) -> None:
        """Step until idle."""
        for _ in range(most):
            if not self.step():
                return
        raise AssertionError(f"the engine was still busy after {most} steps")
