"""What vLLM's steps mean in joules: preemption, chunked prefill, the prefix cache."""

from __future__ import annotations

import pytest
from harness import BLOCK, Loop, green_scheduler, make_request, tokens

from green_core.testing.doubles import RecordingObserver
from green_core.testing.policies import ScriptedPolicy, plan
from green_core.values import StepView

OBSERVED = {"policies.observers": ["seen"]}


def test_a_preempted_request_goes_on_paying_and_is_accounted_once() -> None:
    """A pool too small for all: what is computed twice is paid twice, and policies are told."""
    seen, policy = RecordingObserver(), ScriptedPolicy(plan())
    config = {**OBSERVED, "policies.batch": "scripted"}
    plugins = {"seen": seen, "scripted": policy}
    with green_scheduler(config, blocks=9, plugins=plugins) as scheduler:
        loop = Loop(scheduler)
        for number in range(3):
            scheduler.add_request(make_request(f"r{number}", prompt=30, max_tokens=40))
        loop.run()
        preemptions = scheduler._green_preemptions
        assert preemptions > 0
        assert scheduler.kv_cache_manager.usage == 0.0
    computed = {f"r{number}": 0 for number in range(3)}
    for step in seen.steps:
        for share in step.shares:
            computed[share.request_id] += share.prefill_tokens + share.decode_tokens
    assert sum(computed.values()) > 3 * (30 + 39)
    for name, count in computed.items():
        record = seen.record(name)
        assert record.output_tokens == 40
        assert count >= 30 + 39
    total_j = sum(record.energy_j for record in seen.records)
    assert total_j == pytest.approx(sum(step.energy_j for step in seen.steps))
    told = [view.preemptions for view in policy.views]
    assert told == sorted(told)


def test_a_chunked_prefill_is_prefill_until_the_prompt_ends() -> None:
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, max_tokens=32, plugins={"seen": seen}) as scheduler:
        scheduler.add_request(make_request("r", prompt=80, max_tokens=3))
        Loop(scheduler).run()
    shares = [
        (share.prefill_tokens, share.decode_tokens, share.context_tokens)
        for step in seen.steps
        for share in step.shares
    ]
    assert shares == [(32, 0, 32), (32, 0, 64), (16, 0, 80), (0, 1, 81), (0, 1, 82)]


def test_a_cached_prompt_costs_less_than_a_cold_one() -> None:
    seen = RecordingObserver()
    prompt = tokens("shared", 6 * BLOCK)
    with green_scheduler(OBSERVED, plugins={"seen": seen}) as scheduler:
        for name in ("cold", "warm"):
            scheduler.add_request(make_request(name, prompt=[*prompt, *tokens(name, 4)]))
            Loop(scheduler).run()
    cold, warm = seen.record("cold"), seen.record("warm")
    assert (cold.cached_tokens, warm.cached_tokens) == (0, 6 * BLOCK)
    assert warm.energy_j < cold.energy_j
    assert warm.prefill_j < 0.9 * cold.prefill_j
    assert warm.avoided_j > 0.0 == cold.avoided_j


def test_tokens_cached_again_after_a_preemption_are_no_cache_hit() -> None:
    """``cached_tokens`` is what the client was spared, not what the engine saved itself."""
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, plugins={"seen": seen}) as scheduler:
        loop = Loop(scheduler)
        scheduler.add_request(make_request("r", prompt=40, max_tokens=20))
        for _ in range(5):
            loop.step()
        request = scheduler.running.pop()
        scheduler._preempt_request(request, 0.0)
        loop.run()
        assert len(loop.text("r")) == 20
    assert seen.record("r").cached_tokens == 0


def test_many_short_steps_never_overlap() -> None:
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, plugins={"seen": seen}) as scheduler:
        for number in range(8):
            scheduler.add_request(make_request(f"r{number}", max_tokens=30))
        Loop(scheduler).run()
    ends_s = 0.0
    for step in seen.steps:
        assert ends_s <= step.start_s <= step.end_s
        ends_s = step.end_s


def test_who_had_to_wait_is_told_with_each_step(monkeypatch) -> None:
    """Those in vLLM's own queue once the step was made up: not the held, nor the scheduled."""
    told: list[tuple[int, int]] = []
    with green_scheduler(max_seqs=2) as scheduler:
        step = scheduler.green.step

        def telling(view: StepView, overhead_s: float, waiting: int) -> None:
            told.append((len(view.shares), waiting))
            step(view, overhead_s, waiting)

        monkeypatch.setattr(scheduler.green, "step", telling)
        for number in range(3):
            scheduler.add_request(make_request(f"r{number}", max_tokens=2))
        Loop(scheduler).run()
    assert told == [(2, 1), (2, 1), (1, 0), (1, 0)]


def test_each_prompt_is_shown_once_as_it_arrives(monkeypatch) -> None:
    shown: list[list[int]] = []
    with green_scheduler() as scheduler:
        monkeypatch.setattr(scheduler.green, "note_prompt", shown.append)
        first, second = tokens("a", 20), tokens("b", 9)
        scheduler.add_request(make_request("r0", prompt=first))
        scheduler.add_request(make_request("r1", prompt=second, pooling=True))
        Loop(scheduler).run()
    assert shown == [first, second]
