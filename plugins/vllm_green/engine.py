"""The engine process: build the runtime from vLLM's configuration and prove it live."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from green_core.activation import activate, anchor_s, prove_live, run_dir
from green_core.clock import SteadyClock
from green_core.config import GreenConfig, require
from green_core.doctor.facts import EngineFacts
from green_core.errors import EngineUnsupported
from green_core.faults import Faults
from green_core.preflight import require_levers
from green_core.runtime import Runtime
from green_core.values import EngineInfo
from vllm_green.facts import engine_facts
from vllm_green.seams import targets
from vllm_green.versions import SERVED, engine_version


def start_runtime(
    scheduler: Any,
    *,
    plugins: Mapping[str, Any] | None = None,
    clock: SteadyClock | None = None,
) -> Runtime:
    """The runtime of this engine process; raises what must stop the start-up.

    ``plugins`` (beside the installed ones) and ``clock`` are for tests, which bind them here.
    """
    resolved = activate()
    config = scheduler.vllm_config
    folder = run_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = engine_info(config, scheduler)
    runtime = Runtime(
        resolved,
        info,
        run_dir=folder,
        anchor_s=anchor_s(),
        plugins=plugins,
        clock=clock,
        check=functools.partial(_check, engine=config),
        facts=_facts(config, scheduler, info),
    )
    prove_live(
        "engine",
        {
            "scheduler": type(scheduler).__name__,
            "info": msgspec.to_builtins(info),
            "seams": targets("engine"),
        },
    )
    return runtime


def _facts(config: Any, scheduler: Any, info: EngineInfo) -> EngineFacts | None:
    """For the doctor alone: a surprise in there must not keep an engine from serving."""
    try:
        return engine_facts(config, scheduler.kv_cache_config, info)
    except Exception:
        Faults().note("reading the engine's configuration")
        return None


def choose_class(base: type) -> type:
    """Mix into the engine's choice; refuse a scheduler that lacks the seams."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from vllm_green.scheduler import green_class

    if not issubclass(base, Scheduler):
        raise EngineUnsupported(
            f"the scheduler class {base.__module__}.{base.__qualname__} does not extend vLLM's "
            "Scheduler, so green cannot meter or steer it. Remove --scheduler-cls, or start "
            "without --plugins green"
        )
    return green_class(base)


def engine_info(config: Any, scheduler: Any) -> EngineInfo:
    """Facts of model and device for the step model. Parameter counts are computed from the
    architecture's sizes (dense or mixture of experts), not read from the weights.
    """
    from vllm.platforms import current_platform

    model, parallel = config.model_config, config.parallel_config
    text = model.hf_text_config
    hidden = model.get_hidden_size()
    layers = int(getattr(text, "num_hidden_layers", 0) or 0)
    parameters = active_parameters(text, hidden, layers, model.get_vocab_size())
    weight_bytes = parameters * _bytes_per_weight(model)
    return EngineInfo(
        engine="vllm",
        version=engine_version(),
        model=str(model.served_model_name or model.model),
        engine_index=int(parallel.data_parallel_index or 0),
        max_running=scheduler.max_num_active_reqs,
        max_tokens=scheduler.max_num_scheduled_tokens,
        parameters=parameters,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=_kv_bytes_per_token(scheduler.kv_cache_config),
        hidden_size=hidden,
        num_layers=layers,
        quantization=str(model.quantization or "none"),
        device=str(current_platform.get_device_name() or current_platform.device_type),
        device_count=int(parallel.world_size),
    )


def active_parameters(text: Any, hidden: int, layers: int, vocabulary: int) -> float:
    """Weights that take part in one token: attention, (active) feed-forward, output head."""
    heads = int(getattr(text, "num_attention_heads", 0) or 1)
    kv_heads = int(getattr(text, "num_key_value_heads", 0) or heads)
    head_size = int(getattr(text, "head_dim", 0) or hidden // heads)
    attention = hidden * head_size * (2 * heads + 2 * kv_heads)
    experts = int(
        getattr(text, "num_experts_per_tok", 0) or getattr(text, "num_experts_per_token", 0) or 0
    )
    intermediate = int(getattr(text, "intermediate_size", 0) or 4 * hidden)
    if experts:
        intermediate = experts * int(getattr(text, "moe_intermediate_size", 0) or intermediate)
    gates = 3 if "relu" not in str(getattr(text, "hidden_act", "silu")) else 2
    return float(layers * (attention + gates * hidden * intermediate) + hidden * vocabulary)


def _bytes_per_weight(model: Any) -> float:
    quantization = str(model.quantization or "").lower()
    if any(four in quantization for four in ("awq", "gptq", "nvfp4", "mxfp4", "bitsandbytes")):
        return 0.5
    if "8" in quantization:
        return 1.0
    return float(model.dtype.itemsize)


def _kv_bytes_per_token(kv_cache_config: Any) -> float:
    total = 0.0
    for group in kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        total += len(group.layer_names) * spec.page_size_bytes / spec.block_size
    return total


def _check(config: GreenConfig, *, engine: Any) -> None:
    """What this engine cannot do. With data parallelism one unfinished request makes idle ranks
    run dummy batches, so long holds are refused. Logits are no log probabilities.
    """
    require_levers(config, SERVED)
    mode = engine.model_config.logprobs_mode
    require(
        not config.policies.exit or mode.endswith("logprobs"),
        "policies.exit",
        f"is {config.policies.exit!r}, but with --logprobs-mode {mode} this engine computes no "
        "log probabilities, which exit policies go by",
        "Use raw_logprobs or processed_logprobs, or choose no exit policy",
    )
    bounds, parallel = config.admission, engine.parallel_config
    require(
        parallel.data_parallel_size <= 1
        or not config.policies.admission
        or "admission" in config.policies.shadow
        or bounds.max_hold_s <= bounds.parallel_max_hold_s,
        "admission.max_hold_s",
        f"is {bounds.max_hold_s:g} s with data parallelism, where a held request makes idle "
        "ranks run dummy batches",
        f"Set it to at most admission.parallel_max_hold_s ({bounds.parallel_max_hold_s:g} s), "
        "hold before the engine, or run without data parallelism",
    )
