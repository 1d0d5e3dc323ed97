"""Early stops in vLLM's own scheduler: who is never stopped, and what stays unseen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from harness import LOGPROB, TOKEN, VARIED, Loop, green_scheduler, make_request
from hypothesis import given
from hypothesis import strategies as st
from vllm.reasoning.deepseek_r1_reasoning_parser import DeepSeekR1ReasoningParser
from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams
from vllm.v1.core.sched.utils import check_sequence_repetition
from vllm.v1.outputs import LogprobsLists

from green_core import ConfigError, ExitNeeds
from green_core.activation import run_dir
from green_core.exits import Exits
from green_core.policies.token_stop import TokenStop, ends_in_loop
from green_core.switch import set_off
from green_core.testing.policies import ScriptedExit, stop_after
from vllm_green.stopping import Stopper
from vllm_green.thinking import Thinking

ASKED = {"stop": True}
TOKEN_STOP = {"policies.exit": "token_stop"}
THINK, DONE = 1, 2


@pytest.fixture(params=[0, 1], ids=["sync", "async"])
def bench(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A scheduler with the policy that users choose; ``run`` gives it time to answer."""
    ahead = request.param
    plugins = {"token_stop": TokenStop()}
    with green_scheduler(TOKEN_STOP, asynchronous=ahead > 0, plugins=plugins) as scheduler:
        loop = Loop(scheduler, ahead=ahead)
        yield SimpleNamespace(scheduler=scheduler, loop=loop, run=lambda: run(loop))


def run(loop: Loop) -> None:
    """Step until idle, no faster than a small model would."""
    while loop.step():
        time.sleep(0.003)


