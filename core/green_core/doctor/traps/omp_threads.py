"""More OpenMP threads than CPUs: they take turns, and spin while they wait for each other."""

from __future__ import annotations

from green_core.doctor.estimates import finding
from green_core.doctor.facts import Finding, NotChecked, ProcessFacts, Status
from green_core.doctor.remedies import remedy
from green_core.doctor.traps.threads import binds_children, computing, openmp_threads

TRAP = "omp_threads"


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Add up the threads of the engine's processes, against the CPUs and the quota they share.

    Without ``OMP_NUM_THREADS`` each process starts one thread for each CPU it may run on
    (the specification leaves it to the runtime; GNU, LLVM and Intel do so).
    """
    processes = computing(status, TRAP)
    if not isinstance(processes, tuple):
        return processes
    engine = status.engine.info.engine
    counted = [p for p in processes if not binds_children(p, engine)]
    if not counted:
        return NotChecked(TRAP, "the threads of the engine's workers could not be read")
    threads = sum(_threads(p) for p in counted)
    cpus = len({cpu for p in counted for cpu in p.cpus})
    allowed = min(float(cpus), status.host.cpu_quota or float(cpus))
    if threads <= max(allowed, 1.0):
        return None
    unset = sum(openmp_threads(p) is None for p in counted)
    told = f"OMP_NUM_THREADS is unset in {unset} of them" if unset else "OMP_NUM_THREADS says so"
    quota = f", of which the control group grants {allowed:g}" if allowed < cpus else ""
    return finding(
        status,
        trap=TRAP,
        title="more OpenMP threads than CPUs",
        evidence=f"{len(counted)} process(es) start {threads} threads on {cpus} CPU(s){quota}; "
        f"{told}",
        remedy=remedy("omp", engine),
        estimate="cannot be told in advance: set it and compare joules per token in the ledger",
    )


def _threads(process: ProcessFacts) -> int:
    return openmp_threads(process) or len(process.cpus)
