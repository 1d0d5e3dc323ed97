"""What vLLM was configured to do, in the words that the doctor knows for every engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from green_core.doctor.facts import EngineFacts
from green_core.values import EngineInfo

_load_s: float | None = None


def wrap_executor_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Note how long the workers took to start and to read their weights.

    vLLM logs the reading alone, from the worker's process, and keeps it nowhere.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        global _load_s  # noqa: PLW0603 - an engine process has one executor
        started_s = time.perf_counter()
        original(self, *args, **kwargs)
        _load_s = time.perf_counter() - started_s

    return __init__


def engine_facts(config: Any, kv_cache_config: Any, info: EngineInfo) -> EngineFacts:
    """The facts of a ``VllmConfig`` whose engine is ready.

    ``load_s`` holds the start of the workers too. vLLM never lets a request wait for company.
    """
    compiles = _compiles(config.compilation_config)
    return EngineFacts(
        info=info,
        weights_dtype=_name(config.model_config.dtype),
        kv_dtype=_kv_dtype(config, kv_cache_config),
        prefix_caching=bool(config.cache_config.enable_prefix_caching),
        capture_sizes=_capture_sizes(config.compilation_config),
        compiles=compiles,
        compile_cache=_keeps_compiled(config) if compiles else None,
        compile_cache_dir=_compile_cache_dir(config.compilation_config) if compiles else "",
        compile_s=_compile_s(config.compilation_config) if compiles else None,
        load_s=_load_s,
        batch_wait_s=0.0,
    )


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _kv_dtype(config: Any, kv_cache_config: Any) -> str:
    """The cache's own type; layers may differ, and a model may have no cache at all."""
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    types = {_name(spec.dtype) for spec in specs if getattr(spec, "dtype", None) is not None}
    if types:
        return ", ".join(sorted(types))
    asked = str(config.cache_config.cache_dtype)
    return _name(config.model_config.dtype) if asked == "auto" and specs else asked


def _capture_sizes(compilation: Any) -> tuple[int, ...]:
    """Batch sizes of captured graphs; vLLM leaves some in the config that it never captures."""
    if compilation.cudagraph_mode is None or compilation.cudagraph_mode.name == "NONE":
        return ()
    return tuple(sorted(compilation.cudagraph_capture_sizes or ()))


def _compiles(compilation: Any) -> bool:
    mode = compilation.mode
    return mode is not None and mode.name != "NONE" and compilation.backend != "eager"


def _keeps_compiled(config: Any) -> bool:
    """Whether the next start finds what this one compiled (vLLM's own rule)."""
    from vllm.compilation.compiler_interface import is_compile_cache_enabled

    return bool(is_compile_cache_enabled(config.compilation_config.inductor_compile_config))


def _compile_cache_dir(compilation: Any) -> str:
    from vllm import envs

    return compilation.cache_dir or os.path.join(envs.VLLM_CACHE_ROOT, "torch_compile_cache")


def _compile_s(compilation: Any) -> float | None:
    """Seconds spent compiling (or reading what was compiled before); vLLM's 0.0 is no answer."""
    took_s = compilation.compilation_time + compilation.encoder_compilation_time
    return took_s or None
