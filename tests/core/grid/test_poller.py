"""Asking a live source: how often, by whom, and what happens when it fails."""

import logging
import os
import threading
import time

import pytest

from green_core.config import CarbonConfig
from green_core.errors import SIGNAL_REASONS, SignalUnavailable
from green_core.grid.cache import Cache
from green_core.grid.poller import LONGEST_PAUSE_S, PERMANENT_PAUSE_S, REPEAT_S, Poller
from green_core.locks import FileLock
from green_core.testing.doubles import ScriptedClock
from green_core.testing.grid import ScriptedSource

PERMANENT = [r for r in SIGNAL_REASONS if SignalUnavailable("", reason=r).is_permanent]
PASSING = [r for r in SIGNAL_REASONS if r not in PERMANENT]


class Ear:
    def __init__(self):
        self.heard = []

    def signal_changed(self):
        self.heard.append("changed")

    def signal_fetched(self):
        self.heard.append("fetched")

    def signal_failed(self, error):
        self.heard.append(error.reason)


@pytest.fixture
def start(live_folders):
    """Makes pollers, by default on one clock and one source, and closes them."""
    made = []

    def make(source, clock, listener=None, **carbon):
        config = CarbonConfig(source="uk", zone="GB", **carbon)
        taken = []
        poller = Poller(
            config,
            source,
            Cache(config, "key"),
            clock=clock,
            take=taken.append,
            listener=listener,
        )
        poller.taken = taken
        made.append(poller)
        return poller

    yield make
    for poller in made:
        poller.close()


@pytest.fixture
def clock():
    return ScriptedClock()


@pytest.fixture
def source():
    return ScriptedSource()


def wait_for(condition):
    give_up_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_s, "gave up waiting"
        time.sleep(0.005)


def fail(source, reason, **fields):
    source.failure = SignalUnavailable("the service says no", reason=reason, **fields)


def test_a_source_is_asked_once_in_its_own_period(start, clock, source):
    """FIELD G1."""
    poller = start(source, clock)
    pause_s = poller.tick()
    assert 1800 <= pause_s <= 1800 * 1.1
    clock.advance(1700)
    assert 0 < poller.tick() <= pause_s - 1700 + 0.001
    assert len(source.asked) == 1
    clock.advance(pause_s - 1700 + 0.001)
    poller.tick()
    assert len(source.asked) == 2


def test_the_configured_period_wins(start, clock, source):
    assert 60 <= start(source, clock, poll_s=60.0).tick() <= 66


def test_a_restart_or_a_second_process_uses_what_is_cached(start, clock, source):
    """FIELD G1: a command in a loop asks the service once."""
    first = start(source, clock)
    first.tick()
    beside = start(source, clock)
    assert beside.tick() > 1700  # the lock is held
    first.close()
    for _ in range(5):
        again = start(source, clock)
        again.tick()
        again.close()
    assert len(source.asked) == 1
    assert beside.taken == again.taken == first.taken


def test_a_follower_takes_each_newer_answer_and_says_so(start, clock, source):
    ear, loud = Ear(), Ear()
    leader, follower = start(source, clock, loud), start(source, clock, ear)
    clock.advance(leader.tick() + 1)
    follower.tick()
    leader.tick()
    follower.tick()
    assert len(follower.taken) == 2
    assert ear.heard == ["changed"] * 2
    assert loud.heard == ["changed", "fetched"] * 2