def until(true: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + 30
    while not true():
        assert time.monotonic() < give_up_s
        time.sleep(0.002)


def asking(request_id: str, **kwargs: Any) -> Any:
    options = {"marks": ASKED, "max_tokens": 300, "ignore_eos": False, **kwargs}
    return make_request(request_id, **options)


def stopped(bench: Any, request_id: str) -> tuple[str, Any, int]:
    (end,) = bench.loop.ends(request_id)
    return str(end.finish_reason), end.stop_reason, len(bench.loop.text(request_id))


def test_a_loop_ends_with_a_reason_of_its_own(bench: Any) -> None:
    bench.scheduler.add_request(asking("r"))
    bench.run()
    finish, reason, tokens = stopped(bench, "r")
    assert (finish, reason) == ("stop", "green:repetition")
    assert 80 < tokens < 300
    assert tokens % 20 == 0
    stop = bench.loop.account("r")["early_stop"]
    assert (stop["policy"], stop["saved_tokens"]) == ("token_stop", 300 - tokens)
    assert stop["saved_j"] > 0.0
    assert not bench.scheduler.requests
    assert not bench.scheduler._green_stopper._watches


def test_noise_ends_with_a_reason_of_its_own_and_shows_no_log_probability(bench: Any) -> None:
    bench.scheduler.add_request(asking("r", extra={LOGPROB: -9.0, VARIED: True}))
    bench.run()
    finish, reason, tokens = stopped(bench, "r")
    assert (finish, reason) == ("stop", "green:low_confidence")
    assert 20 < tokens < 300
    assert all(output.new_logprobs is None for output in bench.loop.outputs)
    assert not bench.scheduler._green_stopper._hidden


def test_at_a_high_temperature_unlikely_tokens_are_no_noise(bench: Any) -> None:
    extra = {LOGPROB: -9.0, VARIED: True}
    bench.scheduler.add_request(asking("r", extra=extra, temperature=1.5, max_tokens=120))
    bench.run()
    assert stopped(bench, "r") == ("length", None, 120)


def test_min_tokens_are_kept(bench: Any) -> None:
    """FIELD P14."""
    bench.scheduler.add_request(asking("r", min_tokens=150))
    bench.run()
    finish, reason, tokens = stopped(bench, "r")
    assert (finish, reason) == ("stop", "green:repetition")
    assert tokens >= 160


@pytest.mark.parametrize(
    "options",
    [
        {"ignore_eos": True},
        {"marks": {}},
        {"marks": {"stop": False}},
        {"resumable": True},
    ],
)
def test_who_asked_for_all_of_it_or_for_nothing_is_left_alone(
    bench: Any, options: dict[str, Any]
) -> None:
    """FIELD P14."""
    request = asking("r", max_tokens=150, **options)
    params = request.sampling_params
    bench.scheduler.add_request(request)
    assert not bench.scheduler._green_stopper._watches
    assert request.sampling_params is params
    bench.run()
    assert len(bench.loop.text("r")) == 150
    assert all(output.new_logprobs is None for output in bench.loop.outputs)


def test_a_structured_answer_is_never_cut(bench: Any) -> None:
    """FIELD P14: half an object is none."""
    schema = StructuredOutputsParams(json='{"type": "object"}')
    request = asking("r", max_tokens=150, structured_outputs=schema)
    bench.scheduler.add_request(request)
    bench.loop.step()
    request.structured_output_request.grammar = mock.Mock()
    bench.run()
    assert len(bench.loop.text("r")) == 150


def test_log_probabilities_that_a_client_asked_for_stay(bench: Any) -> None:
    extra = {LOGPROB: -9.0, VARIED: True}
    bench.scheduler.add_request(asking("asked", extra=extra, logprobs=2))
    bench.scheduler.add_request(asking("other", extra=extra))
    bench.run()
    assert stopped(bench, "asked")[1] == stopped(bench, "other")[1] == "green:low_confidence"
    for output in bench.loop.outputs:
        assert (output.new_logprobs is not None) == (output.request_id == "asked")


def test_the_fronts_own_parameters_are_not_touched(bench: Any) -> None:
    """In one process the front holds the same object, and would then expect them."""
    request = asking("r")
    params = request.sampling_params
    bench.scheduler.add_request(request)
    assert params.logprobs is None
    assert request.sampling_params.logprobs == 0
    assert request.sampling_params.extra_args == params.extra_args


def test_an_abort_leaves_nothing_behind(bench: Any) -> None:
    bench.scheduler.add_request(asking("r"))
    for _ in range(30):
        bench.loop.step()
    from vllm.v1.request import RequestStatus

    bench.scheduler.finish_requests("r", RequestStatus.FINISHED_ABORTED)
    bench.run()
    stopper = bench.scheduler._green_stopper
    assert not stopper._watches
    assert not stopper._hidden


def test_a_preempted_answer_is_stopped_all_the_same(bench: Any) -> None:
    bench.scheduler.add_request(asking("r"))
    for _ in range(30):
        bench.loop.step()
    assert bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    bench.run()
    assert stopped(bench, "r")[:2] == ("stop", "green:repetition")
    assert set(bench.loop.text("r")) == {TOKEN}


def test_a_policy_that_needs_no_log_probabilities_has_none_computed() -> None:
    policy = ScriptedExit(stop_after(1), ExitNeeds(every_tokens=5))
    with green_scheduler({"policies.exit": "mine"}, plugins={"mine": policy}) as scheduler:
        request = asking("r")
        scheduler.add_request(request)
        assert request.sampling_params.logprobs is None
        run(Loop(scheduler))
    assert all(view.logprobs == () for view in policy.views)


def test_what_runs_follows_an_edited_config() -> None:
    """Another policy takes over; without one, nobody is looked at any more."""
    first = ScriptedExit(lambda view: None)
    with green_scheduler({"policies.exit": "mine"}, plugins={"mine": first}) as scheduler:
        scheduler.add_request(asking("r"))
        loop, decisions = Loop(scheduler), scheduler.green._decisions
        for _ in range(20):
            loop.step()
        decisions.exits = Exits(
            "other",
            ScriptedExit(stop_after(1)),
            shadow=False,
            budget_s=5.0,
            is_stock=lambda: False,
            on_trip=lambda reason: None,
        )
        run(loop)
        assert loop.account("r")["early_stop"]["policy"] == "other"
        scheduler.add_request(asking("s", max_tokens=60))
        for _ in range(3):
            loop.step()
        decisions.exits.guard.close()
        decisions.exits = None
        run(loop)
        assert len(loop.text("s")) == 60


def test_a_verdict_from_before_the_switch_was_turned_off_is_not_carried_out() -> None:
    """Nor after it is turned on again: the request is looked at anew."""
    policy = ScriptedExit(stop_after(1))
    with green_scheduler({"policies.exit": "mine"}, plugins={"mine": policy}) as scheduler:
        scheduler.add_request(asking("r", max_tokens=60))
        loop, runtime = Loop(scheduler), scheduler.green
        while scheduler.requests["r"].num_output_tokens < 6:
            loop.step()
        key = scheduler._green_stopper._watches["r"].key
        until(lambda: key in runtime.exits.guard._latest)
        policy.rule = lambda view: None
        set_off(None, True, run_dir=run_dir())
        until(lambda: runtime.is_stock)
        while scheduler.requests["r"].num_output_tokens < 20:
            loop.step()
        set_off(None, False, run_dir=run_dir())
        until(lambda: not runtime.is_stock)
        run(loop)
        assert stopped(SimpleNamespace(loop=loop), "r") == ("length", None, 60)


def test_log_probabilities_with_gaps_are_never_shown_for_the_newest() -> None:
    """A policy that needs them takes over from one that does not: the request has none computed."""
    first = ScriptedExit(lambda view: None)
    second = ScriptedExit(lambda view: None, ExitNeeds(every_tokens=5, logprobs=True))
    with green_scheduler({"policies.exit": "mine"}, plugins={"mine": first}) as scheduler:
        scheduler.add_request(asking("r", max_tokens=60))
        loop, decisions = Loop(scheduler), scheduler.green._decisions
        for _ in range(10):
            loop.step()
        decisions.exits = Exits(
            "other",
            second,
            shadow=False,
            budget_s=5.0,
            is_stock=lambda: False,
            on_trip=lambda reason: None,
        )
        # With it the engine's rows hold values of every request.
        scheduler.add_request(asking("other", max_tokens=20, logprobs=1))
        run(loop)
        decisions.exits.guard.close()
        shown = {view.request_id: view.logprobs for view in second.views}
        assert len(shown["other"]) > 0
        assert all(view.logprobs == () for view in second.views if view.request_id == "r")


def test_a_fault_while_hiding_reaches_no_engine_and_loses_no_output(bench: Any) -> None:
    bench.scheduler.add_request(asking("r", max_tokens=30))
    with mock.patch.object(bench.scheduler._green_stopper, "hide", side_effect=RuntimeError):
        bench.run()
    assert stopped(bench, "r") == ("length", None, 30)


def test_of_several_tokens_a_step_each_has_its_own_log_probability() -> None:
    """Speculative decoding: rows are found by where a request's tokens begin."""
    policy = ScriptedExit(stop_after(900), ExitNeeds(every_tokens=1, logprobs=True))
    with green_scheduler({"policies.exit": "mine"}, plugins={"mine": policy}) as scheduler:
        request = asking("r")
        scheduler.add_request(request)
        stopper = scheduler._green_stopper
        values = np.array([[-1.0], [-2.0], [-3.0], [-4.0]])
        lists = LogprobsLists(np.full(values.shape, TOKEN), values, np.ones(4), [0, 1, 4])
        stopper.results = SimpleNamespace(req_id_to_index={"other": 0, "r": 1}, logprobs=lists)
        assert stopper.reason(request, [TOKEN] * 2) is None
        assert stopper._watches["r"].logprobs == [-2.0, -3.0]


def test_an_engine_without_log_probabilities_refuses_by_name() -> None:
    plugins = {"token_stop": TokenStop()}
    with pytest.raises(ConfigError, match="--logprobs-mode raw_logits"):
        with green_scheduler(TOKEN_STOP, plugins=plugins, logprobs_mode="raw_logits"):
            raise AssertionError("it started")


def test_where_log_probabilities_are_as_sampled_the_temperature_counts_no_second_time() -> None:
    plugins = {"token_stop": TokenStop()}
    with green_scheduler(
        TOKEN_STOP, plugins=plugins, logprobs_mode="processed_logprobs"
    ) as scheduler:
        loop = Loop(scheduler)
        extra = {LOGPROB: -9.0, VARIED: True}
        scheduler.add_request(asking("r", extra=extra, temperature=1.5))
        run(loop)
        assert loop.ends("r")[0].stop_reason == "green:low_confidence"


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 8), st.integers(2, 5))
def test_a_loop_is_what_vllms_own_detection_calls_one(
    ids: list[int], pattern: int, times: int
) -> None:
    theirs = RepetitionDetectionParams(
        max_pattern_size=pattern, min_pattern_size=pattern, min_count=times
    )
    assert ends_in_loop(tuple(ids), pattern, times) == check_sequence_repetition(ids, theirs)


