import os
import threading
import time

import pytest

from green_core.energy.background import BackgroundReader


class Clock:
    def __init__(self):
        self.at_s = 1000.0

    def __call__(self):
        return self.at_s


class Slow:
    """Takes as long as the test wants; answers or raises what it is given."""

    def __init__(self):
        self.calls = 0
        self.answer = "first"
        self.go = threading.Event()
        self.go.set()

    def __call__(self):
        self.calls += 1
        assert self.go.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def eventually(condition):
    give_up_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_s, "it never came to be"
        time.sleep(0.002)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def reader(clock, slow):
    reader = BackgroundReader(slow, every_s=1.0, late_s=4.0, now_s=clock, name="test-reader")
    yield reader
    reader.close()
    slow.go.set()
    eventually(lambda: threads() == [])


def threads():
    return [each for each in threading.enumerate() if each.name == "test-reader"]


def test_nobody_waits_for_a_slow_reading(reader, slow):
    """FIELD E17: a source that hangs costs its reader nothing."""
    slow.go.clear()
    before_s = time.monotonic()
    assert [reader.read() for _ in range(100)] == [None] * 100
    assert time.monotonic() - before_s < 5.0
    assert slow.calls <= 1
    slow.go.set()
    eventually(lambda: reader.read() == "first")


def test_nothing_happens_until_somebody_asks(reader, slow, clock):
    """FIELD P15: an idle engine causes no wake-ups."""
    assert threads() == []
    assert reader.wait(30.0) == "first"
    clock.at_s += 3600.0
    time.sleep(0.05)
    assert slow.calls == 1


def test_readings_are_taken_no_more_often_than_their_period(reader, slow, clock):
    """FIELD E12."""
    reader.wait(30.0)
    for _ in range(50):
        reader.read()
    clock.at_s += 0.5
    reader.read()
    time.sleep(0.02)
    assert slow.calls == 1
    slow.answer = "second"
    clock.at_s += 0.5
    assert reader.read() == "first"
    eventually(lambda: reader.read() == "second")
    assert slow.calls == 2


def test_an_old_reading_is_none(reader, slow, clock):
    """FIELD E17, E2: what was true long ago is a gap, not a value."""
    reader.wait(30.0)
    slow.go.clear()
    clock.at_s += 5.0
    assert reader.read() == "first"
    clock.at_s += 0.1
    assert reader.read() is None


def test_a_longer_period_keeps_a_reading_good_for_longer(reader, slow, clock):
    reader.wait(30.0)
    reader.every_s = 30.0
    slow.go.clear()
    clock.at_s += 33.0
    assert reader.read() == "first"


@pytest.mark.parametrize("failure", [None, ValueError("garbled"), OSError("gone")])
def test_failures_are_gaps_with_growing_pauses_and_end(reader, slow, clock, failure):
    """FIELD E17: a source that stays away is not asked all the time."""
    reader.wait(30.0)
    slow.answer = failure
    for _ in range(600):
        calls = slow.calls
        clock.at_s += 1.0
        reader.read()
        time.sleep(0.001)
        if slow.calls > calls:
            eventually(lambda: not reader._asked)
    assert reader.read() is None
    assert 10 <= slow.calls <= 20
    assert str(reader.problem or "") in ("", "garbled", "gone")
    slow.answer = "back"
    clock.at_s += 61.0
    eventually(lambda: reader.read() == "back")
    clock.at_s += 1.0
    calls = slow.calls
    reader.read()
    eventually(lambda: slow.calls == calls + 1)


def test_closing_waits_for_nothing_and_leaves_no_thread(reader, slow):
    """FIELD P29."""
    slow.go.clear()
    reader.read()
    eventually(lambda: slow.calls == 1)
    before_s = time.monotonic()
    reader.close()
    assert time.monotonic() - before_s < 5.0
    assert reader.read() is None
    slow.go.set()
    eventually(lambda: threads() == [])
    assert reader.read() is None
    assert threads() == []


def test_a_forked_child_reads_for_itself(reader, slow):
    """FIELD P1, E16: the parent's thread is not there, and its lock may be held for ever."""
    assert reader.wait(30.0) == "first"
    reader._changed.acquire()  # as the parent's thread might at the moment of the fork
    slow.answer = "child"
    pid = os.fork()
    if pid == 0:
        give_up_s = time.monotonic() + 30
        while reader.read() != "child" and time.monotonic() < give_up_s:
            time.sleep(0.002)
        os._exit(0 if reader.read() == "child" else 1)
    reader._changed.release()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
