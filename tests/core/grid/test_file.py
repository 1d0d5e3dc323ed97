"""The file signal: steps, replay, forecasts."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from green_core import ConfigError, GridState
from green_core.config import CarbonConfig
from green_core.grid.file import FileSignal, open_file_signal
from green_core.grid.series import Point
from green_core.grid.signal import CarbonSignal

START = datetime(2024, 3, 30, tzinfo=UTC)
START_S = START.timestamp()
ANCHOR_S = 1_800_000_000.0
HOUR = 3600.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Three days by the hour, over a change of clocks: day number * 100 + hour."""
    rows = [
        f"{(START + timedelta(hours=h)).isoformat()},{100 * (h // 24) + h % 24 + 100}"
        for h in range(72)
    ]
    file = tmp_path / "ci.csv"
    file.write_text("\n".join(["time,value", *rows]))
    return str(file)


def signal(path: str, **carbon) -> FileSignal:
    config = CarbonConfig(source="file", path=path, zone="DE", **carbon)
    return open_file_signal(config, anchor_s=ANCHOR_S)


def test_it_keeps_the_contract_of_a_signal(path):
    assert isinstance(signal(path), CarbonSignal)


def test_a_value_holds_from_its_time_until_the_next(path):
    played = signal(path)
    for hour in (0, 1, 30, 70):
        edge = START_S + hour * HOUR
        value = 100 * (hour // 24) + hour % 24 + 100
        assert played.view(edge).intensity_g_per_kwh == value
        assert played.view(edge + HOUR - 0.001).intensity_g_per_kwh == value
        assert played.view(edge + HOUR).intensity_g_per_kwh != value
        assert played.intensity_at(edge) == value
        assert played.next_change_s(edge + 5) == edge + HOUR


def test_beyond_both_ends_the_nearest_value_is_kept_and_flagged(path):
    played = signal(path)
    before, inside, after = (played.view(START_S + h * HOUR) for h in (-1000.0, 71.5, 72.0))
    assert (before.intensity_g_per_kwh, before.is_estimate) == (100.0, True)
    assert before.valid_until_s == START_S
    assert (inside.intensity_g_per_kwh, inside.is_estimate) == (323.0, False)
    assert (after.intensity_g_per_kwh, after.is_estimate) == (323.0, True)
    assert after.forecast == ()
    assert played.intensity_at(0.0) == 100.0
    assert played.intensity_at(1e12) == 323.0
    assert math.isinf(played.next_change_s(1e12))


def test_views_of_a_replay_are_in_wall_time(path):
    replay = signal(path, replay_start="2024-03-30T06:00Z", speed=60.0, forecast="recorded")
    view = replay.view(ANCHOR_S + 10)
    assert view.intensity_g_per_kwh == 106.0
    assert (view.observed_at_s, view.valid_until_s) == (ANCHOR_S, ANCHOR_S + 60)
    assert [p.start_s for p in view.forecast[:2]] == [ANCHOR_S + 60, ANCHOR_S + 120]
    assert [p.intensity_g_per_kwh for p in view.forecast[:2]] == [107.0, 108.0]
    assert view.forecast_end_s == ANCHOR_S + 60 + 24 * 60
    assert "60 times" in view.source
    assert "perfect knowledge" in view.source


def test_processes_with_one_anchor_agree_whenever_they_start(path):
    carbon = {"replay_start": "2024-03-30T06:00Z", "speed": 977.0}
    one, two = signal(path, **carbon), signal(path, **carbon)
    one.view(ANCHOR_S + 3.0)
    for offset in (0.0, 1.7, 99.0, 200.0):
        assert one.view(ANCHOR_S + offset) == two.view(ANCHOR_S + offset)


@settings(max_examples=50)
@given(
    speed=st.floats(0.01, 1e5),
    gaps=st.lists(st.integers(1, 100_000), min_size=1, max_size=20),
    anchor_s=st.floats(1.6e9, 2e9),
    shift=st.floats(0, 1),
)
def test_a_view_asked_at_its_own_end_is_always_the_next_one(speed, gaps, anchor_s, shift):
    times = list(itertools.accumulate(gaps, initial=START_S))
    points = tuple(Point(t, float(i % 7), t) for i, t in enumerate(times))
    carbon = CarbonConfig(source="file", path="x.csv", speed=speed)
    origin_s = times[0] + shift * (times[-1] - times[0])
    played = FileSignal(points, carbon, anchor_s=anchor_s, origin_s=origin_s)
    now_s, seen = -1e12, 0
    while math.isfinite(now_s):
        view = played.view(now_s)
        assert view.valid_until_s > now_s
        assert played.next_change_s(now_s) == view.valid_until_s
        starts = [p.start_s for p in view.forecast]
        assert starts == sorted(starts)
        assert not starts or starts[0] == view.valid_until_s
        if math.isfinite(view.valid_until_s):
            assert played.intensity_at(math.nextafter(view.valid_until_s, -math.inf)) == (
                view.intensity_g_per_kwh
            )
        now_s = view.valid_until_s
        seen += 1
    assert seen <= len(points) + 2


def test_going_back_in_time_gives_the_earlier_view_again(path):
    played = signal(path)
    early = played.view(START_S + HOUR)
    played.view(START_S + 40 * HOUR)
    assert played.view(START_S + HOUR) == early


def test_persistence_repeats_the_day_before_and_knows_nothing_of_the_future(path):
    played = signal(path, forecast="persistence")
    view = played.view(START_S + 30 * HOUR)  # second day, 06:00
    by_hour = [p.intensity_g_per_kwh for p in view.forecast]
    assert by_hour == [float(100 + h) for h in range(7, 24)] + [float(200 + h) for h in range(7)]


def test_persistence_without_a_day_before_keeps_the_present_value(path):
    view = signal(path, forecast="persistence").view(START_S + 5 * HOUR)
    # From 05:00 on the first day: 06:00..23:00 are unknown, 00:00..05:00 repeat this morning.
    by_hour = [p.intensity_g_per_kwh for p in view.forecast]
    assert by_hour == [105.0] * 18 + [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]


def test_a_persistence_forecast_longer_than_a_day_repeats_the_last_known_day(path):
    view = signal(path, forecast="persistence", forecast_hours=48.0).view(START_S + 30 * HOUR)
    values = [p.intensity_g_per_kwh for p in view.forecast]
    assert values[:24] == values[24:]


def test_a_recorded_forecast_is_the_future_up_to_horizon_and_end(path):
    played = signal(path, forecast="recorded", forecast_hours=6.0)
    near, end = played.view(START_S + 10 * HOUR), played.view(START_S + 69 * HOUR)
    assert [p.intensity_g_per_kwh for p in near.forecast] == [111.0 + h for h in range(6)]
    assert [p.intensity_g_per_kwh for p in end.forecast] == [322.0, 323.0]
    assert end.forecast_end_s == START_S + 72 * HOUR


def test_without_a_forecast_there_is_none(path):
    view = signal(path, forecast="none").view(START_S)
    assert view.forecast == ()
    assert "forecast" not in view.source


def test_a_gap_is_flagged_and_says_when_its_value_was_known(tmp_path):
    """FIELD G4."""
    file = tmp_path / "ci.csv"
    file.write_text(
        "time,value\n2024-01-01T00:00Z,250\n2024-01-01T01:00Z,\n2024-01-01T02:00Z,310\n"
    )
    played = signal(str(file))
    start_s = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    gap = played.view(start_s + HOUR)
    assert (gap.intensity_g_per_kwh, gap.is_estimate, gap.observed_at_s) == (250.0, True, start_s)
    assert not played.view(start_s + 2 * HOUR).is_estimate


def test_the_state_follows_the_configured_thresholds(path):
    played = signal(path, medium_threshold=150.0, high_threshold=310.0)
    states = [played.view(START_S + h * HOUR).state for h in (0, 24, 71)]
    assert states == [GridState.CLEAN, GridState.MEDIUM, GridState.DIRTY]


@pytest.mark.parametrize("start", ["2024-03-29T23:00Z", "2024-04-02T00:00Z"])
def test_a_replay_that_starts_outside_the_file_is_refused(path, start):
    with pytest.raises(ConfigError, match=r"replay_start.*outside"):
        signal(path, replay_start=start)


def test_a_replay_start_without_offset_is_refused(path):
    """FIELD G8."""
    with pytest.raises(ConfigError, match=r"replay_start.*offset"):
        signal(path, replay_start="2024-03-30T06:00")


def test_the_declared_kind_is_part_of_every_view(path):
    """FIELD G12."""
    assert signal(path, kind="marginal").view(START_S).kind == "marginal"
