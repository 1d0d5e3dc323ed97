"""When the values on a page that stands still in between were collected."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.energy.dcgm_times import LOOK_S, CounterTimes

WATTS = 100.0


def walk(times, period_s, until_s, *, from_s=0.0, phase_s=0.0):
    """Look as ``rest_s`` asks at an exporter that collects every ``period_s``; count the looks."""
    at_s, looks = from_s, 0
    while at_s < until_s:
        collected_s = ((at_s - phase_s) // period_s) * period_s + phase_s
        times.observe(at_s, {"GPU-1": WATTS * collected_s})
        looks += 1
        at_s += times.rest_s
    return looks


@pytest.mark.parametrize("period_s", [1.0, 5.0, 10.0, 30.0, 60.0])
def test_the_exporters_period_is_found_out(period_s):
    """FIELD E12."""
    times = CounterTimes()
    walk(times, period_s, 12 * period_s, phase_s=0.3)
    assert times.period_s == pytest.approx(period_s, abs=2 * LOOK_S)


def test_a_known_period_is_not_looked_at_all_the_time():
    """FIELD E12: between two collections the page has nothing new."""
    times = CounterTimes()
    walk(times, 30.0, 300.0)
    assert walk(times, 30.0, 1500.0, from_s=300.0) < 1200 / 30 * 8


@pytest.mark.parametrize("period_s", [1.0, 10.0, 30.0])
def test_a_value_is_dated_by_the_look_that_first_shows_it(period_s):
    """FIELD E12: to within the time between two looks."""
    times = CounterTimes()
    walk(times, period_s, 20 * period_s, phase_s=0.4)
    reading = times.readings["GPU-1"]
    assert 0.0 <= reading.at_s - reading.energy_j / WATTS <= 2 * LOOK_S


def test_there_is_no_reading_before_the_first_move():
    """FIELD E11: the age of the first value is unknown, so its joules would be of any time."""
    times = CounterTimes()
    for second in range(5):
        times.observe(float(second), {"GPU-1": 500.0})
    assert times.readings == {}
    times.observe(5.0, {"GPU-1": 600.0})
    assert times.readings["GPU-1"].at_s == 5.0


def test_a_move_seen_late_is_dated_within_the_pause():
    """FIELD E12: after a pause of the engine no power is implausible."""
    times = CounterTimes()
    walk(times, 30.0, 301.0)
    before = times.readings["GPU-1"]
    times.observe(901.0, {"GPU-1": WATTS * 900.0})
    late = times.readings["GPU-1"]
    assert 901.0 - 30.0 <= late.at_s < 901.0
    times.observe(930.5, {"GPU-1": WATTS * 930.0})
    after = times.readings["GPU-1"]
    for one, two in ((before, late), (late, after)):
        assert 0.4 * WATTS < (two.energy_j - one.energy_j) / (two.at_s - one.at_s) < 2.5 * WATTS


def test_an_exporter_that_becomes_faster_is_followed():
    times = CounterTimes()
    walk(times, 30.0, 300.0)
    walk(times, 5.0, 600.0, from_s=301.0)
    assert times.period_s == pytest.approx(5.0, abs=2 * LOOK_S)


def test_a_counter_that_falls_is_passed_on():
    """FIELD E11: a reset is judged by whoever follows the counter."""
    times = CounterTimes()
    for second, value in enumerate((5.0, 6.0, 1.0)):
        times.observe(float(second), {"GPU-1": value})
    assert times.readings["GPU-1"].energy_j == 1.0


@given(
    st.floats(0.5, 120.0),
    st.floats(0.0, 100.0),
    st.lists(st.floats(1.0, 900.0), min_size=2, max_size=40),
)
def test_times_go_up_and_no_stretch_shows_much_more_than_was_drawn(period_s, phase_s, steps):
    """FIELD E11, E12: whatever the exporter's period and the pauses between looks."""
    times, at_s, readings = CounterTimes(), 1000.0, []
    for step_s in steps:
        at_s += step_s
        collected_s = ((at_s - phase_s) // period_s) * period_s + phase_s
        times.observe(at_s, {"GPU-1": WATTS * collected_s})
        reading = times.readings.get("GPU-1")
        if reading is not None and (not readings or reading != readings[-1]):
            readings.append(reading)
    for one, two in pairwise(readings):
        assert one.at_s < two.at_s <= at_s
        assert two.energy_j > one.energy_j
