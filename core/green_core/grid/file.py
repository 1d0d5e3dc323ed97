"""A recorded carbon signal, played at its own dates or replayed at any speed."""

from __future__ import annotations

import math
from bisect import bisect_right
from pathlib import Path
from statistics import median

from green_core.config import CarbonConfig
from green_core.errors import ConfigError
from green_core.grid.persistence import NOTE as PERSISTENCE_NOTE
from green_core.grid.persistence import persistence
from green_core.grid.series import Point, parse_time, read_series
from green_core.values import ForecastPoint, GridView

UNKNOWN_ZONE = "unknown"  # the file plays, but nobody said where it was recorded
FORECAST_NOTES = {
    "recorded": "; forecast: the file's own future (perfect knowledge)",
    "persistence": PERSISTENCE_NOTE,
    "none": "",
}
FORECAST_NOTES["auto"] = FORECAST_NOTES["persistence"]  # a file has no service behind it


def open_file_signal(carbon: CarbonConfig, *, anchor_s: float) -> FileSignal:
    """Read ``carbon.path`` once and start playing it.

    ``anchor_s`` is the wall time at which replay begins; every process must be given the same
    one. Raises ``ConfigError`` when the file or the start of the replay cannot be used.
    """
    points = read_series(
        carbon.path, time_column=carbon.time_column, value_column=carbon.value_column
    )
    origin_s = anchor_s
    if carbon.replay_start:
        origin_s = parse_time(carbon.replay_start, "carbon.replay_start")
        if not points[0].at_s <= origin_s <= points[-1].at_s:
            raise ConfigError(
                "carbon.replay_start",
                f"{carbon.replay_start} lies outside {carbon.path}",
                remedy="Choose a time between its first and its last row",
            )
    return FileSignal(points, carbon, anchor_s=anchor_s, origin_s=origin_s)


class FileSignal:
    """Steps of a file on the wall clock: each value holds until the next one's time.

    Data time ``origin_s`` falls on wall time ``anchor_s`` and then runs ``carbon.speed`` times
    as fast. All times in a view are wall times. Before the first value and one period after the
    last, the nearest value is kept and flagged. Snapshots are built once per step.
    """

    def __init__(
        self, points: tuple[Point, ...], carbon: CarbonConfig, *, anchor_s: float, origin_s: float
    ) -> None:
        self._points = points
        self._carbon = carbon
        self._data_s = [point.at_s for point in points]
        self._values = [point.intensity_g_per_kwh for point in points]
        self._period_s = median(b - a for a, b in zip(self._data_s, self._data_s[1:], strict=False))
        self._end_data_s = self._data_s[-1] + self._period_s
        # (t - anchor) / speed would lose the last bits of dates that need no mapping at all.
        self._mapped = carbon.speed != 1 or origin_s != anchor_s
        self._anchor_s = anchor_s
        self._origin_s = origin_s
        # All look-ups are made on these wall times, so a view asked at its own valid_until_s is
        # always the next one, however the mapping rounds.
        self._wall_s = [self._wall(at_s) for at_s in self._data_s]
        self._edges_s = [*self._wall_s, self._wall(self._end_data_s)]
        self._source = self._describe()
        self._slice = (math.inf, -math.inf, self._build(-1))

    def view(self, now_s: float) -> GridView:
        """The snapshot at ``now_s``; a cached one while nothing changes."""
        start_s, end_s, snapshot = self._slice
        if start_s <= now_s < end_s:
            return snapshot
        index = bisect_right(self._edges_s, now_s) - 1
        start_s = self._edges_s[index] if index >= 0 else -math.inf
        snapshot = self._build(index)
        # One assignment: a reader in another thread sees the old slice or the new one.
        self._slice = (start_s, snapshot.valid_until_s, snapshot)
        return snapshot

    def intensity_at(self, at_s: float) -> float:
        """Intensity in g/kWh at a wall time; the nearest value beyond what is known."""
        return self._values[max(0, bisect_right(self._wall_s, at_s) - 1)]

    def next_change_s(self, now_s: float) -> float:
        """Wall time of the next step; ``inf`` after the end."""
        return self.view(now_s).valid_until_s

    def close(self) -> None:
        """Nothing to stop: the file was read once."""

    def _wall(self, data_s: float) -> float:
        if not self._mapped:
            return data_s
        return self._anchor_s + (data_s - self._origin_s) / self._carbon.speed

    def _build(self, index: int) -> GridView:
        """The snapshot of one step: -1 is the time before the file, ``count`` the one after."""
        count = len(self._points)
        point = self._points[min(max(index, 0), count - 1)]
        until_data_s = self._data_s[index + 1] if index + 1 < count else self._end_data_s
        ended = index >= count
        forecast, horizon_s = ((), 0.0) if ended else self._forecast(index, until_data_s)
        return GridView(
            intensity_g_per_kwh=point.intensity_g_per_kwh,
            kind=self._carbon.kind,
            zone=self._carbon.zone or UNKNOWN_ZONE,
            observed_at_s=self._wall(point.known_at_s),
            valid_until_s=math.inf if ended else self._wall(until_data_s),
            source=self._source,
            is_estimate=point.is_gap or ended or index < 0,
            state=self._carbon.state(point.intensity_g_per_kwh),
            forecast=forecast,
            forecast_end_s=horizon_s,
            basis="unknown" if self._carbon.basis == "any" else self._carbon.basis,
        )

    def _forecast(self, index: int, start_s: float) -> tuple[tuple[ForecastPoint, ...], float]:
        """Points from ``start_s`` (data time, the end of the present step) and the wall horizon."""
        method = self._carbon.forecast
        horizon_s = start_s + self._carbon.forecast_hours * 3600.0
        if method == "none":
            return (), 0.0
        if method == "recorded":
            horizon_s = min(horizon_s, self._end_data_s)
            last = bisect_right(self._data_s, math.nextafter(horizon_s, -math.inf))
            ahead = [(self._wall_s[i], self._values[i]) for i in range(index + 1, last)]
        else:
            present = max(index, 0)
            expected = persistence(
                self._data_s,
                self._values,
                present_s=self._data_s[present],
                present=self._values[present],
                start_s=start_s,
                horizon_s=horizon_s,
                step_s=self._period_s,
            )
            ahead = [(self._wall(at_s), value) for at_s, value in expected]
        points = tuple(ForecastPoint(at_s, value) for at_s, value in ahead)
        return points, self._wall(horizon_s) if points else 0.0

    def _describe(self) -> str:
        name = Path(self._carbon.path).name
        replay = ""
        if self._mapped:
            start = self._carbon.replay_start or "its own dates"
            replay = f", replayed from {start} at {self._carbon.speed:g} times real speed"
        return f"file {name}{replay}{FORECAST_NOTES[self._carbon.forecast]}"
