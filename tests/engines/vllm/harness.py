"""A real vLLM scheduler in this process, driven without a model.

The scheduler, block pool, request and output classes are vLLM's own; only the model runner's
answers are made here: each request that has its prompt computed gets one token per step.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

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
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from green_core.marks import WIRE_KEY

BLOCK = 16
init_none_hash(sha256)
_hasher = get_request_block_hasher(BLOCK, sha256)


def make_scheduler(
    *,
    asynchronous: bool = False,
    green: bool = True,
    max_seqs: int = 16,
    max_tokens: int = 256,
    blocks: int = 200,
    **scheduler_options: Any,
) -> Any:
    """A scheduler of the stock class or of the green one; its runtime is in ``.green``."""
    model_config = ModelConfig(
        model=os.environ["GREENSERVE_TEST_MODEL"], dtype="float32", max_model_len=1024, seed=0
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
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
    )
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=3, head_size=64, dtype=torch.float32)
    cache_config.num_gpu_blocks = blocks
    kv_cache_config = KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    base = AsyncScheduler if asynchronous else Scheduler
    if green:
        from vllm_green.engine import choose_class

        base = choose_class(base)
    return base(
        vllm_config=config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=True,
    )


def make_request(
    request_id: str,
    *,
    prompt: int = 8,
    max_tokens: int = 4,
    marks: dict[str, Any] | None = None,
    pooling: bool = False,
    arrival_s: float | None = None,
    **sampling: Any,
) -> Request:
    """An engine request as the front would send it."""
    extra = {WIRE_KEY: marks} if marks else None
    return Request(
        request_id=request_id,
        prompt_token_ids=[(hash(request_id) + i) % 1000 for i in range(prompt)],
        sampling_params=None
        if pooling
        else SamplingParams(max_tokens=max_tokens, ignore_eos=True, extra_args=extra, **sampling),
        pooling_params=PoolingParams(task="embed", extra_kwargs=extra) if pooling else None,
        arrival_time=arrival_s,
        block_hasher=_hasher,
    )


def answer(scheduler: Any, output: Any) -> ModelRunnerOutput:
    """What a model would answer to a scheduled step."""
    ids = list(output.num_scheduled_tokens)
    sampled, pooled = [], []
    for request_id in ids:
        request = scheduler.requests.get(request_id)
        done = request is not None and request.num_computed_tokens >= request.num_prompt_tokens
        pooling = request is not None and request.pooling_params is not None
        sampled.append([7] if done and not pooling else [])
        pooled.append(torch.zeros(4) if done and pooling else None)
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
        sampled_token_ids=sampled,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=pooled,
    )


class Loop:
    """The engine's loop: ``ahead`` steps are scheduled before the first is answered."""

    def __init__(self, scheduler: Any, *, ahead: int = 0) -> None:
        self.scheduler = scheduler
        self.ahead = ahead
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
            results = self.scheduler.update_from_output(output, answer(self.scheduler, output))
            for client in results.values():
                self.outputs.extend(client.outputs)
        return True

    def run(self, most: int = 500) -> None:
        """Step until idle."""
        for _ in range(most):
            if not self.step():
                return
        raise AssertionError(f"the engine was still busy after {most} steps")
