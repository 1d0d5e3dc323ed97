"""The control: what the ledger of both arms would say had the grid been flat.

Two questions are asked of the same records. Priced at one intensity, what is left of the saving?
And asked again under a grid that never changes, how many flex requests would the policy hold?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from green_core.config import GreenConfig
from green_core.decisions import Decisions
from green_core.grid.file import open_file_signal
from green_core.manager import GreenManager
from green_core.values import Hold, RequestView
from greendemo.figures import Arm, change
from greendemo.grid import Day, write_replay
from greendemo.ledger import Row


@dataclass(frozen=True)
class Control:
    """Flat-grid results; ``held_*`` count flex requests that the policy would hold at arrival."""

    intensity_g_per_kwh: float
    off_g: float
    on_g: float
    held_recorded: int
    held_flat: int

    @property
    def change(self) -> float:
        """Change of carbon from the off arm to the on arm on the flat grid."""
        return change(self.off_g, self.on_g)


def run_control(
    off: Arm, on: Arm, *, config: GreenConfig, day: Day, days: int, anchor_s: float, folder: Path
) -> Control:
    """Replay the ledger under the recorded day and under one as dirty that never changes."""
    rows = off.account.of("flex")
    deadlines_s = [a.due_s - a.at_s if a.due_s else 0.0 for a in off.of("flex")]
    held = {}
    for name, replayed in (("recorded", day), ("flat", day.flat())):
        path = folder / f"control-{name}.csv"
        write_replay(replayed, path, days=days)
        carbon = msgspec.structs.replace(config.carbon, path=str(path))
        signal = open_file_signal(carbon, anchor_s=anchor_s)
        held[name] = count_held(config, signal, rows, deadlines_s)
    return Control(
        intensity_g_per_kwh=day.mean,
        off_g=off.account.carbon_at(day.mean, config.energy.pue),
        on_g=on.account.carbon_at(day.mean, config.energy.pue),
        held_recorded=held["recorded"],
        held_flat=held["flat"],
    )


def count_held(
    config: GreenConfig, signal: Any, rows: Sequence[Row], deadlines_s: Sequence[float]
) -> int:
    """How many requests the configured policy would hold when they arrive."""
    decisions = Decisions(GreenManager(config))
    try:
        return sum(
            isinstance(decisions.admit_all([request], signal.view(request.now_s))[0], Hold)
            for request in map(_view, rows, deadlines_s)
        )
    finally:
        decisions.close()


def _view(row: Row, deadline_s: float) -> RequestView:
    return RequestView(
        request_id="replayed",
        tenant="replayed",
        urgency="flex",
        now_s=row.arrival_s,
        arrival_s=row.arrival_s,
        deadline_s=row.arrival_s + deadline_s,
        prompt_tokens=row.prompt_tokens,
        max_tokens=row.output_tokens,
        estimated_run_s=row.finished_s - row.started_s,
    )
