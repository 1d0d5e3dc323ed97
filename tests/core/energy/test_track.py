import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.energy.track import METHOD_GAP, CounterTrack
from green_core.values import MeterReading


def make(**options):
    values = {
        "method": "measured:t",
        "model_method": "estimated:model",
        "period_s": 0.1,
        "max_w": 1000.0,
        "max_gap_s": 10.0,
        "start_s": 0.0,
    }
    return CounterTrack(**{**values, **options})


def seen(track, at_s, energy_j):
    return track.observe(at_s, MeterReading(at_s, energy_j))


def test_nothing_is_measured_until_the_counter_moves():
    """FIELD E12: an interval shorter than the counter's period is not 0 J."""
    track = make()
    assert seen(track, 0.0, 50.0) is None
    assert seen(track, 0.03, 50.0) is None
    assert seen(track, 0.06, 50.0) is None
    stretch = seen(track, 0.12, 70.0)
    assert (stretch.end_s, stretch.metered_j, stretch.method) == (0.12, 20.0, "measured:t")


def test_a_quick_second_reading_may_show_one_whole_period():
    track = make()
    seen(track, 0.0, 0.0)
    assert seen(track, 0.01, 90.0).metered_j == 90.0


@pytest.mark.parametrize("energy_j", [10.0, 9e14])
def test_a_counter_that_falls_or_leaps_is_a_gap(energy_j):
    """FIELD E11, E17: overflow and driver reload give a counted gap, then a new baseline."""
    track = make()
    seen(track, 0.0, 100.0)
    stretch = seen(track, 1.0, energy_j)
    assert (stretch.metered_j, stretch.method, track.gaps) == (None, METHOD_GAP, 1)
    assert seen(track, 2.0, energy_j + 50.0).metered_j == 50.0


def test_short_silence_loses_nothing():
    """FIELD E4: a failed reading is retried, and the counter covers the time of the failure."""
    track = make()
    seen(track, 0.0, 0.0)
    assert track.observe(1.0, None) is None
    assert seen(track, 2.0, 300.0).metered_j == 300.0
    assert track.gaps == 0


def test_long_silence_is_one_gap_and_ends_with_a_new_baseline():
    """FIELD E17."""
    track = make()
    seen(track, 0.0, 0.0)
    ends = [s.end_s for t in range(1, 20) if (s := track.observe(float(t), None))]
    assert ends == [float(t) for t in range(11, 20)]
    assert track.gaps == 1
    back = seen(track, 20.0, 5000.0)
    assert (back.metered_j, back.method) == (None, METHOD_GAP)
    assert seen(track, 21.0, 5100.0).metered_j == 100.0
    assert track.gaps == 1


def test_joules_of_a_gap_are_not_counted_again_from_a_reading_older_than_it():
    """FIELD E17: a page that moves every 30 s shows, after an outage, where the counter was."""
    track = make()
    seen(track, 0.0, 0.0)
    assert seen(track, 30.0, 9000.0).metered_j == 9000.0
    for now_s in range(31, 56):  # gone, and priced by the model
        track.observe(float(now_s), None)
    old = MeterReading(30.0, 9000.0)
    assert {track.observe(float(now_s), old).metered_j for now_s in range(56, 60)} == {None}
    assert seen(track, 60.0, 18_000.0).metered_j is None
    assert seen(track, 90.0, 27_000.0).metered_j == 9000.0
    assert track.gaps == 1


@pytest.mark.parametrize("at_s", [float("nan"), float("inf"), 3600.0])
def test_a_reading_that_is_not_of_now_is_none(at_s):
    track = make()
    seen(track, 0.0, 0.0)
    assert track.observe(1.0, MeterReading(at_s, 500.0)) is None
    assert seen(track, 2.0, 300.0).metered_j == 300.0


def test_a_counter_that_stands_still_is_given_up():
    track = make()
    for t in range(10):
        assert seen(track, float(t), 7.0) is None
    assert seen(track, 11.0, 7.0).method == METHOD_GAP
    assert track.gaps == 1


def test_an_idle_hour_between_two_readings_is_measured_not_a_gap():
    track = make()
    seen(track, 0.0, 0.0)
    assert seen(track, 3600.0, 250_000.0).metered_j == 250_000.0
    assert track.gaps == 0


def test_a_clock_that_steps_back_changes_nothing():
    track = make()
    seen(track, 10.0, 0.0)
    assert seen(track, 5.0, 100.0) is None
    assert seen(track, 11.0, 200.0).metered_j == 200.0


@given(
    readings=st.lists(
        st.tuples(st.floats(-5, 30), st.none() | st.floats(allow_nan=True, allow_infinity=True)),
        max_size=30,
    )
)
def test_stretches_never_go_back_and_never_hold_negative_energy(readings):
    track, now_s, edge_s = make(), 0.0, 0.0
    for step_s, energy_j in readings:
        now_s += step_s
        stretch = track.observe(now_s, None if energy_j is None else MeterReading(now_s, energy_j))
        if stretch:
            assert stretch.end_s >= edge_s
            assert stretch.metered_j is None or stretch.metered_j > 0
            edge_s = stretch.end_s
