import logging
import threading

import pytest

from green_core.guard import Guard


def _guard(policy, **kwargs):
    problems = []
    guard = Guard(
        "p",
        policy,
        stock="stock",
        valid=lambda answer: None if isinstance(answer, str) else "nonsense",
        budget_s=kwargs.pop("budget_s", 0.2),
        on_trip=problems.append,
    )
    return guard, problems


def test_a_good_policy_is_heard():
    guard, problems = _guard(lambda x: x * 2)
    assert guard.ask("a") == "aa"
    assert not problems
    guard.close()


def test_a_policy_that_raises_is_switched_off_counted_and_logged_once(caplog):
    calls = []

    def bad(x):
        calls.append(x)
        raise SystemExit("boom")

    guard, problems = _guard(bad)
    with caplog.at_level(logging.ERROR, "greenserve"):
        assert [guard.ask("a") for _ in range(3)] == ["stock"] * 3
    assert len(calls) == len(problems) == len(caplog.records) == 1
    assert "boom" in guard.tripped


def test_a_policy_that_stalls_never_holds_the_caller():
    release = threading.Event()
    guard, problems = _guard(lambda x: release.wait(30) and "late")
    assert guard.ask("a") == "stock"
    assert "within" in problems[0]
    assert guard.ask("b") == "stock"
    release.set()


def test_a_stalled_policy_beside_the_step_is_switched_off(monkeypatch):
    release = threading.Event()
    guard, problems = _guard(lambda x: release.wait(30) and "late", budget_s=0.05)
    clock = iter(range(100_000))
    monkeypatch.setattr("green_core.guard.time.monotonic", lambda: next(clock))
    answers = []
    while not problems:
        answers.append(guard.latest("a"))
    assert set(answers) == {"stock"}
    assert len(problems) == 1
    release.set()


@pytest.mark.parametrize("nonsense", [None, 3, object()])
def test_nonsense_is_not_a_decision(nonsense):
    guard, problems = _guard(lambda x: nonsense)
    assert guard.ask("a") == "stock"
    assert problems == ["answered nonsense"]


def test_latest_never_waits_and_brings_the_newest_finished_answer():
    entered, gate = threading.Event(), threading.Event()

    def policy(x):
        entered.set()
        gate.wait(30)
        return x

    guard, _ = _guard(policy, budget_s=30)
    assert guard.latest("one") == "stock"
    assert entered.wait(10)
    assert guard.latest("two") == "stock"
    gate.set()
    while (answer := guard.latest("three")) == "stock":
        pass
    assert answer in {"one", "two", "three"}
    while guard.latest("three") != "three":
        pass
    guard.close()


def test_an_idle_caller_lets_the_worker_sleep_without_a_timeout(monkeypatch):
    """FIELD P15."""
    monkeypatch.setattr("green_core.guard._FOLLOW_S", 0.001)
    guard, _ = _guard(lambda x: x)
    while guard.latest("a") != "a":
        pass
    while guard._following:
        threading.Event().wait(0.001)
    guard._offer = None
    while guard.latest("b") != "b":  # and an offer wakes it again
        pass
    guard.close()


def test_a_told_policy_that_raises_trips_too():
    tripped = threading.Event()
    guard = Guard(
        "p",
        lambda x: 1 / 0,
        stock="stock",
        valid=lambda answer: None,
        budget_s=1,
        on_trip=lambda reason: tripped.set(),
    )
    guard.tell("a")
    assert tripped.wait(5)
