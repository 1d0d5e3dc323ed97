"""Every symbol of vLLM that greenserve wraps or relies on, with reason and removal condition.

Official extension points come first and need no line here: the plugin entry point, the argparse
action, ``--middleware``, and vLLM's list of variable prefixes for Ray.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from green_core.seams import Seam, SeamTable
from vllm_green import facts, front, http

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_OUTPUTS = "vllm.v1.engine.output_processor"


def wrap_get_scheduler_cls(original: Callable[..., Any]) -> Callable[..., Any]:
    """Mix into whatever class the engine chose."""

    def get_scheduler_cls(self: Any) -> Any:
        from vllm_green.engine import choose_class

        return choose_class(original(self))

    return get_scheduler_cls


def wrap_busy_loop(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give the scheduler the loop that it has to wake.

    Not on ``__init__``: a spawned engine process loads plugins from inside it, which is too late.
    """

    def run_busy_loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.scheduler.green_attach(self)
        return original(self, *args, **kwargs)

    return run_busy_loop


def _relied_on(
    method: str,
    params: tuple[str, ...],
    reason: str,
    *hooks: str,
    removal: str = "vLLM offers a scheduler hook or a stable scheduler interface",
) -> Seam:
    return Seam(
        target=f"{_SCHEDULER}.{method}",
        reason=reason,
        removal=removal,
        where=("engine",),
        params=params,
        hooks=hooks or ("green_batch_policy", "green_admission_policy"),
    )


