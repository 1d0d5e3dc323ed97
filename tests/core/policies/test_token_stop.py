"""Guarantees of the early stop at the token."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core import ConfigError, GreenConfig
from green_core.policies.token_stop import TokenStop, TokenStopping, ends_in_loop
from green_core.testing.builders import progress

tokens = st.lists(st.integers(0, 3), max_size=140).map(tuple)


def policy(**params) -> TokenStopping:
    return TokenStop().green_exit_policy(GreenConfig(), params)


def reason(judged) -> str | None:
    return None if judged is None else judged.stop_reason


def test_a_window_of_noise_is_low_confidence():
    noise = progress(logprobs=(-0.1,) * 40 + (-9.0,) * 20)
    assert reason(policy()(noise)) == "green:low_confidence"
    assert policy()(progress()) is None


@given(st.lists(st.floats(-50, 0), max_size=60), st.floats(0, 3))
def test_a_stop_means_that_the_newest_window_is_below_the_threshold(logprobs, temperature):
    judged = policy()(progress(logprobs=tuple(logprobs), temperature=temperature))
    if judged is not None:
        newest = logprobs[-20:]
        assert len(newest) == 20
        assert sum(newest) / 20 < -8.2
        # ... and was so in the distribution that the tokens were drawn from.
        assert sum(newest) / 20 / max(temperature, 1.0) < -8.2


@given(st.lists(st.floats(-50, 0), min_size=20, max_size=20), st.floats(0, 3), st.floats(0, 3))
def test_a_higher_temperature_never_stops_sooner(logprobs, one, other):
    low, high = sorted((one, other))
    stops = [policy()(progress(logprobs=tuple(logprobs), temperature=t)) for t in (low, high)]
    assert stops[1] is None or stops[0] is not None


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_mean_that_is_no_number_is_no_verdict(value):
    assert policy()(progress(logprobs=(-9.0,) * 19 + (value,))) is None


def test_without_log_probabilities_there_is_no_verdict_on_confidence():
    assert policy()(progress(logprobs=())) is None


@pytest.mark.parametrize(("pattern", "times"), [((7,), 64), ((1, 2, 3), 22), (tuple(range(32)), 4)])
def test_a_loop_is_repetition_and_one_turn_less_is_not(pattern, times):
    start = (901, 902, 903)
    assert reason(policy()(progress(token_ids=start + pattern * times))) == "green:repetition"
    assert policy()(progress(token_ids=start + pattern * (times - 1))) is None


def test_a_ruler_or_a_row_of_zeros_is_text():
    assert policy()(progress(token_ids=(*range(40), *(5,) * 30))) is None


def test_a_loop_that_was_left_is_no_loop():
    assert policy()(progress(token_ids=(7,) * 120 + (8,))) is None


@given(tokens, st.integers(1, 12), st.integers(2, 6))
def test_a_loop_is_exactly_one_pattern_over_and_over(ids, pattern, times):
    span = pattern * times
    expected = len(ids) >= span and ids[len(ids) - span :] == ids[len(ids) - pattern :] * times
    assert ends_in_loop(ids, pattern, times) == expected


@given(tokens, st.integers(1, 12), st.integers(2, 6))
def test_a_window_as_long_as_it_asks_for_tells_the_same_as_the_whole_answer(ids, longest, times):
    judge = policy(max_pattern_tokens=longest, min_repeats=times, min_repeated_tokens=20)
    window = ids[-judge.needs.window_tokens :]
    assert judge(progress(token_ids=ids)) == judge(progress(token_ids=window))


def test_what_is_not_watched_stops_nothing_and_costs_nothing():
    loops, noisy = progress(token_ids=(7,) * 99), progress(logprobs=(-30.0,) * 20)
    assert policy(watch=["repetition"])(noisy) is None
    assert not policy(watch=["repetition"]).needs.logprobs
    assert policy(watch=["low_confidence"])(loops) is None


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"mean_logprob": 0.0}, "mean_logprob"),
        ({"mean_logprob": math.nan}, "mean_logprob"),
        ({"every_tokens": 0}, "every_tokens"),
        ({"window_tokens": 0}, "window_tokens"),
        ({"min_repeats": 1}, "min_repeats"),
        ({"max_pattern_tokens": 0}, "max_pattern_tokens"),
        ({"min_repeated_tokens": 0}, "min_repeated_tokens"),
        ({"watch": []}, "watch"),
        ({"watch": ["boredom"]}, "watch"),
        ({"classes": ["urgent"]}, "classes"),
        ({"treshold": -8.2}, "treshold"),
    ],
)
def test_a_bad_parameter_stops_the_start_with_its_path(params, path):
    with pytest.raises(ConfigError, match=rf"policies\.token_stop\.{path}"):
        policy(**params)
