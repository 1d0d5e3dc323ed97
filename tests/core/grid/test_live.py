"""The signal of a live source, on a clock that a test moves."""

import math
import time

import pytest

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.live import LiveSignal
from green_core.grid.signal import CarbonSignal
from green_core.testing.doubles import ScriptedClock
from green_core.testing.grid import ScriptedSource, by_slot

HALF_HOUR = 1800.0
DAY = 86_400.0


@pytest.fixture
def clock():
    return ScriptedClock()


@pytest.fixture
def source():
    return ScriptedSource()


@pytest.fixture
def live(live_folders, clock, source):
    """Makes signals; nothing runs, a test calls ``poller.tick()`` itself."""
    made = []

    def make(service=source, **carbon):
        config = CarbonConfig(**{"source": "uk", "zone": "GB", **carbon})
        signal = LiveSignal(config, service, clock=clock)
        made.append(signal)
        return signal

    yield make
    for signal in made:
        signal.close()


def present(clock, offset_s=0.0):
    """What the service says for the wall clock's present slot."""
    return by_slot((clock.wall() + offset_s) // HALF_HOUR * HALF_HOUR)


def fail(source, reason="timeout"):
    source.failure = SignalUnavailable("no answer", reason=reason)


def test_it_keeps_the_contract_of_a_signal(live):
    assert isinstance(live(), CarbonSignal)


def test_a_view_carries_the_value_and_where_it_comes_from(live, clock, source):
    source.renewable_ratio = 0.61
    signal = live()
    signal.poller.tick()
    view = signal.view(clock.now())
    start_s = clock.now() // HALF_HOUR * HALF_HOUR
    assert view.intensity_g_per_kwh == signal.intensity_at(clock.now()) == present(clock)
    assert (view.kind, view.basis, view.zone) == ("average", "lifecycle", "GB")
    assert (view.observed_at_s, view.valid_until_s) == (start_s, start_s + HALF_HOUR)
    assert signal.next_change_s(clock.now()) == view.valid_until_s
    assert (view.quality, view.is_estimate) == ("fresh", False)
    assert (view.licence, view.renewable_ratio) == ("CC0", 0.61)
    assert view.source.startswith("scripted service; forecast:")
    assert signal.problem == ""


def test_within_a_slot_the_same_view_is_answered(live, clock):
    signal = live()
    signal.poller.tick()
    assert signal.view(clock.now()) is signal.view(clock.now() + 1)


def test_never_heard_is_the_zones_yearly_average_and_says_so(live, clock, source):
    """FIELD G1: no silent fallback."""
    fail(source)
    signal = live()
    signal.poller.tick()
    view = signal.view(clock.now())
    assert (view.quality, view.is_estimate, view.zone) == ("fallback", True, "GB")
    assert view.intensity_g_per_kwh == signal.intensity_at(0.0) > 100
    assert "static table: Ember" in view.source
    assert "never heard" in view.source
    assert signal.problem == "no answer (timeout)"


@pytest.mark.parametrize("zone", ["", "Atlantis"])
def test_never_heard_in_an_unknown_place_is_the_worlds_average_and_says_so(live, zone):
    """FIELD G2: a place is never guessed."""
    view = live(source="prometheus", zone=zone).view(0.0)
    assert (view.zone, view.quality) == ("world", "fallback")
    assert "world average" in view.source


def test_an_average_that_stands_in_for_marginal_values_is_called_an_average(live):
    """FIELD G12."""
    assert live(kind="marginal").view(0.0).kind == "average"


def die(source):
    fail(source)


def garble(source):
    source.value = lambda start_s: math.nan


def break_the_reader(source):
    source.failure = IndexError("list index out of range")


def recover(source):
    source.failure, source.value = None, by_slot


@pytest.mark.parametrize("harm", [die, garble, break_the_reader])
def test_a_service_that_fails_is_kept_then_stale_then_fresh_again(live, clock, source, harm):
    signal = live(stale_after_s=3 * HALF_HOUR)
    signal.poller.tick()
    last = signal.view(clock.now()).intensity_g_per_kwh
    harm(source)
    qualities = []
    for _ in range(5):
        clock.advance(HALF_HOUR * 1.2)
        signal.poller.tick()
        view = signal.view(clock.now())
        qualities.append(view.quality)
        assert (view.intensity_g_per_kwh, view.is_estimate) == (last, True)
    assert qualities == ["fresh", "fresh", "stale", "stale", "stale"]
    assert signal.problem
    recover(source)
    clock.advance(HALF_HOUR)
    signal.poller.tick()
    view = signal.view(clock.now())
    assert (view.quality, view.intensity_g_per_kwh) == ("fresh", present(clock))
    assert signal.problem == ""


def test_history_gathers_in_memory_and_over_restarts(live, clock, source):
    source.back = 1
    for _ in range(60):  # 30 hours
        signal = live()
        signal.poller.tick()
        signal.close()
        clock.advance(HALF_HOUR * 1.11)
    signal = live()
    signal.poller.tick()
    ahead = signal.view(clock.now()).forecast
    assert len(ahead) == 48
    day_before = [by_slot(p.start_s - DAY) for p in ahead]
    assert [p.intensity_g_per_kwh for p in ahead] == day_before


@pytest.mark.parametrize("step_s", [DAY, -DAY, 3600.0, -3600.0])
def test_a_stepped_wall_clock_is_mended_by_the_next_answer(live, clock, source, step_s):
    """FIELD G8: the runtime's clock does not follow the step; the values do."""
    source.ahead = 8
    signal = live()
    signal.poller.tick()
    before = signal.view(clock.now())
    clock.step_wall(step_s)
    assert signal.view(clock.now()) is before
    clock.advance(HALF_HOUR * 1.2)
    signal.poller.tick()
    view = signal.view(clock.now())
    assert (view.intensity_g_per_kwh, view.quality) == (present(clock), "fresh")
    assert clock.now() - HALF_HOUR < view.observed_at_s <= clock.now() < view.valid_until_s
    assert view.forecast[0].start_s == view.valid_until_s
    assert view.forecast[0].intensity_g_per_kwh == present(clock, HALF_HOUR)


def test_a_cache_from_the_future_is_not_taken_for_fresh(live, clock, source):
    first = live(stale_after_s=3600.0)
    first.poller.tick()
    first.close()
    clock.step_wall(-DAY)
    fail(source)
    signal = live(stale_after_s=3600.0)
    signal.poller.tick()
    assert len(source.asked) == 2
    assert signal.view(clock.now()).quality == "stale"
    source.failure = None
    clock.advance(60)
    signal.poller.tick()
    view = signal.view(clock.now())
    assert (view.quality, view.intensity_g_per_kwh) == ("fresh", present(clock))


def test_slewing_by_ntp_moves_no_edge(live, clock):
    signal = live()
    for _ in range(5):
        clock.advance(signal.poller.tick() + 0.001)
        clock.step_wall(0.07)
        signal.poller.tick()
        assert signal.view(clock.now()).valid_until_s % HALF_HOUR == 0


@pytest.mark.parametrize("day", [1_743_292_800.0, 1_761_436_800.0])
def test_hours_that_a_change_of_clocks_skips_or_repeats_are_nothing_special(live_folders, day):
    """FIELD G8: all is UTC inside; 30 March and 26 October 2025 in Europe."""
    config = CarbonConfig(source="uk", zone="GB")
    signal = LiveSignal(config, ScriptedSource(ahead=60), clock=ScriptedClock(day))
    signal.poller.tick()
    starts = [point.start_s for point in signal.view(day).forecast]
    signal.close()
    assert starts == [day + HALF_HOUR * n for n in range(1, 49)]


def test_a_follower_knows_the_leaders_problem(live, clock, source):
    leader, follower = live(), live(ScriptedSource())
    fail(source, "server_error")
    leader.poller.tick()
    follower.poller.tick()
    assert follower.problem == leader.problem == "no answer (server_error)"
    source.failure = None
    clock.advance(60)
    leader.poller.tick()
    follower.poller.tick()
    assert follower.problem == ""
    assert follower.view(clock.now()) == leader.view(clock.now())


@pytest.mark.parametrize(
    ("carbon", "words"),
    [
        ({"kind": "marginal"}, "no marginal values"),
        ({"zone": "Atlantis"}, "no zone 'Atlantis'"),
        ({"basis": "direct"}, "lifecycle basis"),
    ],
)
def test_a_yearly_average_that_would_not_compare_is_refused_at_the_start(live, carbon, words):
    """FIELD G12."""
    with pytest.raises(ConfigError, match=rf"carbon.on_stale.*{words}.*off"):
        live(on_stale="static", **carbon)


def test_after_close_the_last_views_stay(live, clock):
    signal = live()
    signal.open()
    signal.close()
    assert signal.view(clock.now()).intensity_g_per_kwh == present(clock)


def test_asking_never_waits_for_a_service_that_hangs(live, clock, source):
    source.answers.clear()
    signal = live(timeout_s=0.05)
    signal.open()
    began_s = time.monotonic()
    for _ in range(100):
        signal.view(clock.now())
        signal.intensity_at(clock.now())
    assert time.monotonic() - began_s < 20
    assert math.isinf(signal.next_change_s(clock.now()))
    source.answers.set()