@functools.cache
def table() -> SeamTable:
    """The seam table of this process."""
    usage_hooks = ("green_meters", "green_on_request")
    return SeamTable(
        "vLLM",
        [
            Seam(
                target="vllm.config.scheduler:SchedulerConfig.get_scheduler_cls",
                reason="mix metering, limits and holds into the sync or async class vLLM chose",
                removal="vLLM offers scheduler plugins that compose",
                where=("engine",),
                params=("self",),
                wrap=wrap_get_scheduler_cls,
                hooks=("green_batch_policy", "green_admission_policy", *usage_hooks),
            ),
            *(
                Seam(
                    target=f"vllm.v1.engine.core:{name}.run_busy_loop",
                    reason="wake the engine's loop when a hold ends, without polling",
                    removal="the scheduler is given a way to wake the loop",
                    where=("engine",),
                    params=("self",),
                    wrap=wrap_busy_loop,
                    hooks=("green_admission_policy",),
                )
                for name in ("EngineCoreProc", "DPEngineCoreProc")
            ),
            Seam(
                target="vllm.v1.executor.abstract:Executor.__init__",
                reason="know how long weights took to load, for the doctor",
                removal="vLLM tells its load time as it tells its compile time",
                where=("engine",),
                params=("self", "vllm_config"),
                wrap=facts.wrap_executor_init,
                hooks=("green_on_request",),
            ),
            _relied_on("schedule", ("self", "throttle_prefills"), "limits before each step"),
            _relied_on(
                "update_from_output",
                ("self", "scheduler_output", "model_runner_output"),
                "price each step and send accounts with finished outputs",
            ),
            _relied_on("add_request", ("self", "request"), "open accounts, hold requests"),
            _relied_on("_enqueue_waiting_request", ("self", "request"), "divert held requests"),
            _relied_on(
                "finish_requests",
                ("self", "request_ids", "finished_status"),
                "abort held requests, close accounts",
            ),
            _relied_on("_preempt_request", ("self", "request"), "count preemptions"),
            _relied_on(
                "_update_request_with_output",
                ("self", "request", "new_token_ids", "is_stale"),
                "end an answer early, once its new tokens are committed",
                "green_exit_policy",
                removal="vLLM lets plugins add stop criteria to its own check",
            ),
            _relied_on("shutdown", ("self",), "close accounts and books"),
            _relied_on("get_request_counts", ("self",), "held requests count as waiting"),
            _relied_on("has_requests", ("self",), "held requests must not spin the loop"),
            _relied_on("has_finished_requests", ("self",), "held requests are not finished ones"),
            Seam(
                target=f"{_OUTPUTS}:OutputProcessor.add_request",
                reason="attach marks to the engine request, for pooling and n > 1 too",
                removal="vLLM passes request metadata to the scheduler",
                where=("front",),
                params=("self", "request", "prompt", "parent_req", "request_index", "queue"),
                wrap=front.wrap_add_request,
                hooks=("green_admission_policy",),
            ),
            Seam(
                target=f"{_OUTPUTS}:OutputProcessor.process_outputs",
                reason="take accounts out of kv_transfer_params before they reach a client",
                removal="EngineCoreOutput gains a field for plugins",
                where=("front",),
                params=("self", "engine_core_outputs"),
                wrap=front.wrap_process_outputs,
                hooks=usage_hooks,
            ),
            Seam(
                target=f"{_OUTPUTS}:OutputProcessor.do_tracing",
                reason="know whose span is being made",
                removal="vLLM lets plugins add span attributes",
                where=("front",),
                params=("self", "engine_core_output", "req_state"),
                wrap=front.wrap_do_tracing,
                hooks=usage_hooks,
            ),
            Seam(
                target=f"{_OUTPUTS}:instrument_manual",
                reason="add energy and carbon to the request's own span",
                removal="vLLM lets plugins add span attributes",
                where=("front",),
                params=("span_name", "start_time"),
                wrap=front.wrap_instrument_manual,
                hooks=usage_hooks,
            ),
            *(
                Seam(
                    target=f"vllm.entrypoints.{usage}.__init__",
                    reason="usage.green in answers and in the last streamed chunk",
                    removal="vLLM lets plugins extend usage",
                    where=("http",),
                    params=("self",),
                    wrap=front.wrap_usage,
                    hooks=usage_hooks,
                )
                for usage in (
                    "serve.engine.protocol:UsageInfo",
                    "openai.responses.protocol:ResponseUsage",
                )
            ),
            Seam(
                target="vllm.entrypoints.serve.instrumentator.metrics:get_prometheus_registry",
                reason="first moment after the engine is up at which a start-up can be stopped",
                removal="vLLM reports plugins that failed in the engine's process",
                where=("http",),
                params=(),
                wrap=front.wrap_registry,
                hooks=usage_hooks,
            ),
            Seam(
                target="vllm.entrypoints.pooling.base.serving:make_async",
                reason="pooling answers build their usage in a thread, outside the task's context",
                removal="vLLM carries the context into its threads",
                where=("http",),
                params=("func", "executor"),
                wrap=front.wrap_make_async,
                hooks=usage_hooks,
            ),
            Seam(
                target="vllm.v1.engine.async_llm:AsyncLLM.shutdown",
                reason="answer 503 to requests that no engine will answer after a shutdown",
                removal="vLLM drains its engine before it stops several API servers",
                where=("http",),
                params=("self", "timeout"),
                wrap=http.wrap_shutdown,
                hooks=("green_admission_policy",),
            ),
            *(
                Seam(
                    target=f"vllm.entrypoints.openai.{module}.protocol:{name}.to_sampling_params",
                    reason="marks in the body (service_tier, vllm_xargs), while 400 is possible",
                    removal="vLLM forwards service_tier to the engine",
                    where=("http",),
                    params=("self",),
                    wrap=front.wrap_to_sampling_params,
                    hooks=("green_admission_policy",),
                )
                for module, name in (
                    ("chat_completion", "ChatCompletionRequest"),
                    ("completion", "CompletionRequest"),
                    ("responses", "ResponsesRequest"),
                )
            ),
            *(
                Seam(
                    target=f"vllm.entrypoints.openai.{module}.protocol:{name}"
                    ".to_beam_search_params",
                    reason="refuse an early stop of beam search, while 400 is possible",
                    removal="vLLM removes beam search from its server",
                    where=("http",),
                    params=("self",),
                    wrap=front.wrap_to_beam_search_params,
                    hooks=("green_exit_policy",),
                )
                for module, name in (
                    ("chat_completion", "ChatCompletionRequest"),
                    ("completion", "CompletionRequest"),
                )
            ),
        ],
    )


def targets(where: str) -> list[str]:
    """The symbols that a process of this role builds on."""
    return [seam.target for seam in table().seams if where in seam.where]
