"""What the traps about CPU engines have in common: who computes, and who binds its threads."""

from __future__ import annotations

import msgspec

from green_core.doctor.facts import NotChecked, ProcessFacts, Status

_BIND = "VLLM_CPU_OMP_THREADS_BIND"


def computing(status: Status, trap: str) -> tuple[ProcessFacts, ...] | NotChecked | None:
    """The processes that run the model on this CPU; ``None``: the engine runs on no CPU."""
    device = status.engine.info.device.strip().lower()
    if device in {"", "unknown"}:
        return NotChecked(trap, "it is not known which device the engine runs on")
    if device != "cpu":
        return None
    engines = tuple(p for p in status.processes if p.role == "engine")
    workers = tuple(p for p in status.processes if _is_worker(p))
    if not all(worker.environment for worker in workers):
        workers = _as_started(workers, engines, status.engine.info.engine)
    found = workers or engines
    if not found or not all(process.cpus for process in found):
        return NotChecked(trap, "the CPUs that the engine's processes may use could not be read")
    return found


def _as_started(
    workers: tuple[ProcessFacts, ...], engines: tuple[ProcessFacts, ...], engine: str
) -> tuple[ProcessFacts, ...]:
    """Workers that name themselves overwrite what ``/proc`` shows of their variables.

    They inherited the engine's. Where the engine binds them it set others, so that nothing is
    known of theirs and the engine's process answers for them.
    """
    if not engines or binds_children(engines[0], engine):
        return ()
    inherited = engines[0].environment
    return tuple(
        msgspec.structs.replace(worker, environment=worker.environment or inherited)
        for worker in workers
    )


def binds_children(process: ProcessFacts, engine: str) -> bool:
    """Whether this process computes nothing and sets number and places of its workers' threads.

    vLLM does, unless told not to (0.32.0, ``vllm/utils/ompmultiprocessing.py``).
    """
    told = process.environment.get(_BIND, "auto")
    return engine == "vllm" and not _is_worker(process) and told != "nobind"


def is_bound(process: ProcessFacts, engine: str) -> bool:
    """Whether threads are bound to CPUs, by the OpenMP runtime or by the engine."""
    known = process.environment
    return (
        binds_children(process, engine)
        or known.get("OMP_PROC_BIND", "").lower() not in {"", "false"}
        or bool(known.get("GOMP_CPU_AFFINITY"))
        or "proclist" in known.get("KMP_AFFINITY", "")
    )


def openmp_threads(process: ProcessFacts) -> int | None:
    """How many threads OpenMP was told to start; ``None``: nothing usable, so one for each CPU."""
    text = process.environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _is_worker(process: ProcessFacts) -> bool:
    """Roles of child processes are the names they give themselves (``VLLM::Worker``)."""
    return "worker" in process.role.lower()
