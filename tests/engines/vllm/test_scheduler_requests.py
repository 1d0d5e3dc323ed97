"""Requests of every sort that vLLM knows, marked and held."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from harness import STOP_TOKEN, Loop, green_scheduler, make_request, tokens
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from green_core.marks import WIRE_KEY
from green_core.testing.doubles import RecordingObserver, ScriptedClock
from green_core.testing.policies import ScriptedPolicy, hold_forever, hold_until

FLEX = {"urgency": "flex", "deadline_s": 600.0, "tenant": "blue"}


@pytest.fixture
def bench() -> Iterator[SimpleNamespace]:
    """A scheduler that holds flexible requests for 100 s of its clock."""
    clock, seen, policy = ScriptedClock(), RecordingObserver(), ScriptedPolicy(hold_forever)
    policy.rule = hold_until(clock.now() + 100.0)
    config = {"policies.observers": ["seen"], "policies.admission": "scripted"}
    plugins = {"seen": seen, "scripted": policy}
    with green_scheduler(config, plugins=plugins, clock=clock) as scheduler:
        yield SimpleNamespace(
            clock=clock,
            seen=seen,
            policy=policy,
            scheduler=scheduler,
            loop=Loop(scheduler, clock=clock),
        )


def held(bench: Any) -> int:
    return len(bench.scheduler._green_holds)


def test_pooling_requests_are_marked_and_held(bench: Any) -> None:
    """They have no sampling parameters: marks travel in their own extra arguments."""
    bench.scheduler.add_request(make_request("r", pooling=True, marks=FLEX))
    assert held(bench) == 1
    bench.clock.advance(101.0)
    bench.loop.run()
    assert bench.loop.account("r")["tenant"] == "blue"
    assert bench.loop.account("r")["output_tokens"] == 0
    assert bench.loop.account("r")["energy_j"] > 0.0


def test_parameters_of_a_kv_connector_are_kept_beside_the_account(bench: Any) -> None:
    theirs = {"remote_block_ids": [1, 2], "do_remote_prefill": True}
    ends = mock.patch.object(bench.scheduler, "_connector_finished", return_value=(False, theirs))
    with ends:
        bench.scheduler.add_request(make_request("r"))
        bench.loop.run()
    (last,) = bench.loop.ends("r")
    parameters = dict(last.kv_transfer_params)
    assert parameters.pop(WIRE_KEY)["request_id"] == "r"
    assert parameters.pop("remote_prefill_cached_tokens", 0) == 0  # vLLM's own addition
    assert parameters == {"remote_block_ids": [1, 2], "do_remote_prefill": True}
    assert WIRE_KEY not in theirs


def test_a_kv_hand_over_is_never_held(bench: Any) -> None:
    """Another engine waits for it, with blocks in its hands."""
    extra = {"kv_transfer_params": {"do_remote_decode": True}}
    bench.scheduler.add_request(make_request("r", marks=FLEX, extra=extra))
    assert held(bench) == 0
    assert not bench.policy.views


def test_a_structured_output_request_is_held_and_then_waits_for_its_grammar(bench: Any) -> None:
    schema = StructuredOutputsParams(json='{"type": "object"}')
    request = make_request("r", marks=FLEX, structured_outputs=schema)
    bench.scheduler.add_request(request)
    assert held(bench) == 1
    assert not bench.scheduler.has_requests()
    bench.clock.advance(101.0)
    bench.loop.step()
    assert request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    assert bench.scheduler.deferred_waiting == {request}
    request.structured_output_request.grammar = mock.Mock()
    bench.loop.run()
    assert len(bench.loop.text("r")) == 4
    assert bench.loop.account("r")["held_s"] >= 100.0


def test_pausing_wins_over_the_end_of_a_hold(bench: Any) -> None:
    for state in (PauseState.PAUSED_NEW, PauseState.PAUSED_ALL):
        name = state.name
        bench.policy.rule = hold_until(bench.clock.now() + 100.0)
        bench.scheduler.add_request(make_request(name, marks=FLEX))
        bench.scheduler.set_pause_state(state)
        bench.clock.advance(700.0)  # past the deadline even
        assert not bench.scheduler.has_requests()
        assert not bench.scheduler.schedule().num_scheduled_tokens
        bench.scheduler.set_pause_state(PauseState.UNPAUSED)
        bench.loop.run()
        assert len(bench.loop.text(name)) == 4


def test_aborting_all_takes_the_held_ones_too(bench: Any) -> None:
    """``finish_requests(None)`` is what vLLM calls to pause with abort and to shut down."""
    for number in range(3):
        bench.scheduler.add_request(make_request(f"held{number}", marks=FLEX))
    bench.scheduler.add_request(make_request("now", max_tokens=50))
    bench.loop.step()
    bench.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    bench.loop.run()
    assert held(bench) == 0
    assert not bench.scheduler.requests
    assert bench.scheduler.get_num_unfinished_requests() == 0
    assert not bench.scheduler.deferred_waiting
    bench.scheduler.shutdown()
    assert {record.finish_reason for record in bench.seen.records} == {"abort"}
    assert len(bench.seen.records) == 4


def test_held_requests_count_as_skipped_in_vllms_own_statistics(bench: Any) -> None:
    for number in range(3):
        bench.scheduler.add_request(make_request(f"held{number}", marks=FLEX))
    bench.scheduler.add_request(make_request("now"))
    stats = bench.scheduler.make_stats()
    assert (stats.num_waiting_reqs, stats.num_skipped_waiting_reqs) == (1, 3)
    assert bench.scheduler.get_request_counts() == (0, 4)
    assert bench.scheduler.get_num_unfinished_requests() == 4
    assert bench.scheduler.has_unfinished_requests()
    bench.clock.advance(101.0)
    bench.loop.run()
    stats = bench.scheduler.make_stats()
    assert (stats.num_waiting_reqs, stats.num_skipped_waiting_reqs) == (0, 0)


def test_the_prefix_cache_can_be_reset_while_requests_are_held(bench: Any) -> None:
    bench.scheduler.add_request(make_request("held", marks=FLEX))
    assert bench.scheduler.reset_prefix_cache()
    bench.scheduler.add_request(make_request("now", max_tokens=30))
    bench.loop.step()
    assert bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert held(bench) == 1
    bench.clock.advance(101.0)
    bench.loop.run()
    assert (len(bench.loop.text("held")), len(bench.loop.text("now"))) == (4, 30)


def test_a_session_has_an_account_for_each_turn(bench: Any) -> None:
    """Streaming input: one request id, several answers. Later turns must not be lost."""
    first = make_request("s", prompt=10, marks=FLEX, resumable=True)
    bench.scheduler.add_request(first)
    assert held(bench) == 0  # somebody is talking
    bench.loop.run()
    chunk = make_request("s", prompt=tokens("more", 12), marks=FLEX, resumable=True, max_tokens=3)
    bench.scheduler.add_request(chunk)
    bench.scheduler.add_request(make_request("other", max_tokens=3))
    bench.loop.run()
    accounts = [output.kv_transfer_params[WIRE_KEY] for output in bench.loop.ends("s")]
    assert [account["output_tokens"] for account in accounts] == [4, 3]
    assert all(account["energy_j"] > 0.0 for account in accounts)
    assert accounts[1]["prompt_tokens"] >= 10 + 12
    bench.scheduler.add_request(make_request("s"))  # the end of the session
    bench.loop.run()
    assert not bench.scheduler.requests
    bench.scheduler.shutdown()
    assert [r.request_id for r in bench.seen.records].count("s") == 2
    total_j = sum(record.energy_j for record in bench.seen.records)
    assert total_j == pytest.approx(sum(step.energy_j for step in bench.seen.steps))


def test_a_stop_string_found_by_the_front_leaves_the_newest_account_behind(bench: Any) -> None:
    """The front ends such a request itself, so each of its outputs carries the account so far."""
    bench.scheduler.add_request(make_request("r", max_tokens=50, stop=["x"], detokenize=True))
    for _ in range(3):
        bench.loop.step()
    accounts = [output.kv_transfer_params[WIRE_KEY] for output in bench.loop.outputs]
    assert [account["output_tokens"] for account in accounts] == [1, 2, 3]
    energy_j = [account["energy_j"] for account in accounts]
    assert energy_j == sorted(energy_j)
    assert energy_j[0] > 0.0
    bench.scheduler.finish_requests("r", RequestStatus.FINISHED_ABORTED)
    bench.scheduler.shutdown()
    assert bench.seen.record("r").finish_reason == "stop_string_or_abort"


def test_a_released_request_obeys_vllms_priorities() -> None:
    clock, policy = ScriptedClock(), ScriptedPolicy(hold_forever)
    policy.rule = hold_until(clock.now() + 100.0)
    with green_scheduler(
        {"policies.admission": "scripted"},
        plugins={"scripted": policy},
        clock=clock,
        policy="priority",
        max_seqs=1,
    ) as scheduler:
        loop = Loop(scheduler, clock=clock)
        scheduler.add_request(make_request("urgent", marks=FLEX, priority=-5))
        scheduler.add_request(make_request("gone", marks=FLEX, priority=-5))
        scheduler.finish_requests("gone", RequestStatus.FINISHED_ABORTED)
        scheduler.add_request(make_request("running", max_tokens=3))
        loop.step()
        for number in range(3):
            scheduler.add_request(make_request(f"later{number}"))
        policy.rule = hold_until(0.0)
        clock.advance(700.0)  # pressed by its deadline: it needs no free slot to be let go
        loop.run()
        started = list(dict.fromkeys(name for step in loop.steps for name in step))
        assert started == ["running", "urgent", "later0", "later1", "later2"]


def test_stop_tokens_are_no_stop_strings(bench: Any) -> None:
    """Only strings are looked for by the front; a token needs no account before the end."""
    bench.scheduler.add_request(make_request("r", max_tokens=9, stop_after=3))
    bench.loop.run()
    assert bench.loop.text("r")[-1] == STOP_TOKEN
    carried = [output for output in bench.loop.outputs if output.kv_transfer_params]
    assert len(carried) == 1
