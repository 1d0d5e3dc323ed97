"""Each condition of the demo holds on good figures and fails on bad ones."""

from dataclasses import replace

import pytest
from greendemo import checks
from greendemo.control import Control

GOOD = Control(intensity_g_per_kwh=260.0, off_g=0.02, on_g=0.02, held_recorded=3, held_flat=0)


def judged(plan, off, on, replay, control=GOOD):
    found = checks.run_checks(plan, off, on, control, replay, clean_below=200.0)
    return {check.condition: check.holds for check in found}


def only_failure(results):
    (failed,) = [condition for condition, holds in results.items() if not holds]
    return failed


def test_a_good_run_meets_every_condition(plan, off, on, replay):
    results = judged(plan, off, on, replay)
    assert len(results) == 8
    assert all(results.values())


def test_flex_that_starts_on_a_dirty_grid_fails_the_demo(plan, off, make_arm, replay):
    early = make_arm("on", number=1, flex_starts_s=40.0)
    assert "wait while the grid is dirty" in only_failure(judged(plan, off, early, replay))


def test_flex_that_ends_after_its_deadline_fails_the_demo(plan, off, make_arm, replay):
    late = make_arm("on", number=1, flex_starts_s=66.0)
    assert "before their deadlines" in only_failure(judged(plan, off, late, replay))


def test_interactive_ttft_may_rise_by_ten_percent_and_no_more(plan, off, make_arm, replay):
    for ttft_s, holds in ((0.05, True), (0.109, True), (0.112, False)):
        on = make_arm("on", number=1, flex_starts_s=44.0, ttft_s=ttft_s)
        results = judged(plan, off, on, replay)
        assert all(results.values()) is holds
    assert "TTFT" in only_failure(results)


def test_joules_may_rise_by_two_percent_and_no_more(plan, off, make_arm, replay):
    total_j = off.account.energy_j
    for rise, holds in ((-0.1, True), (0.019, True), (0.021, False)):
        on = make_arm("on", number=1, flex_starts_s=44.0, waste_j=rise * total_j)
        assert checks.joules_stay(off, on).holds is holds


def test_grams_that_do_not_fall_fail_the_demo(plan, off, make_arm, replay):
    same = make_arm("on", number=1)
    assert not checks.grams_fall(off, same).holds


def test_a_missing_request_or_a_shorter_answer_fails_the_demo(plan, off, on, replay):
    account = on.account
    fewer = type(account)(account.start_s, account.end_s, account.rows[1:], account.intervals)
    assert not checks.same_requests(plan, off, type(on)("on", on.answers, fewer)).holds
    assert not checks.same_requests(plan[1:], off, on).holds


def test_energy_that_no_row_explains_fails_the_demo(plan, off, make_arm, replay):
    leaky = make_arm("on", number=1, flex_starts_s=44.0, spare_j=5.0)
    assert not checks.energy_adds_up(off, leaky).holds


@pytest.mark.parametrize(
    "bad",
    [
        {"on_g": 0.0193},  # a saving without the grid's help
        {"held_flat": 1},
        {"held_recorded": 2},  # a policy that holds nothing anywhere proves nothing
    ],
)
def test_a_control_that_does_not_control_fails_the_demo(bad):
    control = replace(GOOD, **bad)
    assert checks.flat_grid_saves_nothing(GOOD, 3).holds
    assert not checks.flat_grid_saves_nothing(control, 3).holds
