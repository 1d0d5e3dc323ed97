"""What the doctor is told about a vLLM configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import make_scheduler
from vllm.config import CompilationMode, CUDAGraphMode

from green_core.doctor.facts import EngineFacts
from vllm_green import facts as module
from vllm_green.engine import engine_info
from vllm_green.facts import engine_facts, wrap_executor_init


@pytest.fixture
def scheduler() -> Any:
    return make_scheduler(green=False)


@pytest.fixture
def facts(scheduler: Any) -> Callable[[], EngineFacts]:
    config = scheduler.vllm_config
    info = engine_info(config, scheduler)
    return lambda: engine_facts(config, scheduler.kv_cache_config, info)


def test_number_formats_and_the_prefix_cache_are_told(scheduler, facts) -> None:
    told = facts()
    assert (told.weights_dtype, told.kv_dtype) == ("float32", "float32")
    assert told.prefix_caching is True
    assert told.batch_wait_s == 0.0
    scheduler.vllm_config.model_config.dtype = torch.bfloat16
    scheduler.vllm_config.cache_config.enable_prefix_caching = False
    told = facts()
    assert (told.weights_dtype, told.kv_dtype) == ("bfloat16", "float32")
    assert told.prefix_caching is False


def test_a_cache_without_a_type_has_the_one_that_was_asked_for(scheduler, facts) -> None:
    scheduler.kv_cache_config.kv_cache_groups.clear()
    scheduler.vllm_config.cache_config.cache_dtype = "fp8"
    assert facts().kv_dtype == "fp8"


def test_capture_sizes_are_told_only_where_graphs_are_captured(scheduler, facts) -> None:
    compilation = scheduler.vllm_config.compilation_config
    compilation.cudagraph_capture_sizes = [8, 1, 4]
    assert compilation.cudagraph_mode is CUDAGraphMode.NONE  # on a CPU
    assert facts().capture_sizes == ()
    compilation.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    assert facts().capture_sizes == (1, 4, 8)


@pytest.mark.parametrize(
    ("mode", "backend"), [(CompilationMode.NONE, ""), (CompilationMode.VLLM_COMPILE, "eager")]
)
def test_an_engine_that_does_not_compile_has_no_compile_cache(
    scheduler, facts, mode, backend
) -> None:
    compilation = scheduler.vllm_config.compilation_config
    compilation.mode, compilation.backend = mode, backend
    told = facts()
    assert told.compiles is False
    assert (told.compile_cache, told.compile_cache_dir, told.compile_s) == (None, "", None)


def test_a_compile_cache_is_told_with_its_folder_and_what_compiling_took(
    scheduler, facts, monkeypatch
) -> None:
    compilation = scheduler.vllm_config.compilation_config
    compilation.mode, compilation.backend = CompilationMode.VLLM_COMPILE, "inductor"
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/cache")
    told = facts()
    assert (told.compiles, told.compile_cache) == (True, True)
    assert told.compile_cache_dir == "/cache/torch_compile_cache"
    assert told.compile_s is None  # vLLM's 0.0 says that it did not look
    compilation.cache_dir = "/elsewhere"
    compilation.compilation_time, compilation.encoder_compilation_time = 12.0, 0.5
    told = facts()
    assert (told.compile_cache_dir, told.compile_s) == ("/elsewhere", 12.5)


def test_a_compile_cache_that_is_switched_off_is_told(scheduler, facts, monkeypatch) -> None:
    compilation = scheduler.vllm_config.compilation_config
    compilation.mode, compilation.backend = CompilationMode.VLLM_COMPILE, "inductor"
    compilation.inductor_compile_config["force_disable_caches"] = True
    assert facts().compile_cache is False
    compilation.inductor_compile_config["force_disable_caches"] = False
    assert facts().compile_cache is True
    monkeypatch.setenv("VLLM_DISABLE_COMPILE_CACHE", "1")
    assert facts().compile_cache is False


def test_the_time_to_load_is_that_of_the_executor(facts, monkeypatch) -> None:
    monkeypatch.setattr(module, "_load_s", None)
    assert facts().load_s is None
    seen: list[Any] = []
    start = wrap_executor_init(lambda self, vllm_config: seen.append(vllm_config))
    start(object(), vllm_config="config")
    assert seen == ["config"]
    load_s = facts().load_s
    assert load_s is not None
    assert 0.0 < load_s < 1.0


def test_a_configuration_that_cannot_be_read_does_not_keep_the_engine_from_serving(
    monkeypatch,
) -> None:
    from harness import Loop, green_scheduler, make_request

    from vllm_green import engine

    def surprised(*args: Any) -> EngineFacts:
        raise AttributeError("mode")

    monkeypatch.setattr(engine, "engine_facts", surprised)
    with green_scheduler() as scheduler:
        scheduler.add_request(make_request("r"))
        loop = Loop(scheduler)
        loop.run()
        assert len(loop.text("r")) == 4
