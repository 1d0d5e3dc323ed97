"""Batching that waits for nothing: requests wait for company that does not come."""

from __future__ import annotations

from green_core.doctor.estimates import finding, per_day
from green_core.doctor.facts import Finding, NotChecked, Status
from green_core.doctor.remedies import remedy

TRAP = "futile_wait"
MIN_REQUESTS = 20
MIN_HOLDS = 20
MIN_GAIN = 0.1  # others that came, for each hold
ALONE = 1.1  # mean batch up to which a request counts as alone
MIN_WAIT_S = 0.005
_ESTIMATE = (
    "next to no energy, since a waiting request takes no slot; it costs {hours:.1f} h of "
    "waiting a day, added up over requests, at the load seen"
)


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Look at greenserve's holds for company, then at the engine's own wait."""
    load, wait_s = status.load, status.engine.batch_wait_s
    if load.company_holds >= MIN_HOLDS and load.company_gained < MIN_GAIN * load.company_holds:
        return finding(
            status,
            trap=TRAP,
            title="requests are held for company that does not come",
            evidence=f"{load.company_holds} requests were held {load.company_s:.1f} s in all, and "
            f"{load.company_gained} others came",
            remedy=remedy("company", status.engine.info.engine),
            estimate=_ESTIMATE.format(hours=per_day(status, load.company_s) / 3600),
        )
    if wait_s >= MIN_WAIT_S and load.requests >= MIN_REQUESTS and 0 < load.mean_running <= ALONE:
        return finding(
            status,
            trap=TRAP,
            title="the engine waits for company that does not come",
            evidence=f"the engine lets a request wait up to {wait_s * 1000:.0f} ms, and "
            f"{load.mean_running:.2f} ran on average ({load.requests} requests)",
            remedy=remedy("engine-wait", status.engine.info.engine),
            estimate=_ESTIMATE.format(hours=per_day(status, load.requests * wait_s) / 3600),
        )
    if 0 < load.company_holds < MIN_HOLDS:
        return NotChecked(
            TRAP, f"only {load.company_holds} holds were seen ({MIN_HOLDS} are needed)"
        )
    if wait_s >= MIN_WAIT_S and load.requests < MIN_REQUESTS:
        return NotChecked(
            TRAP, f"only {load.requests} requests were seen ({MIN_REQUESTS} are needed)"
        )
    return None
