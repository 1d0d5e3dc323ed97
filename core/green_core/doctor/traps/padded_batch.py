"""A static batch under light load: steps are padded to a size far above what runs."""

from __future__ import annotations

from green_core.doctor.estimates import device, finding, per_day
from green_core.doctor.facts import Finding, NotChecked, Status
from green_core.doctor.remedies import remedy

TRAP = "padded_batch"
MIN_STEPS = 200
FAR_RATIO = 4.0
# Up to about this many rows ride along for free: such a step waits for memory, not arithmetic.
FAR_ROWS = 16


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Compare the mean batch with the smallest captured size that holds it."""
    load, sizes = status.load, status.engine.capture_sizes
    if not sizes:
        return None  # steps run at their own size
    if load.steps < MIN_STEPS:
        return NotChecked(TRAP, f"only {load.steps} steps were seen ({MIN_STEPS} are needed)")
    padded = min((size for size in sizes if size >= load.mean_running), default=0)
    rows = padded - load.mean_running
    if rows < FAR_ROWS or padded < FAR_RATIO * load.mean_running:
        return None
    model, parameters = device(status), status.engine.info.parameters
    lost_j = None
    if model is not None and parameters > 0 and load.active_j > 0:
        spent_j = load.steps * rows * 2 * parameters * model.flop_j
        lost_j = per_day(status, min(spent_j, load.active_j))
    return finding(
        status,
        trap=TRAP,
        title="steps are padded far beyond the requests in them",
        evidence=f"{load.mean_running:.1f} requests run on average over {load.steps} steps, and "
        f"the smallest captured size that holds them is {padded} (smallest of all: {min(sizes)})",
        remedy=remedy("padded-batch", status.engine.info.engine),
        estimate="arithmetic on empty rows, by the device model, with every step taken for a "
        "decode step; at most"
        if lost_j is not None
        else "cannot be told: device or model size unknown, or no energy booked",
        energy_j_per_day=lost_j,
    )
