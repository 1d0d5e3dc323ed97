"""What happens in a vLLM process that was asked to be green: guard, wrap, prove.

Roles by process: *engine* runs the scheduler, *front* turns engine outputs into answers,
*http* is a front with the OpenAI server. Workers need nothing. Errors are fatal on purpose:
asked for and not active must never serve.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import sys

from green_core import preflight
from green_core.activation import activate, prove_live
from green_core.config import ENV_PREFIX
from green_core.errors import EngineUnsupported
from vllm_green.versions import SERVED, require_verified

_started_in = 0
_RAY_PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
# Modules whose presence tells that this process serves or runs batches over the OpenAI API.
_HTTP_MODULES = (
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.openai.run_batch",
)


def start(path: str | None = None) -> None:
    """Resolve the configuration where that was not done yet, and apply the seams that this
    process needs; idempotent per process (FIELD P1).
    """
    global _started_in  # noqa: PLW0603 - the one flag that makes register() idempotent
    activate(path, check=functools.partial(preflight.check, served=SERVED))
    if _started_in == os.getpid():
        return
    roles = process_roles()
    if roles:
        require_verified()
        _refuse_bypasses()
        _reach_ray_actors()
        _log_as_vllm()
        from vllm_green.seams import table, targets

        for role in roles:
            table().apply(where=role)
            missing = table().verify(where=role)
            if missing:
                raise EngineUnsupported(
                    f"green's seams did not take hold in this process: {', '.join(missing)}. "
                    "Another plugin may have replaced them: start with only green"
                )
            if role != "engine":  # which the process that builds a scheduler proves itself
                prove_live(role, {"seams": targets(role)})
    _started_in = os.getpid()


def process_roles() -> tuple[str, ...]:
    """The roles of this process, told from its name and from what it has imported."""
    name = multiprocessing.current_process().name
    if name.startswith(("VllmWorker", "Worker")):
        return ()
    if name.startswith("EngineCore"):
        return ("engine",)
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name == "vllm.model_executor.models.registry":
        return ()  # vLLM's helper that only inspects a model class
    if any(module in sys.modules for module in _HTTP_MODULES):
        return ("engine", "front", "http")
    return ("engine", "front")


def _refuse_bypasses() -> None:
    if os.environ.get("VLLM_USE_RUST_FRONTEND", "0").strip().lower() in {"1", "true"}:
        raise EngineUnsupported(
            "VLLM_USE_RUST_FRONTEND bypasses vLLM's Python API server, where green marks "
            "requests and reports energy. Unset it, or start without --plugins green"
        )


def _reach_ray_actors() -> None:
    """Have vLLM copy our variables to Ray actors.

    The listed prefix is vLLM's own option. Registering the variables in ``vllm.envs`` would also
    do, but puts them into the compile-cache key: every start would then compile anew.
    """
    listed = [p for p in os.environ.get(_RAY_PREFIXES, "").split(",") if p]
    if ENV_PREFIX not in listed:
        os.environ[_RAY_PREFIXES] = ",".join([*listed, ENV_PREFIX])


def _log_as_vllm() -> None:
    """Write our log lines where and as vLLM writes its own."""
    theirs, ours = logging.getLogger("vllm"), logging.getLogger("greenserve")
    ours.handlers, ours.propagate = theirs.handlers, False
    ours.setLevel(theirs.level)
