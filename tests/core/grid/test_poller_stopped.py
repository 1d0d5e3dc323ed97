"""Asking a live source while processes are stopped, suspended or at odds."""

import threading
import time

import pytest
from msgspec.structs import replace

from green_core.config import CarbonConfig
from green_core.errors import SignalUnavailable
from green_core.grid import poller as poller_module
from green_core.grid.cache import Cache
from green_core.grid.poller import MOST_QUESTIONS, PATIENCE_S, Poller
from green_core.locks import FileLock
from green_core.testing.doubles import ScriptedClock
from green_core.testing.grid import ScriptedSource

CARBON = CarbonConfig(source="uk", zone="GB")
DAY_S = 86_400.0
PATIENT_S = PATIENCE_S + MOST_QUESTIONS * CARBON.timeout_s


@pytest.fixture
def clock():
    return ScriptedClock()


@pytest.fixture
def start(live_folders, clock):
    made = []

    def make(source):
        taken = []
        poller = Poller(CARBON, source, Cache(CARBON, "key"), clock=clock, take=taken.append)
        poller.taken = taken
        made.append(poller)
        return poller

    yield make
    for poller in made:
        poller.close()


def follow(follower, clock, until_s):
    """The ticks of a process that follows, up to a time."""
    while clock.now() < until_s:
        clock.advance(min(follower.tick(), until_s - clock.now() + 0.001))


def test_an_elected_process_that_is_stopped_does_not_starve_the_others(start, clock):
    """FIELD G1: SIGSTOP, a debugger, a frozen container: the lock is held and nobody asks."""
    leader, source, other = start(ScriptedSource()), ScriptedSource(), ScriptedSource()
    follower, third = start(source), start(other)
    pause_s = leader.tick()
    follower.tick()
    third.tick()
    follow(follower, clock, clock.now() + pause_s + PATIENT_S - 1)
    assert source.asked == []
    follow(follower, clock, clock.now() + 6 * 3600)
    assert 9 <= len(source.asked) <= 12  # each half hour, some minutes late
    third.tick()
    assert other.asked == []  # it reads what the other one was answered
    assert third.taken[-1] == follower.taken[-1]


def test_only_one_process_asks_in_place_of_the_stopped_one(start, clock):
    leader, source = start(ScriptedSource()), ScriptedSource()
    follower = start(source)
    clock.advance(leader.tick())
    beside = FileLock(follower._deputy.path)
    assert beside.acquire()
    follow(follower, clock, clock.now() + 2 * PATIENT_S)
    assert source.asked == []
    beside.release()
    follow(follower, clock, clock.now() + 60)
    assert len(source.asked) == 1
    assert not follower._deputy.is_held


def test_a_process_that_was_stopped_while_it_asked_undoes_nothing_newer(start, clock):
    stopped, source = ScriptedSource(), ScriptedSource()
    leader, follower = start(stopped), start(source)
    clock.advance(leader.tick() + 1)
    stopped.answers.clear()
    asking = threading.Thread(target=leader.tick)
    asking.start()
    give_up_s = time.monotonic() + 30
    while len(stopped.asked) < 2 and time.monotonic() < give_up_s:
        time.sleep(0.005)
    follow(follower, clock, clock.now() + 2 * PATIENT_S)
    assert len(source.asked) == 1
    newest = follower.taken[-1]
    stopped.answers.set()
    asking.join(30)
    assert leader.taken[-1] == newest
    assert Cache(CARBON, "key").newer_snapshot() == newest


def test_after_a_suspend_or_a_step_of_the_clock_the_service_is_asked_soon(
    start, clock, monkeypatch
):
    monkeypatch.setattr(poller_module, "LATEST_LOOK_S", 0.01)
    source = ScriptedSource()
    poller = start(source)
    assert poller.open()
    clock.advance(8 * 3600)  # the thread's own wait does not see that
    give_up_s = time.monotonic() + 30
    while len(source.asked) < 2 and time.monotonic() < give_up_s:
        time.sleep(0.005)
    assert len(source.asked) >= 2


def test_a_service_that_tells_only_old_values_gives_none(start, clock):
    source = ScriptedSource()
    fetch = source.fetch
    source.fetch = lambda now_s: replace(fetch(now_s - 10 * DAY_S), fetched_at_s=now_s)
    poller = start(source)
    poller.tick()
    assert poller.error.reason == "empty"
    assert "8 days" in str(poller.error)


def test_words_that_no_log_or_json_can_hold_are_told_harmlessly(start, clock):
    """They kept a failure from being counted and remembered, or were obeyed by a terminal."""

    class Ear:
        def signal_failed(self, error):
            heard.append(error)

    heard = []
    source = ScriptedSource()
    source.failure = SignalUnavailable("says\n\x1b[31m \ud800" + "k" * 10_000, reason="malformed")
    poller = start(source)
    poller._listener = Ear()
    assert poller.tick() <= 40
    assert [str(error) for error in heard] == [str(poller.error)]
    assert str(poller.error).startswith("says \\x1b[31m \\ud800kkk")
    assert len(str(poller.error)) <= 2_000
    assert Cache(CARBON, "key").newer_state().problem == str(poller.error)