def test_a_follower_whose_leader_is_late_looks_less_and_less_often(start, clock, source):
    leader, follower = start(source, clock), start(source, clock)
    clock.advance(leader.tick() + 1)
    pauses = [follower.tick() for _ in range(10)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (4.0, 60.0)


@pytest.mark.parametrize("reason", PASSING)
def test_pauses_after_a_passing_failure_grow_to_a_quarter_of_an_hour(start, clock, source, reason):
    """FIELD G1."""
    fail(source, reason)
    poller = start(source, clock)
    pauses = []
    for _ in range(12):
        pauses.append(poller.tick())
        clock.advance(pauses[-1] + 0.001)
    assert len(source.asked) == 12
    assert pauses[0] <= 40 or reason == "rate_limited"
    assert LONGEST_PAUSE_S * 0.75 <= pauses[-1] <= LONGEST_PAUSE_S * 1.25
    assert len(set(pauses)) == 12  # jittered


@pytest.mark.parametrize("reason", PERMANENT)
def test_a_failure_of_the_set_up_is_not_asked_again_for_half_an_hour(start, clock, source, reason):
    """FIELD G1: a bad token does not spam."""
    fail(source, reason)
    assert start(source, clock).tick() >= PERMANENT_PAUSE_S


@pytest.mark.parametrize("reason", ["rate_limited", "server_error", "auth"])
def test_the_pause_that_the_service_asks_for_is_kept(start, clock, source, reason):
    fail(source, reason, retry_after_s=5000.0)
    assert 5000 <= start(source, clock).tick() <= 6000
    assert source.asked


def test_an_absurd_pause_is_cut_to_a_day(start, clock, source):
    fail(source, "rate_limited", retry_after_s=1e12)
    assert start(source, clock).tick() <= 86_400 * 1.05


def test_back_off_outlives_the_process(start, clock, source):
    """FIELD G1: a command in a loop does not hammer a service that fails."""
    fail(source, "timeout")
    for _ in range(20):
        poller = start(source, clock)
        poller.tick()
        poller.close()
        clock.advance(1)
    assert len(source.asked) == 1
    assert poller.error.reason == "timeout"
    assert str(poller.error) == "the service says no"


def test_after_a_failure_of_the_set_up_a_new_process_asks_again_after_a_minute(
    start, clock, source
):
    fail(source, "forbidden")
    for _ in range(2):
        for _ in range(3):
            poller = start(source, clock)
            poller.tick()
            poller.close()
            assert poller.error.reason == "forbidden"
        clock.advance(REPEAT_S)
    assert len(source.asked) == 2


def test_a_recovery_ends_the_back_off(start, clock, source):
    fail(source, "network")
    poller = start(source, clock)
    for _ in range(5):
        clock.advance(poller.tick() + 0.001)
    source.failure = None
    assert poller.tick() >= 1800
    assert poller.error is None
    fail(source, "network")
    clock.advance(2000)
    assert poller.tick() <= 40


def test_each_kind_of_failure_is_logged_once_and_so_is_the_recovery(start, clock, source, caplog):
    caplog.set_level(logging.INFO, "greenserve")
    poller = start(source, clock)
    poller.open()
    wait_for(lambda: source.asked)
    for reason in ("timeout", "malformed", "timeout", "auth", "malformed"):
        fail(source, reason)
        clock.advance(90_000)
        poller.tick()
    source.failure = None
    clock.advance(90_000)
    poller.tick()
    clock.advance(90_000)
    poller.tick()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    for line, reason in zip(lines, ("timeout", "malformed", "auth"), strict=False):
        assert f"({reason}): the service says no" in line
    assert "answers again" in lines[3]


def test_a_reader_that_breaks_is_a_failure_and_its_words_are_kept_back(
    start, clock, source, caplog
):
    source.failure = KeyError("secret-token")
    ear = Ear()
    poller = start(source, clock, ear)
    poller.tick()
    assert poller.error.reason == "malformed"
    assert "KeyError" in str(poller.error)
    assert "secret" not in str(poller.error) + caplog.text
    assert ear.heard == ["malformed"]


def test_values_of_another_kind_are_a_failure_and_never_cached(start, clock):
    """FIELD G12."""
    poller = start(ScriptedSource(kind="marginal"), clock)
    poller.tick()
    assert (poller.error.reason, poller.taken) == ("kind", [])
    again = start(ScriptedSource(), clock)
    again.tick()
    assert again.taken == []


def test_a_listener_that_raises_changes_nothing(start, clock, source):
    class Deaf:
        def __getattr__(self, name):
            raise ZeroDivisionError

    poller = start(source, clock, Deaf())
    assert poller.tick() >= 1800
    assert len(poller.taken) == 1


def test_a_cache_that_cannot_be_written_costs_the_others_but_not_this_process(
    start, clock, source, live_folders, monkeypatch
):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    poller = start(source, clock)
    pause_s = poller.tick()
    assert len(poller.taken) == 1
    clock.advance(pause_s / 2)
    poller.tick()
    assert len(source.asked) == 1


def test_values_that_were_deleted_are_asked_for_again(start, clock, source, live_folders):
    start(source, clock).tick()
    for path in live_folders.iterdir():
        if ".state." not in path.name:
            path.unlink()
    (live_folders / "carbon-key.json").write_text("damaged")
    beside = start(ScriptedSource(), clock)
    assert beside.tick() <= 60  # a follower does not sleep on the state alone
    assert beside.taken == []
    beside._lock = FileLock(beside._lock.path.with_suffix(".other"))  # the leader is gone
    beside.tick()
    assert len(beside.taken) == 1


def test_a_lock_folder_that_was_cleaned_up_is_made_again(start, clock, source, tmp_path):
    poller = start(source, clock)
    for path in (tmp_path / "run" / "greenserve").iterdir():
        path.unlink()
    (tmp_path / "run" / "greenserve").rmdir()
    poller.tick()
    assert source.asked


@pytest.mark.parametrize("step_s", [86_400.0, -86_400.0])
def test_a_step_of_the_wall_clock_neither_stops_nor_hurries_polling_for_long(
    start, clock, source, step_s
):
    poller = start(source, clock)
    poller.tick()
    clock.step_wall(step_s)
    poller.tick()
    assert len(source.asked) == 2  # once more, to hear what time it is
    clock.advance(60)
    assert poller.tick() > 1700
    assert len(source.asked) == 2


def test_close_ends_the_thread_and_gives_back_source_and_lock(start, clock, source):
    poller = start(source, clock)
    assert poller.open()
    poller.close()
    poller.close()
    assert source.is_closed
    assert not [t for t in threading.enumerate() if t.name == "green-carbon"]
    other = start(ScriptedSource(), clock)
    other.tick()
    assert other._lock.is_held


def test_a_poller_that_never_started_gives_back_its_source(start, clock, source):
    start(source, clock).close()
    assert source.is_closed


def test_close_does_not_wait_for_a_service_that_hangs(start, clock, source, caplog):
    """FIELD P29: within two seconds, and the next process need not wait either."""
    source.answers.clear()
    poller = start(source, clock, timeout_s=0.05)
    assert not poller.open()
    began_s = time.monotonic()
    poller.close()
    assert time.monotonic() - began_s < 20
    other = start(ScriptedSource(), clock)
    other.tick()
    assert len(other.taken) == 1
    source.answers.set()  # too late: its answer is dropped
    wait_for(lambda: source.is_closed)
    assert poller.taken == []


def test_waiting_for_the_first_answer_is_bounded(start, clock, source):
    source.answers.clear()
    poller = start(source, clock, timeout_s=0.2)
    began_s = time.monotonic()
    assert not poller.open()
    assert 0.2 <= time.monotonic() - began_s < 20
    source.answers.set()
    wait_for(lambda: poller.taken)


def test_a_second_process_waits_for_the_first_ones_answer(start, clock, source):
    source.answers.clear()
    leader, follower = start(source, clock), start(ScriptedSource(), clock)
    opening = [threading.Thread(target=poller.open) for poller in (leader, follower)]
    opening[0].start()
    wait_for(lambda: source.asked)
    opening[1].start()
    source.answers.set()
    for thread in opening:
        thread.join(30)
    assert len(follower.taken) == 1
    assert follower._source.asked == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_neither_polls_nor_holds_the_lock_nor_hangs(start, clock, source):
    poller = start(source, clock)
    poller.open()
    child = os.fork()
    if child == 0:
        poller.close()
        os._exit(0 if not source.is_closed and not poller._lock.is_held else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert poller._thread.is_alive()
