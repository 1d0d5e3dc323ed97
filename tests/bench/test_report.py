"""The benchmark's figures follow from its windows, and its verdicts from its figures."""

import math

import pytest
from arms import MEASURE, POLICIES
from load import TokensLost, Window, check_usage
from report import GOALS, Block, control, met, ratio, summary

VIEW = "tokens_per_s"


def window(tokens_per_s: float) -> Window:
    return Window(tokens_per_s, tokens_per_s, tokens_per_s)


def block(stock: float, measure: float, policies: float, *, drift: float = 1.0) -> Block:
    """A block whose order is stock, measure, policies; each window is ``drift`` times as fast."""
    speeds = {"stock": (stock, 0, 5), "measure": (measure, 1, 4), "policies": (policies, 2, 3)}
    return Block(
        boot=0,
        windows={
            name: (window(speed * drift**first), window(speed * drift**second))
            for name, (speed, first, second) in speeds.items()
        },
    )


def test_a_machine_that_slows_down_steadily_changes_no_ratio() -> None:
    blocks = [block(100, 99, 98, drift=0.97)] * 4
    assert ratio(blocks, MEASURE, VIEW).estimate == pytest.approx(0.99)
    assert ratio(blocks, POLICIES, VIEW).estimate == pytest.approx(0.98)
    assert control(blocks, VIEW).estimate == pytest.approx(1.0)


def test_the_control_shows_noise_that_is_no_drift() -> None:
    quiet = block(100, 100, 100)
    loud = Block(0, {**quiet.windows, "stock": (window(100), window(50))})
    assert control([quiet, loud, quiet, quiet], VIEW).high > 1.5


@pytest.mark.parametrize("name", sorted(GOALS))
def test_a_goal_is_met_at_its_bound_and_not_beyond_it(name: str) -> None:
    relation, goal = GOALS[name]
    worse = goal - 0.001 if relation == ">=" else goal + 0.001
    assert met(name, goal)
    assert not met(name, worse)
    assert not met(name, math.nan)


def test_the_summary_says_what_the_issue_asks_for() -> None:
    cost = {5e-5: 0.0, 1e-4: 100.0, math.inf: 100.0}
    fields = summary(
        [block(100, 99.5, 97), block(100, 99.3, 97)], {"measure": {}, "policies": cost}
    )
    assert fields["throughput_ratio_measure"] == pytest.approx(0.994, abs=1e-4)
    assert fields["throughput_ratio_policies"] == pytest.approx(0.97, abs=1e-4)
    assert fields["step_us_p50"] == pytest.approx(75)
    assert fields["step_us_p99"] == pytest.approx(99.5)
    assert fields["goals_met"] == {
        "throughput_ratio_measure": True,
        "throughput_ratio_policies": False,
        "step_us_p50": False,
    }


def test_a_lost_token_and_a_server_of_the_other_kind_end_the_run() -> None:
    check_usage({"completion_tokens": 8}, 8, green=False)
    check_usage({"completion_tokens": 8, "green": {}}, 8, green=True)
    for usage, green in (
        ({"completion_tokens": 7}, False),
        ({}, False),
        ({"completion_tokens": 8}, True),
        ({"completion_tokens": 8, "green": {}}, False),
    ):
        with pytest.raises(TokensLost):
            check_usage(usage, 8, green=green)
