"""Faults in what a server says about itself; the energy traps stand apart."""

from __future__ import annotations

from collections.abc import Iterator

from green_core.doctor.facts import SignalFacts, Status


def problems(status: Status) -> tuple[str, ...]:
    """One line for each: engine, signal, meter, policies, seams, and parts that greenserve switched
    off.
    """
    return (
        *_engine(status),
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
        yield f"the carbon signal is stale: its source was last heard too long ago ({view.source})"
    elif view.quality == "fallback":
        yield f"the carbon signal was never heard; another value stands in ({view.source})"
    if signal.problem:
        yield f"the carbon signal fails: {signal.problem}"


def _engine(status: Status) -> Iterator[str]:
    if status.silent_s > 0:
        yield (
            "an engine process does not answer, and what is shown of it is "
            f"{status.silent_s:.0f} s old: it hangs, is stopped or gets no CPU. See the server's "
            "log"
        )


def _meter(status: Status) -> Iterator[str]:
    chosen = status.settings.get("energy.meter")
    if chosen is not None and chosen.value == "model":
        return  # somebody's wish
    if status.meter.problem:
        yield (
            f"energy is {status.meter.method}, for want of a better meter: {status.meter.problem}"
        )


def _policies(status: Status) -> Iterator[str]:
    if status.switched_off:
        return  # somebody's wish
    on_stale = status.settings.get("carbon.on_stale")
    waits = status.signal.view.quality != "fresh" and on_stale and on_stale.value == "off"
    for policy in status.policies:
        if not policy.active:
            why = policy.problem or ("the signal is not fresh (carbon.on_stale)" if waits else "")
            yield (
                f"the {policy.family} policy {policy.name} was chosen and decides nothing"
                f"{f': {why}' if why else ' (the log says why)'}"
            )


def _seams(status: Status) -> Iterator[str]:
    if not status.seams:
        yield (
            "no process shows that greenserve's seams took hold (they are noted in the run folder: "
            "was that cleaned up?)"
        )
    for process in status.seams:
        if not process.seams:
            yield f"no seam took hold in {process.role} {process.pid}"
