"""What the runtime makes of a signal that is not believed any more."""

import time

import pytest

from green_core import hookimpl
from green_core.config import load
from green_core.runtime import Runtime
from green_core.testing.builders import engine_info, request_view
from green_core.testing.doubles import ScriptedClock, ScriptedSignal
from green_core.values import Admit, Hold

HOLD = """
[carbon]
source = "scripted"
on_stale = "{on_stale}"
[policies]
admission = "deadline"
batch = "intensity_threshold"
"""


class Holder:
    """A policy that holds whatever it is asked."""

    @hookimpl
    def green_admission_policy(self):
        return lambda request, grid: Hold(until_s=request.now_s + 600.0)


@pytest.fixture
def start(tmp_path):
    started = []

    def start(signal, clock=None, *, on_stale="off", on_wake=lambda changed: None):
        (tmp_path / "run").mkdir()
        config = tmp_path / "green.toml"
        config.write_text(HOLD.format(on_stale=on_stale).replace("deadline", "holder"))
        runtime = Runtime(
            load(config, env={}),
            engine_info(),
            run_dir=tmp_path / "run",
            anchor_s=0.0,
            plugins={"scripted": signal, "holder": Holder()},
            clock=clock or ScriptedClock(),
            on_wake=on_wake,
        )
        started.append(runtime)
        return runtime

    yield start
    for runtime in started:
        runtime.close()


def admit(runtime):
    return runtime.admit_all([request_view(now_s=runtime.clock.now())])[0]


def test_policies_are_off_while_the_signal_is_not_believed_and_on_again_after(start):
    signal = ScriptedSignal()
    runtime = start(signal)
    assert isinstance(admit(runtime), Hold)
    assert runtime.plans
    for quality in ("stale", "fallback"):
        signal.quality = quality
        assert admit(runtime) == Admit(reason=f"signal {quality}")
        assert (runtime.plans, runtime.may_hold, runtime.decides) == (False, False, False)
    signal.quality = "fresh"
    assert isinstance(admit(runtime), Hold)
    assert runtime.plans


def test_asked_to_policies_go_on_with_the_last_value(start):
    signal = ScriptedSignal()
    signal.quality = "stale"
    runtime = start(signal, on_stale="last")
    assert isinstance(admit(runtime), Hold)


def test_held_requests_are_asked_again_when_the_grid_changes(start):
    clock, signal, woken = ScriptedClock(), ScriptedSignal(), []
    signal.valid_until_s = clock.now() + 5.0
    runtime = start(signal, clock, on_wake=woken.append)
    runtime.note_held(1)
    deadline = time.monotonic() + 30
    while True not in woken and time.monotonic() < deadline:
        clock.advance(1.0)  # the steady clock is what times are told by
        runtime.wake_at(runtime.clock.now() + 3600.0)  # looks at the clock again
        time.sleep(0.01)
    assert True in woken


def test_an_engine_without_held_requests_is_not_woken_by_the_grid(start):
    clock, signal, woken = ScriptedClock(), ScriptedSignal(), []
    signal.valid_until_s = clock.now() + 5.0
    runtime = start(signal, clock, on_wake=woken.append)
    clock.advance(60.0)
    runtime.wake_at(runtime.clock.now())
    deadline = time.monotonic() + 30
    while not woken and time.monotonic() < deadline:
        time.sleep(0.01)
    assert woken == [False]  # its own wake-up, and no change to follow


def test_losing_the_signal_is_logged_once_each_way(start, caplog):
    caplog.set_level("INFO", logger="greenserve")
    signal = ScriptedSignal()
    runtime = start(signal)
    for quality, words in (("stale", "is stale"), ("fresh", "is fresh")):
        signal.quality = quality
        for _ in range(3):
            runtime._watch.signal_changed()  # as the signal's own thread does
            runtime.wake_at(runtime.clock.now())
            time.sleep(0.05)
        deadline = time.monotonic() + 30
        while words not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
    messages = [r.message for r in caplog.records if "the carbon signal is" in r.message]
    assert len(messages) == 2, messages


def test_news_that_comes_while_the_signal_is_looked_at_still_wakes_held_requests(start):
    clock, signal, woken = ScriptedClock(), ScriptedSignal(), []
    runtime = start(signal, clock, on_wake=woken.append)
    runtime.note_held(1)
    looks, look = [], signal.next_change_s

    def next_change_s(now_s):
        looks.append(now_s)
        if len(looks) == 1:
            runtime._watch.signal_changed()  # from the signal's own thread, at this moment
        return look(now_s)

    signal.next_change_s = next_change_s
    woken.clear()
    runtime._watch.signal_changed()
    deadline = time.monotonic() + 30
    while woken.count(True) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert woken.count(True) >= 2