# --- reasoning blocks ---------------------------------------------------------------------


class Tokenizer:
    """A vocabulary with the usual pair."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary


def manager(parser: Any = None, **vocabulary: int) -> Any:
    names = {"think": "<think>", "done": "</think>"}
    tokenizer = Tokenizer({names[name]: token for name, token in vocabulary.items()})
    return SimpleNamespace(reasoner_cls=parser, tokenizer=tokenizer)


@pytest.mark.parametrize("parser", [None, DeepSeekR1ReasoningParser])
def test_what_is_inside_a_reasoning_block_is_told_from_tokens(parser: Any) -> None:
    thinking = Thinking(manager(parser, think=THINK, done=DONE))
    assert thinking.at_start([5, THINK])
    assert not thinking.at_start([5, THINK, 6, DONE, 7])
    assert thinking.after(False, [5, THINK, 6], [THINK, 6])
    assert thinking.after(True, [THINK, 6, 7], [7])
    assert not thinking.after(True, [THINK, 6, DONE, 7], [DONE, 7])
    assert not thinking.after(False, [5, 6], [5, 6])


def test_a_parser_says_where_thinking_begins_and_without_one_the_token_does() -> None:
    assert Thinking(manager(DeepSeekR1ReasoningParser, think=THINK, done=DONE)).at_start([5])
    assert not Thinking(manager(think=THINK, done=DONE)).at_start([5])
    assert not Thinking(manager()).at_start([THINK])
    assert not Thinking(SimpleNamespace(reasoner_cls=None)).after(False, [5], [5])


def test_nobody_is_stopped_inside_a_reasoning_block_and_nothing_in_it_is_shown(bench: Any) -> None:
    stopper: Stopper = bench.scheduler._green_stopper
    stopper._structured = manager(think=THINK, done=DONE)
    seen: list[Any] = []
    look = bench.scheduler.green.exits.look
    bench.scheduler.green.exits.look = lambda key, view: seen.append(view) or look(key, view)
    bench.scheduler.add_request(asking("r", prompt=[5, 6, THINK]))
    bench.run()
    assert stopped(bench, "r") == ("length", None, 300)
    assert not seen
    assert bench.loop.text("r") == [TOKEN] * 300


def test_what_was_said_before_a_reasoning_block_is_not_carried_out_after_it() -> None:
    policy = ScriptedExit(lambda view: stop_after(1)(view) if view.output_tokens == 5 else None)
    with green_scheduler({"policies.exit": "mine"}, plugins={"mine": policy}) as scheduler:
        stopper: Any = scheduler._green_stopper
        stopper._thinking = SimpleNamespace(
            at_start=lambda prompt: False,
            after=lambda inside, output, fresh: 6 <= len(output) <= 12,
            opens=lambda fresh: False,
        )
        scheduler.add_request(asking("r", max_tokens=60))
        loop = Loop(scheduler)
        while scheduler.requests["r"].num_output_tokens < 6:
            loop.step()
        key = stopper._watches["r"].key
        until(lambda: key in scheduler.green.exits.guard._latest)
        run(loop)
        assert stopped(SimpleNamespace(loop=loop), "r") == ("length", None, 60)


def test_a_reasoning_block_between_two_looks_is_never_shown() -> None:
    policy = ScriptedExit(lambda view: None)
    with green_scheduler({"policies.exit": "mine"}, plugins={"mine": policy}) as scheduler:
        thinking = Thinking(manager(None, think=TOKEN, done=DONE))  # every token opens a block
        thinking.after = lambda inside, output, fresh: False  # and each is closed again
        scheduler._green_stopper._thinking = thinking
        scheduler.add_request(asking("r", max_tokens=30))
        run(Loop(scheduler))
        assert scheduler.green.exits.report().calls == 0
