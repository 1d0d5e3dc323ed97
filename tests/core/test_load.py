"""What the doctor is told about the load."""

import pytest

from green_core.load import BLOCK_TOKENS, LoadWatch
from green_core.values import StepShare, StepView


def step(start_s, end_s, running):
    shares = tuple(StepShare(f"r{i}", 0, 1, 10) for i in range(running))
    return StepView(start_s, end_s, shares)


def facts(watch):
    return watch.facts(100.0, active_j=1.0, idle_j=2.0)


def prompt(*blocks):
    return [token for block in blocks for token in [block] * BLOCK_TOKENS]


def test_the_mean_batch_is_weighted_by_time():
    watch = LoadWatch(0.0, max_running=8)
    watch.step(step(0.0, 3.0, 1), waiting=0)
    watch.step(step(3.0, 4.0, 5), waiting=0)
    assert facts(watch).busy_s == pytest.approx(4.0)
    assert facts(watch).mean_running == pytest.approx(2.0)


def test_the_end_of_the_newest_step_is_told():
    watch = LoadWatch(0.0, max_running=8)
    assert facts(watch).last_step_s == 0.0
    watch.step(step(0.0, 3.0, 1), waiting=0)
    watch.step(step(3.0, 4.0, 5), waiting=0)
    assert facts(watch).last_step_s == 4.0


def test_time_is_full_only_while_requests_wait_at_the_limit():
    watch = LoadWatch(0.0, max_running=2)
    watch.step(step(0.0, 1.0, 2), waiting=0)
    watch.step(step(1.0, 3.0, 2), waiting=1)
    watch.step(step(3.0, 7.0, 1), waiting=1)  # waits for memory, not for the limit
    assert facts(watch).full_s == pytest.approx(2.0)


def test_only_a_common_beginning_counts_as_repeated():
    watch = LoadWatch(0.0, max_running=1)
    watch.note_prompt(prompt(1, 2, 3))
    watch.note_prompt(prompt(1, 2, 4, 3))  # two blocks in common, the rest differs
    watch.note_prompt(prompt(9, 2, 3))  # common blocks, but another beginning
    watch.look_at_prompts()
    found = facts(watch)
    assert found.sampled_tokens == 10 * BLOCK_TOKENS
    assert found.repeated_tokens == 2 * BLOCK_TOKENS


def test_prompts_shorter_than_a_block_are_never_repeated():
    watch = LoadWatch(0.0, max_running=1)
    for _ in range(3):
        watch.note_prompt([1] * (BLOCK_TOKENS - 1))
    watch.look_at_prompts()
    assert facts(watch).repeated_tokens == 0
    assert facts(watch).sampled_tokens == 3 * (BLOCK_TOKENS - 1)


def test_a_flood_of_prompts_is_sampled_and_not_kept():
    watch = LoadWatch(0.0, max_running=1)
    for number in range(1000):
        watch.note_prompt(prompt(number))
    watch.look_at_prompts()
    assert 0 < facts(watch).sampled_tokens <= 20 * BLOCK_TOKENS


def test_company_is_those_let_go_at_the_same_moment():
    watch = LoadWatch(0.0, max_running=1)
    for now_s in (1.0, 1.0, 1.001, 5.0, 9.0):
        watch.note_company(now_s, held_s=0.2)
    found = facts(watch)
    assert (found.company_holds, found.company_gained) == (5, 2)
    assert found.company_s == pytest.approx(1.0)
