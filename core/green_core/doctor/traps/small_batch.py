"""The batch is held small: requests queue at the limit of running requests most of the time."""

from __future__ import annotations

from green_core.doctor.estimates import finding, per_day, weights_j
from green_core.doctor.facts import Finding, NotChecked, Status
from green_core.doctor.remedies import remedy

TRAP = "small_batch"
MIN_REQUESTS = 20
MIN_BUSY_S = 10.0
FULL_RATIO = 0.5
# Energy per token hardly falls beyond this batch (H100, 8B: ML.ENERGY benchmark v3, 2025).
FLAT_FROM = 256
MIN_SAVED_RATIO = 0.02  # of active energy; below that the energy curve is flat already


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """See how long others waited at the limit, and what twice the batch would save."""
    load, limit = status.load, status.engine.info.max_running
    if load.requests < MIN_REQUESTS or load.busy_s < MIN_BUSY_S:
        return NotChecked(
            TRAP,
            f"too little was seen: {load.requests} requests in {load.busy_s:.0f} s of work "
            f"({MIN_REQUESTS} and {MIN_BUSY_S:.0f} s are needed)",
        )
    full = load.full_s / load.busy_s
    if limit >= FLAT_FROM or full < FULL_RATIO:
        return None
    # Weights are read once a step; at twice the batch there are half as many steps.
    read_j = weights_j(status)
    saved_j = None if read_j is None else read_j * min(full, 1.0) / 2
    if saved_j is not None and saved_j < MIN_SAVED_RATIO * load.active_j:
        return None
    return finding(
        status,
        trap=TRAP,
        title="requests wait while the batch is held small",
        evidence=f"for {full:.0%} of {load.busy_s:.0f} s of work requests waited because {limit} "
        "were running already, the most that the engine allows",
        remedy=remedy("small-batch", status.engine.info.engine),
        estimate="reading the weights half as often at twice the batch while it is full, by the "
        "device model"
        if saved_j is not None
        else "cannot be told: device or model size unknown, or no energy booked",
        energy_j_per_day=None if saved_j is None else per_day(status, saved_j),
    )
