"""The policy over an engine's life, and what is told of the limit that it has set."""

import math

import pytest

from green_core.config import GreenConfig, PoliciesConfig
from green_core.manager import GreenManager
from green_core.power import steering
from green_core.power.run import REST_S, PowerRun
from green_core.spec import hookimpl
from green_core.testing.builders import engine_info, grid_view
from green_core.values import LoadView, PowerTarget


class Plugin:
    @hookimpl
    def green_power_policy(self, config, params):
        return lambda view, grid: PowerTarget(power_limit_w=400.0)


class Lever:
    """Allows no less than 450 W."""

    def __init__(self, problem=""):
        self.problem = problem
        self.limit_w = 700.0
        self.set_w = None
        self.failures = 0

    def apply(self, target):
        self.set_w = None if self.problem else max(target.power_limit_w, 450.0)

    def restore(self):
        self.set_w = None

    def close(self):
        self.restore()

    def describe(self):
        return "a test"


@pytest.fixture
def run(monkeypatch):
    made = []

    def make(problem=""):
        monkeypatch.setattr(steering, "nvml_lever", lambda engine: Lever(problem))
        config = GreenConfig(policies=PoliciesConfig(power="mine"))
        made.append(PowerRun(engine_info(), lambda *trip: None))
        made[-1].follow(GreenManager(config, {"mine": Plugin()}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def steer(it, *, is_stock=False):
    load = LoadView(now_s=1000.0, power_w=500.0, utilisation=0.9, itl_s=0.02, ttft_s=0.3)
    it.steer(is_stock=is_stock, load=lambda: load, grid=grid_view())


@pytest.mark.parametrize("end", ["idle", "off", "closed"])
def test_the_limit_that_is_told_is_the_one_in_force(run, end):
    """What is set may differ from what was asked for, and is gone while the engine rests."""
    it = run()
    assert it.limit_w == 0.0
    steer(it)
    assert it.limit_w == 450.0
    if end == "idle":
        it.rest()
    elif end == "off":
        steer(it, is_stock=True)
    else:
        it.close()
    assert it.limit_w == 0.0


def test_a_lever_that_may_not_set_limits_tells_of_none(run):
    """FIELD E14."""
    it = run("no permission")
    steer(it)
    assert (it.limit_w, it.active, it.problem) == (0.0, {}, "no permission")


def test_a_short_pause_of_the_engine_does_not_take_limits_off_and_on(run):
    it = run()
    steer(it)
    assert it.rests_at_s == 1000.0 + REST_S
    it.rest()
    assert (it.rests_at_s, it.limit_w) == (math.inf, 0.0)


def test_limits_are_given_back_from_another_thread_where_the_own_one_hangs(run):
    """FIELD E15."""
    it = run()
    steer(it)
    it.close_beside()
    assert it.limit_w == 0.0
