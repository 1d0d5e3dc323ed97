"""Guarantees of shadow mode."""

from __future__ import annotations

import msgspec
import pytest

from green_core import (
    Admit,
    BatchPlan,
    ForecastPoint,
    GreenConfig,
    GridState,
    Hold,
)
from green_core.policies.deadline import Deadline
from green_core.policies.shadow import Shadow, ShadowReport
from green_core.testing.builders import grid_view, request_view

HOUR = 3600.0
GRID = grid_view(
    observed_at_s=0.0,
    valid_until_s=HOUR,
    forecast=(ForecastPoint(HOUR, 350.0), ForecastPoint(2 * HOUR, 300.0)),
    forecast_end_s=3 * HOUR,
)
REQUEST = request_view(now_s=0.0, arrival_s=0.0, deadline_s=10 * HOUR)


def test_the_stock_decision_is_answered_whatever_the_policy_says():
    stock = BatchPlan(reason="stock")
    shadow = Shadow("batch", lambda queue, grid: BatchPlan(max_running=1), stock)
    assert shadow(None, GRID) is stock


def test_decisions_that_differ_only_in_their_reason_are_the_same():
    answers = iter([BatchPlan(reason="a"), BatchPlan(max_tokens=5), None, 3.0])
    shadow = Shadow("batch", lambda *views: next(answers), BatchPlan(reason="b"))
    for _ in range(4):
        shadow(None, GRID)
    assert (shadow.report().calls, shadow.report().differing) == (4, 3)


def test_a_shadowed_deadline_policy_reports_the_start_it_aims_for():
    """It re-checks hourly, but would really start in two hours at 300 instead of 400."""
    policy = Deadline().green_admission_policy(GreenConfig(), {})
    shadow = Shadow("admission", policy, Admit())
    assert shadow(REQUEST, GRID) == Admit()
    shadow(msgspec.structs.replace(REQUEST, urgency="interactive"), GRID)
    assert shadow.report() == ShadowReport(
        family="admission",
        calls=2,
        differing=1,
        held=1,
        foreseen=1,
        mean_hold_s=2 * HOUR,
        saving_ratio=pytest.approx((1 - 300 / 400) / 2),
        method="estimated",
    )


def test_a_hold_beyond_the_forecast_is_counted_but_no_saving_is_claimed():
    shadow = Shadow("admission", lambda request, grid: Hold(request.now_s + 5 * HOUR), Admit())
    shadow(REQUEST, GRID)
    report = shadow.report()
    assert (report.held, report.foreseen, report.saving_ratio) == (1, 0, 0.0)


def test_waiting_for_a_dirtier_hour_is_reported_as_a_loss():
    dirtier = msgspec.structs.replace(GRID, forecast=(ForecastPoint(HOUR, 500.0),))

    def waits(request, grid):
        return Hold(HOUR) if request.now_s < HOUR else Admit()

    shadow = Shadow("admission", waits, Admit())
    shadow(REQUEST, dirtier)
    assert shadow.report().saving_ratio == pytest.approx(-0.25)


def test_a_policy_that_looks_at_the_state_is_followed_along_the_forecast():
    def waits(request, grid):
        return Admit() if grid.state is GridState.CLEAN else Hold(request.now_s + HOUR)

    judge = GreenConfig().carbon.state
    cleaner = msgspec.structs.replace(
        GRID, state=GridState.DIRTY, forecast=(ForecastPoint(HOUR, 100.0),)
    )
    shadow = Shadow("admission", waits, Admit(), judge)
    shadow(REQUEST, cleaner)
    assert shadow.report().saving_ratio == pytest.approx(1 - 100 / 400)


@pytest.mark.parametrize("step_s", [0.0, -1.0, 1e-3])
def test_a_policy_that_never_lets_go_cannot_hang_the_shadow(step_s):
    shadow = Shadow("admission", lambda request, grid: Hold(request.now_s + step_s), Admit())
    assert shadow(REQUEST, GRID) == Admit()
    assert shadow.report().foreseen == 0


def test_an_error_of_the_policy_reaches_its_guard():
    def broken(*views):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        Shadow("admission", broken, Admit())(REQUEST, GRID)


def test_a_report_before_the_first_call_is_all_zeros():
    report = Shadow("batch", lambda *views: None, None).report()
    assert (report.calls, report.mean_hold_s, report.saving_ratio) == (0, 0.0, 0.0)
