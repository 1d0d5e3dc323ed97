"""A CPU engine spread over NUMA nodes without binding."""

from __future__ import annotations

from green_core.doctor.estimates import finding
from green_core.doctor.facts import Finding, NotChecked, ProcessFacts, Status
from green_core.doctor.remedies import remedy
from green_core.doctor.traps.threads import computing, is_bound

TRAP = "numa"


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Look for processes that may run on CPUs of several nodes and bind no thread."""
    processes = computing(status, TRAP)
    if not isinstance(processes, tuple):
        return processes
    if not status.host.nodes:
        return NotChecked(TRAP, "the kernel shows no NUMA nodes")
    engine = status.engine.info.engine
    loose = [p for p in processes if len(_nodes_of(p, status)) > 1 and not is_bound(p, engine)]
    if not loose:
        return None
    listed = ", ".join(f"{p.role} {p.pid} on nodes {_nodes_of(p, status)}" for p in loose)
    return finding(
        status,
        trap=TRAP,
        title="the CPU engine is spread over NUMA nodes without binding",
        evidence=f"{len(status.host.nodes)} nodes; {listed}; no variable binds their threads",
        remedy=remedy("numa", engine),
        estimate="cannot be told in advance: bind it and compare joules per token in the ledger",
    )


def _nodes_of(process: ProcessFacts, status: Status) -> list[int]:
    return [node.node for node in status.host.nodes if set(node.cpus) & set(process.cpus)]
