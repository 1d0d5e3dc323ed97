"""``AsyncScheduler`` with run-ahead: the CPU platform forbids it in a server, so it runs here."""

from __future__ import annotations

import pytest
from harness import TOKEN, Loop, green_scheduler, make_request
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import RequestStatus

from green_core.testing.doubles import RecordingObserver
from green_core.testing.policies import ScriptedPolicy, plan
from green_core.values import QueueView

OBSERVED = {"policies.observers": ["seen"]}


def test_the_class_that_the_engine_chose_is_extended() -> None:
    """FIELD P5: the async class stays async."""
    with green_scheduler(asynchronous=True) as scheduler:
        assert isinstance(scheduler, AsyncScheduler)
        assert type(scheduler).__name__ == "GreenAsyncScheduler"


def test_placeholder_tokens_reach_no_view_no_record_and_no_answer() -> None:
    """FIELD P7: between two schedules the request carries a token that nobody has sampled yet."""
    seen, policy = RecordingObserver(), ScriptedPolicy(plan())
    config = {**OBSERVED, "policies.batch": "scripted"}
    plugins = {"seen": seen, "scripted": policy}
    with green_scheduler(config, asynchronous=True, plugins=plugins) as scheduler:
        loop = Loop(scheduler, ahead=1)
        request = make_request("r", max_tokens=6)
        scheduler.add_request(request)
        placeholders = []
        while loop.step():
            placeholders.append(request.num_output_placeholders)
        assert max(placeholders) > 0  # or this shows nothing
        assert loop.text("r") == [TOKEN] * 6
        assert loop.account("r")["output_tokens"] == 6
    assert seen.record("r").output_tokens == 6
    assert sum(share.decode_tokens for step in seen.steps for share in step.shares) == 5
    for view in policy.views:
        assert isinstance(view, QueueView)
        for share in view.last_step.shares if view.last_step else ():
            assert share.context_tokens <= 8 + 5


def test_a_step_begun_too_early_is_paid_by_the_request_that_ended() -> None:
    """The stop token comes back when the next step is already under way."""
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, asynchronous=True, plugins={"seen": seen}) as scheduler:
        loop = Loop(scheduler, ahead=1)
        scheduler.add_request(make_request("r", max_tokens=50, stop_after=3))
        loop.run()
        assert len([step for step in loop.steps if step]) == 4
        answered = loop.account("r")
        assert answered["output_tokens"] == 3
        assert not answered["settled"]  # the last step was still under way
    record = seen.record("r")
    assert record.energy_j > answered["energy_j"]
    assert record.energy_j == pytest.approx(sum(step.energy_j for step in seen.steps))


def test_an_abort_under_way_is_accounted_once_with_all_its_steps() -> None:
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, asynchronous=True, plugins={"seen": seen}) as scheduler:
        loop = Loop(scheduler, ahead=1)
        scheduler.add_request(make_request("gone", max_tokens=50))
        scheduler.add_request(make_request("stays", max_tokens=10))
        for _ in range(4):
            loop.step()
        assert loop.flying
        scheduler.finish_requests("gone", RequestStatus.FINISHED_ABORTED)
        loop.run()
    energy_j = seen.record("gone").energy_j + seen.record("stays").energy_j
    assert energy_j == pytest.approx(sum(step.energy_j for step in seen.steps))


def test_shutting_down_with_a_step_under_way_closes_its_accounts() -> None:
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, asynchronous=True, plugins={"seen": seen}) as scheduler:
        loop = Loop(scheduler, ahead=1)
        scheduler.add_request(make_request("r", max_tokens=50))
        for _ in range(4):
            loop.step()
        assert loop.flying
    assert seen.record("r").finish_reason == "shutdown"


def test_a_cache_reset_under_way_loses_no_token_and_no_account() -> None:
    """``reset_prefix_cache(reset_running_requests=True)`` preempts; stale output is dropped."""
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, asynchronous=True, plugins={"seen": seen}) as scheduler:
        loop = Loop(scheduler, ahead=1)
        scheduler.add_request(make_request("r", max_tokens=12))
        for _ in range(5):
            loop.step()
        assert scheduler.reset_prefix_cache(reset_running_requests=True)
        loop.run()
        assert len(loop.text("r")) == 12
    record = seen.record("r")
    assert record.output_tokens == 12
    assert record.energy_j == pytest.approx(sum(step.energy_j for step in seen.steps))
