"""The same model is loaded again and again."""

from __future__ import annotations

from green_core.doctor.estimates import DAY_S, finding, idle_w
from green_core.doctor.facts import Finding, StartFacts, Status
from green_core.doctor.remedies import remedy

TRAP = "repeated_loading"
MIN_STARTS = 3


def find(status: Status, earlier: Status | None) -> Finding | None:
    """Count the starts of this model in the last day; servers that run side by side are one."""
    starts = one_after_another(status)
    if len(starts) < MIN_STARTS:
        return None
    loads = [start.load_s for start in starts if start.load_s is not None]
    spent_s, power_w = sum(loads), idle_w(status)
    known = f"{len(loads)} of them took {spent_s:.0f} s to load" if loads else "load times unknown"
    return finding(
        status,
        trap=TRAP,
        title="the model is loaded again and again",
        evidence=f"{len(starts)} starts of {starts[-1].model} on this host in a day; {known}",
        remedy=remedy("repeats", status.engine.info.engine),
        estimate="all loads but one, at the power of the idle engine; at least, since loading "
        "takes more than idling"
        if loads and power_w is not None
        else "cannot be told: load time or idle power unknown",
        energy_j_per_day=spent_s * (len(loads) - 1) / len(loads) * power_w
        if loads and power_w is not None
        else None,
    )


def one_after_another(status: Status) -> list[StartFacts]:
    """This model's starts of the last day, oldest first; of those that still run, the newest."""
    recent = sorted(
        (
            start
            for start in status.starts
            if start.model == status.engine.info.model and start.at_s > status.at_s - DAY_S
        ),
        key=lambda start: start.at_s,
    )
    running = [start for start in recent if start.is_running]
    return [start for start in recent if not start.is_running or start is running[-1]]
