"""Early stops by themselves; what adapters need of them is in the contract suite."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from green_core import ConfigError, ExitNeeds, ExitReason
from green_core.exits import Exits, exit_problem, needs_of
from green_core.testing.builders import progress
from green_core.testing.policies import ScriptedExit, stop_after

STOP = ExitReason("green:scripted")


def exits(rule, *, is_stock: Callable[[], bool] = lambda: False, **kwargs) -> Exits:
    return Exits(
        "scripted",
        ScriptedExit(rule),
        shadow=False,
        budget_s=kwargs.pop("budget_s", 5.0),
        is_stock=is_stock,
        on_trip=kwargs.pop("on_trip", lambda reason: None),
    )


def until(true: Callable[[], object], what: str) -> None:
    give_up_s = time.monotonic() + 30
    while not true():
        assert time.monotonic() < give_up_s, f"never came about: {what}"
        time.sleep(0.002)


def test_what_was_said_of_a_look_is_carried_out_at_a_later_one():
    desk = exits(stop_after(20))
    key = desk.begin()
    assert desk.look(key, progress(output_tokens=20)) is None
    until(lambda: desk.look(key, progress(output_tokens=20)), "the verdict")
    desk.guard.close()


def test_a_verdict_reaches_no_other_request_even_of_the_same_id():
    desk = exits(lambda view: STOP if view.output_tokens == 20 else None)
    first, second = desk.begin(), desk.begin()
    until(lambda: desk.look(first, progress(output_tokens=20)), "the verdict")
    assert desk.look(second, progress(output_tokens=5)) is None
    desk.end(first)
    until(lambda: desk.look(first, progress(output_tokens=5)) is None, "it to be forgotten")
    desk.guard.close()


def test_while_policies_are_off_nothing_is_judged_and_old_verdicts_are_dropped():
    off = threading.Event()
    desk = exits(stop_after(1), is_stock=off.is_set)
    key = desk.begin()
    until(lambda: desk.look(key, progress()), "the verdict")
    off.set()
    until(lambda: desk.look(key, progress()) is None, "the verdict to be dropped")
    looks = desk.report().calls
    desk.look(key, progress())
    time.sleep(0.1)
    assert desk.report().calls == looks
    desk.guard.close()


def test_a_policy_that_stalls_holds_nobody_up_and_is_switched_off():
    """FIELD P9."""
    gone, reasons = threading.Event(), []
    desk = exits(lambda view: gone.wait(60), budget_s=0.06, on_trip=reasons.append)
    key, slowest_s = desk.begin(), 0.0

    def tripped() -> bool:
        nonlocal slowest_s
        started_s = time.perf_counter()
        assert desk.look(key, progress()) is None
        slowest_s = max(slowest_s, time.perf_counter() - started_s)
        return bool(reasons)

    until(tripped, "the trip")
    assert slowest_s < 5.0  # never as long as it stalls
    assert not desk.wants("flex", True)
    gone.set()


@pytest.mark.parametrize(
    "answer", ["stop", 1, ExitReason("because"), ExitReason("green:"), ExitReason("green:A b")]
)
def test_what_is_no_reason_is_told(answer):
    assert exit_problem(answer) is not None
    assert exit_problem(STOP) is None


def test_who_is_looked_at_is_said_by_the_client_then_by_the_class():
    desk = exits(stop_after(1))
    desk.needs = ExitNeeds(classes=("flex",))
    assert desk.wants("flex", None)
    assert not desk.wants("flex", False)
    assert not desk.wants("interactive", None)
    assert desk.wants("interactive", True)
    desk.guard.close()


@pytest.mark.parametrize(
    "needs",
    [
        "much",
        ExitNeeds(every_tokens=0),
        ExitNeeds(window_tokens=0),
        ExitNeeds(every_tokens=2.5),  # type: ignore[arg-type]
        ExitNeeds(window_tokens="5"),  # type: ignore[arg-type]
        ExitNeeds(classes=None),  # type: ignore[arg-type]
        ExitNeeds(classes=("rush",)),  # type: ignore[arg-type]
    ],
)
def test_needs_that_make_no_sense_stop_the_start(needs):
    with pytest.raises(ConfigError, match=r"policies\.exit"):
        needs_of("scripted", ScriptedExit(stop_after(1), needs))
