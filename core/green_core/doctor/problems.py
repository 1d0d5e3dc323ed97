"""Faults in what a server says about itself; the energy traps stand apart."""

from __future__ import annotations

from collections.abc import Iterator

from green_core.doctor.facts import SignalFacts, Status


def problems(status: Status) -> tuple[str, ...]:
    """One line for each: signal, meter, policies, seams, and parts that greenserve switched off."""
    return (
        *signal_problems(status.signal),
        *_meter(status),
        *_policies(status),
        *_seams(status),
        *(f"a fault in {fault}: greenserve's log says more" for fault in status.faults),
    )


def signal_problems(signal: SignalFacts) -> Iterator[str]:
    """A signal that is not fresh, or whose service fails."""
    view = signal.view
    if view.quality == "stale":
        yield f"the carbon signal is stale: {view.source} was last heard too long ago"
    elif view.quality == "fallback":
        yield f"the carbon signal was never heard; {view.source} stands in"
    if signal.problem:
        yield f"the carbon signal fails: {signal.problem}"


def _meter(status: Status) -> Iterator[str]:
    chosen = status.settings.get("energy.meter")
    if chosen is not None and chosen.value == "model":
        return  # somebody's wish
    if status.meter.problem:
        yield f"energy is {status.meter.method}, not the best there is: {status.meter.problem}"


def _policies(status: Status) -> Iterator[str]:
    if status.switched_off:
        return  # somebody's wish
    for policy in status.policies:
        if not policy.active:
            yield f"the {policy.family} policy {policy.name} was chosen and decides nothing"


def _seams(status: Status) -> Iterator[str]:
    if not status.seams:
        yield "no process shows that greenserve's seams took hold"
    for process in status.seams:
        if not process.seams:
            yield f"no seam took hold in {process.role} {process.pid}"
