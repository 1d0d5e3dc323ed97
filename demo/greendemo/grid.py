"""The recorded day, and how it is laid out on the wall clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean

HOUR = timedelta(hours=1)
FIRST_LINE = "ts_utc,ci_lca"


@dataclass(frozen=True)
class Day:
    """Hourly carbon intensities in gCO2e/kWh, the first from ``start`` on."""

    start: datetime
    intensities: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean intensity of the day."""
        return fmean(self.intensities)

    def flat(self) -> Day:
        """A day that is as dirty on average and never changes."""
        return Day(self.start, (self.mean,) * len(self.intensities))


def load_day(path: Path) -> Day:
    """Read the demo's day: comment lines, a header, and one row for each of 24 hours."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    if not lines or lines[0] != FIRST_LINE:
        raise ValueError(f"{path}: the first line after the comments is not {FIRST_LINE!r}")
    rows = [line.split(",") for line in lines[1:]]
    start = datetime.fromisoformat(rows[0][0])
    expected = [start + n * HOUR for n in range(24)]
    if [datetime.fromisoformat(row[0]) for row in rows] != expected:
        raise ValueError(f"{path}: expected the 24 hours from {start.isoformat()} on, one a row")
    return Day(start, tuple(float(row[1]) for row in rows))


def write_replay(day: Day, path: Path, *, days: int) -> None:
    """Write ``day`` as a file for greenserve, ``days`` times in a row with consecutive dates."""
    values = day.intensities * days
    rows = (f"{(day.start + n * HOUR).isoformat()},{value}" for n, value in enumerate(values))
    path.write_text("\n".join([FIRST_LINE, *rows, ""]), "utf-8")


@dataclass(frozen=True)
class Replay:
    """A day that repeats on the wall clock from ``anchor_s`` on, an hour every ``hour_s``."""

    day: Day
    anchor_s: float
    hour_s: float

    @property
    def day_s(self) -> float:
        """Wall seconds of one day."""
        return len(self.day.intensities) * self.hour_s

    def next_start_s(self, after_s: float) -> float:
        """The first start of a day at or after a wall time."""
        return (
            self.anchor_s + max(0, math.ceil((after_s - self.anchor_s) / self.day_s)) * self.day_s
        )

    def intensity_at(self, wall_s: float) -> float:
        """Intensity at a wall time."""
        return self.day.intensities[self._hour(wall_s)]

    def label(self, wall_s: float) -> str:
        """Hour of the recorded day at a wall time."""
        return (self.day.start + self._hour(wall_s) * HOUR).astimezone(UTC).strftime("%H:00 UTC")

    def _hour(self, wall_s: float) -> int:
        # A microsecond of tolerance: the start of an hour belongs to that hour, however it rounds.
        hours = (wall_s - self.anchor_s + 1e-6) / self.hour_s
        return math.floor(hours) % len(self.day.intensities)
