"""The loop between a power policy and a lever."""

import threading

import pytest

from green_core.config import GreenConfig, PoliciesConfig
from green_core.manager import GreenManager
from green_core.power.lever import InertLever
from green_core.power.steering import PowerSteering, build_steering
from green_core.spec import hookimpl
from green_core.testing.builders import engine_info, grid_view
from green_core.values import LoadView, PowerTarget

LOW = PowerTarget(power_limit_w=400.0, reason="low")


class Lever:
    """Notes what it is told."""

    def __init__(self):
        self.problem = ""
        self.limit_w = 700.0
        self.set_w = None
        self.failures = 0
        self.told = []

    def apply(self, target):
        self.told.append(target.power_limit_w or target.clock_mhz)

    def restore(self):
        self.told.append("restore")

    def close(self):
        self.told.append("close")

    def describe(self):
        return "a test"


def load(now_s=0.0):
    return LoadView(now_s=now_s, power_w=500.0, utilisation=0.9, itl_s=0.02, ttft_s=0.3)


@pytest.fixture
def steer():
    made = []

    def make(policy, lever=None, **options):
        made.append(PowerSteering(policy, lever or Lever(), **options))
        return made[-1]

    yield make
    for steering in made:
        steering.close()


def test_a_policy_is_asked_at_most_once_per_period(steer):
    asked = []
    it = steer(lambda view, grid: asked.append(view.now_s) or LOW, period_s=1.0)
    for tenth in range(31):
        it.control(load(1000.0 + tenth / 10), grid_view())
    assert asked == pytest.approx([1000.0, 1001.0, 1002.0, 1003.0])


def test_only_changes_reach_the_lever(steer):
    answers = [LOW, LOW, PowerTarget(power_limit_w=400.0, reason="other words"), PowerTarget(), LOW]
    it = steer(lambda view, grid: answers[int(view.now_s)])
    for now_s in range(5):
        it.control(load(now_s), grid_view())
    assert it.lever.told == [400.0, None, 400.0]
    assert it.target == LOW


def test_a_policy_is_told_the_operators_limit(steer):
    seen = []
    it = steer(lambda view, grid: seen.append(view.power_limit_w) or LOW)
    it.control(load(), grid_view())
    assert seen == [700.0]


def raising(view, grid):
    raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    "policy",
    [
        raising,
        lambda view, grid: None,
        lambda view, grid: 400.0,
        lambda view, grid: PowerTarget(power_limit_w=float("nan")),
        lambda view, grid: PowerTarget(power_limit_w=-1.0),
        lambda view, grid: PowerTarget(power_limit_w="400"),
        lambda view, grid: PowerTarget(clock_mhz=0),
        lambda view, grid: PowerTarget(clock_mhz=1200.5),
    ],
)
def test_a_policy_that_fails_is_switched_off_and_the_limits_come_back(steer, policy):
    reasons = []
    good = True

    def changing(view, grid):
        return LOW if good else policy(view, grid)

    it = steer(changing, on_trip=reasons.append)
    it.control(load(0.0), grid_view())
    good = False
    it.control(load(1.0), grid_view())
    assert it.lever.told[0] == 400.0
    assert it.lever.told[-1] == "restore"
    assert not it.active
    assert it.target is None
    assert len(reasons) == 1
    assert reasons[0] in it.problem
    told = len(it.lever.told)
    it.control(load(2.0), grid_view())
    assert len(it.lever.told) == told


def test_a_policy_that_stalls_is_switched_off(steer):
    gone = threading.Event()
    it = steer(lambda view, grid: gone.wait() and LOW, budget_s=0.05)
    it.control(load(), grid_view())
    gone.set()
    assert not it.active
    assert "did not answer" in it.problem
    assert it.lever.told == ["restore"]


def test_a_lever_that_raises_never_reaches_the_caller(steer):
    lever = Lever()
    lever.apply = lambda target: raising(None, None)
    it = steer(lambda view, grid: LOW, lever)
    it.control(load(), grid_view())
    assert not it.active
    lever.restore = lambda: raising(None, None)
    it.restore()


def test_an_idle_engine_has_the_operators_limits_until_it_works_again(steer):
    it = steer(lambda view, grid: LOW)
    it.control(load(0.0), grid_view())
    it.idle()
    it.control(load(0.5), grid_view())
    it.control(load(1.0), grid_view())
    assert it.lever.told == [400.0, "restore", 400.0]


def test_an_inert_lever_leaves_the_policy_asked_but_not_active(steer):
    """FIELD E14: measure only, and say so."""
    it = steer(lambda view, grid: LOW, InertLever("no permission"))
    it.control(load(), grid_view())
    assert (it.active, it.problem, it.target) == (False, "no permission", LOW)


def test_closing_restores_through_the_lever(steer):
    it = steer(lambda view, grid: LOW)
    it.close()
    assert it.lever.told == ["close"]


class Plugin:
    @hookimpl
    def green_power_policy(self, config, params):
        return lambda view, grid: LOW


def built(**policies):
    config = GreenConfig(policies=PoliciesConfig(**policies))
    return build_steering(GreenManager(config, {"mine": Plugin()}), engine_info(device="cpu"))


@pytest.mark.parametrize("policies", [{}, {"power": "mine", "enabled": False}])
def test_nothing_is_steered_unless_asked_for(policies):
    assert built(**policies) is None


@pytest.mark.parametrize(
    ("policies", "words"),
    [({}, "no lever for cpu"), ({"shadow": ("power",)}, "policies.shadow")],
)
def test_what_keeps_a_chosen_policy_from_steering_is_said(policies, words):
    it = built(power="mine", **policies)
    it.control(load(), grid_view())
    assert words in it.problem
    assert (it.name, it.target) == ("mine", LOW)
    it.close()
