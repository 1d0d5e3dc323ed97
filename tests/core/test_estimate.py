import pytest

from green_core.estimate import RunTimeEstimator
from green_core.values import StepShare, StepView


def _step(start_s: float, length_s: float, prefill: int, decode: int) -> StepView:
    return StepView(start_s, start_s + length_s, (StepShare("a", prefill, decode, 10),))


def test_nothing_seen_is_unknown():
    assert RunTimeEstimator().run_s(100, 100) == 0.0


def test_prompt_and_answer_are_timed_apart():
    estimator = RunTimeEstimator()
    for number in range(200):
        estimator.observe(_step(number, 0.02, 0, 1))
        estimator.observe(_step(number, 0.1, 100, 0))
    assert estimator.run_s(1000, 50) == pytest.approx(1000 * 0.001 + 50 * 0.02)


def test_an_answer_without_a_limit_is_expected_to_be_of_usual_length():
    """What a context of 128k leaves says nothing of how long an answer will be."""
    estimator = RunTimeEstimator()
    estimator.observe(_step(0, 0.02, 0, 1))
    before_s = estimator.run_s(0, 131_072, open_ended=True)
    assert before_s == pytest.approx(512 * 0.02)
    for _ in range(200):
        estimator.observe_answer(100)
    assert estimator.run_s(0, 131_072, open_ended=True) == pytest.approx(3 * 100 * 0.02)
    assert estimator.run_s(0, 50, open_ended=True) == pytest.approx(50 * 0.02)
    assert estimator.run_s(0, 131_072) == pytest.approx(131_072 * 0.02)
