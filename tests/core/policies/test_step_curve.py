"""What the SLO policy learns of steps: times by batch size, and the lines through them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.policies.slo import candidates
from green_core.policies.step_curve import STARTS, Line, Segment, StepCurve, bucket_of, fit_line


def test_buckets_cover_all_batches_without_overlap():
    assert list(STARTS) == sorted(set(STARTS))
    for batch in range(1, 3000):
        index = bucket_of(batch)
        assert STARTS[index] <= batch < STARTS[index + 1]


@given(fixed=st.floats(0, 10), per_unit=st.floats(0.001, 10), xs=st.sets(st.integers(1, 500)))
def test_a_line_is_found_again_from_its_points(fixed, per_unit, xs):
    line = fit_line((1.0 + x % 3, float(x), fixed + per_unit * x) for x in xs)
    if len(xs) >= 2:
        assert line.fixed == pytest.approx(fixed, abs=1e-6 + 1e-6 * per_unit * max(xs))
        assert line.per_unit == pytest.approx(per_unit, rel=1e-6)


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(1, 500), st.floats(0, 10)), max_size=10))
def test_no_part_of_a_fitted_line_is_negative(points):
    line = fit_line(points)
    assert line.fixed >= 0
    assert line.per_unit >= 0


def test_a_first_step_that_compiled_for_seconds_is_forgotten():
    curve = StepCurve(smoothing=0.05)
    for batch in (1, 2, 4, 8, 16):
        for n in range(8):
            curve.learn(batch, 9.0 if n == 0 else 0.010 + 0.001 * batch, 0.0)
    assert [s.time.at(s.low) for s in curve.segments(1, 1)] == [pytest.approx(0.011)]


def test_a_batch_size_seen_only_a_few_times_is_not_believed():
    curve = StepCurve(smoothing=0.05)
    for _ in range(50):
        curve.learn(8, 0.020, 0.0)
        curve.learn(16, 0.030, 0.0)
    for _ in range(3):
        curve.learn(2, 9.0, 0.0)
    assert [s.time.at(s.low) for s in curve.segments(2, 2)] == [pytest.approx(0.0125)]


def test_no_batch_beyond_one_that_is_too_slow_is_a_candidate():
    slow = Segment(4, 7, Line(0.060, 0.0), None)
    fast = [Segment(low, high, Line(0.010, 0.0), None) for low, high in ((1, 3), (8, 15))]
    found = candidates([fast[0], slow, fast[1]], 0.050)
    assert {size for _, size in found} == {1, 3}


def test_one_hiccup_moves_the_mean_only_a_little():
    curve = StepCurve(smoothing=0.05)
    for _ in range(100):
        curve.learn(8, 0.020, 0.0)
    curve.learn(8, 5.0, 0.0)
    assert curve.seen()[0].time_s == pytest.approx(0.020 + 0.05 * 0.040)


def test_a_line_gives_its_value():
    assert Line(2.0, 0.5).at(4) == 4.0
