"""Guarantees of the power cap by grid state."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core import ConfigError, GreenConfig, LoadView
from green_core.policies.power_cap import PowerCap
from green_core.testing.builders import grid_view

CAPS = {
    "medium": {"ratio": 0.9},
    "dirty": {"power_limit_w": 400, "clock_mhz": 1200},
}


def policy(**params):
    return PowerCap().green_power_policy(GreenConfig(), params)


def load(now_s=0.0, power_limit_w=700.0):
    return LoadView(now_s, 500.0, 0.9, 0.02, 0.3, power_limit_w=power_limit_w)


def limits(plan, *intensities, step_s=60.0):
    """The limit at each intensity, asked ``step_s`` apart."""
    return [
        plan(load(i * step_s), grid_view(intensity)).power_limit_w
        for i, intensity in enumerate(intensities)
    ]


@pytest.mark.parametrize(("intensity", "limit_w"), [(50, None), (200, 630.0), (300, 400)])
def test_each_state_has_its_own_limits(intensity, limit_w):
    target = policy(**CAPS)(load(), grid_view(intensity))
    assert target.power_limit_w == limit_w
    assert target.clock_mhz == (1200 if intensity == 300 else None)


def test_by_default_only_a_dirty_grid_is_capped_and_at_a_share_of_the_operators_limit():
    assert limits(policy(), 100, 250, 350) == [None, None, pytest.approx(490)]


def test_a_share_of_an_unknown_limit_is_no_limit_and_says_so():
    target = policy()(load(power_limit_w=None), grid_view(400))
    assert target.power_limit_w is None
    assert "not known" in target.reason


def test_the_grid_getting_dirtier_counts_at_once_and_getting_cleaner_only_past_the_margin():
    plan = policy(**CAPS, margin=0.1, dwell_s=0)
    assert limits(plan, 299, 300, 299, 271, 269, 181, 179, 200) == [
        630.0, 400, 400, 400, 630.0, 630.0, None, 630.0,
    ]  # fmt: skip


@given(
    margin=st.floats(0.01, 0.5),
    swings=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50),
    threshold=st.sampled_from([200.0, 300.0]),
)
def test_a_grid_that_swings_within_the_margin_of_a_threshold_changes_the_limit_once(
    margin, swings, threshold
):
    plan = policy(**CAPS, margin=margin, dwell_s=0)
    low = max(threshold * (1 - margin), 200.0 if threshold == 300.0 else 0.0)
    band = [low + (threshold - low) * (0.01 + 0.99 * swing) for swing in swings]
    found = limits(plan, *band, step_s=1.0)
    assert sum(a != b for a, b in pairwise(found)) <= 1


@given(
    dwell_s=st.floats(1.0, 3600.0),
    steps=st.lists(st.tuples(st.floats(0.1, 600.0), st.floats(0.0, 600.0)), max_size=60),
)
def test_changes_lie_at_least_the_dwell_time_apart(dwell_s, steps):
    plan = policy(**CAPS, dwell_s=dwell_s)
    now_s, last, changed_at = 0.0, None, []
    for step_s, intensity in steps:
        now_s += step_s
        target = plan(load(now_s), grid_view(intensity)).power_limit_w
        if changed_at == [] or target != last:
            changed_at.append(now_s)
        last = target
    gaps = [b - a for a, b in pairwise(changed_at)]
    assert all(gap >= dwell_s * (1 - 1e-9) for gap in gaps)


@given(low=st.floats(0.0, 1000.0), high=st.floats(0.0, 1000.0))
def test_a_dirtier_grid_never_gets_more_power_when_the_caps_fall(low, high):
    low, high = sorted((low, high))
    less = [limits(policy(**CAPS), each)[0] or 700.0 for each in (low, high)]
    assert less[0] >= less[1]


@given(intensity=st.floats(0.0, 2000.0), ratio=st.floats(0.1, 1.0), limit_w=st.floats(50.0, 1500.0))
def test_a_share_never_exceeds_the_operators_limit(intensity, ratio, limit_w):
    plan = policy(clean={"ratio": ratio}, medium={"ratio": ratio}, dirty={"ratio": ratio})
    target = plan(load(power_limit_w=limit_w), grid_view(intensity))
    assert target.power_limit_w is None or 0 < target.power_limit_w <= limit_w


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"dirty": {"ratio": 0.05}}, "dirty.ratio"),
        ({"dirty": {"ratio": float("nan")}}, "dirty.ratio"),
        ({"clean": {"ratio": 1.1}}, "clean.ratio"),
        ({"medium": {"power_limit_w": 0}}, "medium.power_limit_w"),
        ({"medium": {"clock_mhz": 50}}, "medium.clock_mhz"),
        ({"dirty": {"ratio": 0.5, "power_limit_w": 300}}, "dirty"),
        ({"dirty": {"watts": 300}}, "dirty"),
        ({"margin": 0.9}, "margin"),
        ({"dwell_s": -1}, "dwell_s"),
        ({"filthy": {}}, "filthy"),
    ],
)
def test_bad_parameters_are_refused_with_their_path(params, path):
    with pytest.raises(ConfigError, match=f"policies.power_cap.{path}"):
        policy(**params)
