"""Guarantees of deadline-bound admission."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from green_core import (
    Admit,
    ConfigError,
    ForecastPoint,
    GreenConfig,
    GridState,
    GridView,
    Hold,
)
from green_core.config import AdmissionConfig
from green_core.policies.deadline import Deadline, DeadlineAdmission
from green_core.testing.builders import grid_view, request_view
from green_core.testing.doubles import START_S

HOUR = 3600.0


def policy(config: GreenConfig | None = None, **params) -> DeadlineAdmission:
    built = Deadline().green_admission_policy(config or GreenConfig(), params)
    assert isinstance(built, DeadlineAdmission)
    return built


def hourly(values, now_s=START_S, valid_for_s=HOUR) -> GridView:
    """``values[0]`` now, the rest hour by hour from the end of this step."""
    start_s = now_s + valid_for_s
    return grid_view(
        values[0],
        observed_at_s=now_s,
        valid_until_s=start_s,
        forecast=tuple(ForecastPoint(start_s + i * HOUR, v) for i, v in enumerate(values[1:])),
        forecast_end_s=start_s + (len(values) - 1) * HOUR,
    )


intensities = st.floats(0.0, 1000.0)
grids = st.builds(
    hourly,
    st.lists(intensities, min_size=1, max_size=30),
    valid_for_s=st.floats(-HOUR, HOUR),
)
requests = st.builds(
    request_view,
    urgency=st.sampled_from(["interactive", "standard", "flex"]),
    now_s=st.floats(START_S, START_S + 2 * HOUR),
    deadline_s=st.none() | st.floats(START_S - HOUR, START_S + 48 * HOUR),
    estimated_run_s=st.floats(0.0, 2 * HOUR),
    running=st.integers(0, 20),
    waiting=st.integers(0, 20),
    held=st.integers(0, 5000),
)


def test_interactive_requests_never_wait():
    assert isinstance(policy()(request_view(urgency="interactive"), hourly([900, 1])), Admit)


@given(request=requests, grid=grids)
def test_a_hold_ends_in_the_future_and_never_after_the_latest_start(request, grid):
    decide = policy()
    answer = decide(request, grid)
    if isinstance(answer, Hold):
        assert math.isfinite(answer.until_s)
        assert request.now_s < answer.until_s <= decide.latest_start_s(request)
        assert answer.until_s <= request.arrival_s + AdmissionConfig().max_hold_s
        if request.deadline_s is not None:
            assert answer.until_s + 1.5 * request.estimated_run_s <= request.deadline_s


@given(request=requests, grid=grids)
def test_the_same_views_give_the_same_answer(request, grid):
    decide = policy()
    first = decide(request, grid)
    decide(msgspec.structs.replace(request, now_s=request.now_s + 500), grid)
    assert decide(request, grid) == first


@given(request=requests, grid=grids, hold_s=st.floats(0, HOUR))
def test_no_hold_is_longer_than_the_configured_bound(request, grid, hold_s):
    decide = policy(GreenConfig(admission=AdmissionConfig(max_hold_s=hold_s)))
    answer = decide(request, grid)
    if isinstance(answer, Hold):
        assert answer.until_s <= request.arrival_s + hold_s


@given(
    request=requests,
    values=st.lists(intensities, min_size=60, max_size=60),
    ahead=st.integers(0, 24),
)
def test_asked_again_at_the_end_of_each_hold_every_request_starts_in_time(request, values, ahead):
    """FIELD P8: a hold is bounded, whatever the grid does."""
    decide = policy()
    now_s = request.now_s
    latest_s = decide.latest_start_s(request)
    for _ in range(200):
        hour = int((now_s - START_S) // HOUR)
        start_s = START_S + hour * HOUR
        grid = hourly([*values, *values][hour : hour + ahead + 1], now_s=start_s)
        answer = decide(msgspec.structs.replace(request, now_s=now_s), grid)
        if isinstance(answer, Admit):
            break
        now_s = answer.until_s
    else:
        pytest.fail("still held after 200 wake-ups")
    assert now_s <= max(latest_s, request.now_s)


@given(level=intensities, request=requests, saving=st.floats(0, 0.9), hours=st.integers(1, 30))
def test_a_flat_grid_holds_no_flex_request(level, request, saving, hours):
    request = msgspec.structs.replace(request, urgency="flex")
    grid = hourly([level] * (hours + 1))
    assert isinstance(policy(min_saving=saving)(request, grid), Admit)


def test_a_signal_that_will_not_change_holds_nothing_even_without_forecast():
    grid = msgspec.structs.replace(hourly([900]), valid_until_s=math.inf)
    assert isinstance(policy()(request_view(), grid), Admit)


def test_flex_waits_for_the_cleanest_slot_that_starts_in_time():
    decide = policy()
    # The cleanest of all starts in 13 h, after the deadline; the best in time starts in 3 h.
    values = [500, 480, 400, 300, 350] + [450] * 8 + [10]
    grid = hourly(values)
    now_s, hours = START_S, 0
    while isinstance(answer := decide(request_view(now_s=now_s), grid), Hold):
        assert answer.until_s == grid.valid_until_s
        now_s, hours = answer.until_s, hours + 1
        grid = hourly(values[hours:], now_s=now_s)
    assert hours == 3


def test_a_hold_is_checked_again_when_the_grid_changes_and_ends_with_the_best_slot():
    grid = msgspec.structs.replace(hourly([500, 400, 100]), valid_until_s=START_S + 10 * HOUR)
    assert policy()(request_view(), grid).until_s == START_S + 2 * HOUR


def test_below_the_threshold_flex_starts_though_a_later_slot_is_cleaner():
    assert isinstance(policy()(request_view(), hourly([199, 50])), Admit)
    assert isinstance(policy()(request_view(), hourly([200, 50])), Hold)
    assert isinstance(policy(threshold_g_per_kwh=100)(request_view(), hourly([199, 50])), Hold)


@pytest.mark.parametrize(("later", "kind"), [(476, Admit), (474, Hold)])
def test_a_saving_below_the_asked_one_is_not_waited_for(later, kind):
    assert isinstance(policy(min_saving=0.05)(request_view(), hourly([500, later])), kind)


def test_without_a_forecast_only_the_threshold_counts():
    answer = policy()(request_view(), hourly([500]))
    assert answer == Hold(START_S + HOUR, reason="waits for the threshold")
    assert isinstance(policy()(request_view(), hourly([100])), Admit)


@pytest.mark.parametrize("deadline_s", [START_S - 1, START_S, START_S + 90, -1e9])
def test_a_past_or_near_deadline_starts_at_once(deadline_s):
    assert isinstance(policy()(request_view(deadline_s=deadline_s), hourly([900, 1])), Admit)


def test_an_unknown_run_time_is_assumed_to_be_long():
    decide = policy(unknown_run_s=600.0)
    known = decide.latest_start_s(request_view(estimated_run_s=1.0))
    assert decide.latest_start_s(request_view(estimated_run_s=0.0)) == known - 1.5 * 599.0


def test_flex_without_deadline_has_the_default_one():
    config = GreenConfig(admission=AdmissionConfig(default_deadline_s=2 * HOUR))
    assert policy(config).latest_start_s(request_view(deadline_s=None)) == START_S + 2 * HOUR - 95.0


def test_a_thousand_held_requests_do_not_all_start_in_the_last_second():
    """FIELD P10: they start one after the other, each still in time."""
    decide = policy(start_spacing_s=0.05)
    grid = msgspec.structs.replace(hourly([900]), valid_until_s=START_S)
    held, now_s, starts = 1000, START_S, []
    while held:
        answer = decide(request_view(now_s=now_s, held=held), grid)
        if isinstance(answer, Hold):
            now_s = answer.until_s
        else:
            starts.append(now_s)
            held -= 1
    assert starts[-1] - starts[0] == pytest.approx(999 * 0.05, rel=1e-3)
    assert starts[-1] <= START_S + 12 * HOUR - 1.5 * 60 - 5


def test_standard_waits_for_company_at_most_the_window():
    decide = policy()
    lone = request_view(urgency="standard", deadline_s=None)
    grid = hourly([500])
    assert decide(lone, grid) == Hold(START_S + 0.2, reason="waits for company")
    assert isinstance(decide(msgspec.structs.replace(lone, now_s=START_S + 0.2), grid), Admit)
    joined = msgspec.structs.replace(lone, running=5, waiting=3)
    assert isinstance(decide(joined, grid), Admit)
    assert isinstance(decide(lone, hourly([100])), Admit)
    assert grid.state is GridState.DIRTY


def test_a_deadline_of_a_standard_request_shortens_its_window():
    assume_s = START_S + 1.5 * 60 + 5 + 0.1
    answer = policy()(request_view(urgency="standard", deadline_s=assume_s), hourly([500]))
    assert answer.until_s == pytest.approx(START_S + 0.1)


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"min_saving": 1.0}, "min_saving"),
        ({"min_saving": -0.1}, "min_saving"),
        ({"safety": 0.5}, "safety"),
        ({"margin_s": float("nan")}, "margin_s"),
        ({"company": 0}, "company"),
        ({"threshold_g_per_kwh": float("inf")}, "threshold_g_per_kwh"),
        ({"min_savings": 0.1}, "min_savings.*min_saving"),
        ({"safety": "high"}, "safety"),
    ],
)
def test_bad_parameters_are_refused_with_their_path(params, path):
    with pytest.raises(ConfigError, match=f"policies.deadline.{path}"):
        policy(**params)


@given(values=st.lists(st.floats(200.0, 1000.0), min_size=2, max_size=12))
def test_waiting_never_ends_in_a_dirtier_hour_when_the_forecast_is_right(values):
    decide = policy(min_saving=0.0)
    assume(len(values) < 12)
    hour = 0
    for hour in range(len(values)):
        now_s = START_S + hour * HOUR
        answer = decide(request_view(now_s=now_s), hourly(values[hour:], now_s=now_s))
        if isinstance(answer, Admit):
            break
    assert values[hour] <= values[0]
    assert values[hour] == min(values)
