"""Guarantees of the published threshold rule."""

from __future__ import annotations

import pytest

from green_core import BatchPlan, ConfigError, GreenConfig, GridState
from green_core.policies.intensity_threshold import IntensityThreshold
from green_core.testing.builders import grid_view, queue_view


def plan(intensity: float, engine_max: int = 256, **params) -> BatchPlan:
    grid = grid_view(intensity, state=GridState.CLEAN)
    queue = queue_view(engine_max_running=engine_max)
    return IntensityThreshold().green_batch_policy(GreenConfig(), params)(queue, grid)


@pytest.mark.parametrize(("intensity", "limit"), [(0, 32), (199.9, 32), (200, 16), (900, 16)])
def test_batches_are_bigger_below_the_threshold(intensity, limit):
    assert plan(intensity).max_running == limit
    assert plan(intensity).max_tokens is None


def test_the_engines_own_limit_is_never_raised():
    """FIELD P22."""
    assert plan(100, engine_max=32).max_running is None
    assert plan(100, engine_max=8).max_running is None
    assert plan(300, engine_max=32).max_running == 16


def test_all_three_numbers_are_parameters():
    params = {"threshold_g_per_kwh": 50, "clean_running": 9, "dirty_running": 4}
    assert [plan(i, **params).max_running for i in (49, 50)] == [9, 4]


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"clean_running": 0}, "clean_running"),
        ({"dirty_running": -1}, "dirty_running"),
        ({"threshold_g_per_kwh": float("nan")}, "threshold_g_per_kwh"),
        ({"limit": 3}, "limit"),
    ],
)
def test_bad_parameters_are_refused_with_their_path(params, path):
    with pytest.raises(ConfigError, match=f"policies.intensity_threshold.{path}"):
        plan(100, **params)
