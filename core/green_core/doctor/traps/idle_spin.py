"""An idle server that keeps a CPU busy (FIELD P15)."""

from __future__ import annotations

from green_core.doctor.estimates import DAY_S, busy_ratio, finding
from green_core.doctor.facts import Finding, NotChecked, ProcessFacts, Status
from green_core.doctor.remedies import remedy
from green_core.energy.devices import device_model

TRAP = "idle_spin"
MIN_APART_S = 2.0
MAX_CORES = 0.1
# Engines look for more work for a while after a step, and spin meanwhile: a second in vLLM 0.32.0
# (SpinCondition in vllm/distributed/device_communicators/shm_broadcast.py).
AFTER_WORK_S = 2.0


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Compare the CPU time of each process at two looks, with no step between them."""
    if earlier is None:
        return NotChecked(
            TRAP, "it takes two looks at a running server (--live, --seconds above 0)"
        )
    if why := _not_idle(status, earlier):
        return NotChecked(TRAP, why)
    before = {(process.pid, process.started_s): process for process in earlier.processes}
    pairs = [(before[key], p) for p in status.processes if (key := (p.pid, p.started_s)) in before]
    pairs = [(then, now) for then, now in pairs if now.at_s - then.at_s >= MIN_APART_S]
    if not pairs:
        return NotChecked(TRAP, f"no process was seen twice, {MIN_APART_S:.0f} s apart (--seconds)")
    spinning = [(now, _cores(then, now)) for then, now in pairs if _cores(then, now) > MAX_CORES]
    if not spinning:
        return None
    cores = sum(used for _, used in spinning)
    listed = ", ".join(f"{p.role} {p.pid}: {used:.0%} of a core" for p, used in spinning)
    core = device_model("cpu", cores=1)
    idle_s = DAY_S * (1 - busy_ratio(status))
    return finding(
        status,
        trap=TRAP,
        title="the idle server keeps the CPU busy",
        evidence=f"no step ran between the two looks, and meanwhile {listed}",
        remedy=remedy("spin", status.engine.info.engine),
        estimate=f"{core.max_w - core.static_w:.1f} W a busy core ({core.source}) over the day's "
        "idle share; at least, since a busy core also keeps the package awake",
        energy_j_per_day=cores * (core.max_w - core.static_w) * idle_s,
    )


def _not_idle(status: Status, earlier: Status) -> str:
    """Why the engine is not known to have idled. Held requests do not count: they take no CPU."""
    if status.silent_s or earlier.silent_s:
        return "an engine process did not answer, so what it does is not known"
    now, then = status.load, earlier.load
    queued = now.running + now.waiting + then.running + then.waiting
    if queued or (now.steps, now.requests) != (then.steps, then.requests):
        return "the engine was at work between the two looks"
    if then.until_s - then.last_step_s < AFTER_WORK_S:
        return "the engine was at work just before the first look"
    return ""


def _cores(then: ProcessFacts, now: ProcessFacts) -> float:
    return (now.cpu_s - then.cpu_s) / (now.at_s - then.at_s)
