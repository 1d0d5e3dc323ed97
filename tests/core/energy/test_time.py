"""Odd times: jumping clocks, long idleness, a device without constants."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from green_core.energy.devices import DeviceModel
from green_core.energy.model import StepModel


def test_intervals_last_at_least_a_second(kit):
    attributor = kit.attributor(metered=True)
    out = [attributor.advance(i / 10, kit.reading(i / 10, i * 10.0)) for i in range(101)]
    out.append(attributor.close(10.0, kit.reading(10.0, 1000.0)))
    intervals = kit.join(*out).intervals
    assert len(intervals) <= 11
    assert all(i.end_s - i.start_s >= 1.0 - 1e-9 for i in intervals[:-1])


def test_an_idle_engine_leaves_nothing_pending(kit):
    """FIELD P15: housekeeping may sleep; idle time is settled when somebody wakes it."""
    attributor = kit.attributor(metered=True)
    for i in range(30):
        attributor.advance(i / 10, kit.reading(i / 10, i * 10.0))
        assert not attributor.pending


@settings(max_examples=100, deadline=None)
@given(
    times=st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=12),
    metered=st.booleans(),
)
def test_a_clock_that_jumps_never_raises_and_loses_no_request(kit, times, metered):
    attributor = kit.attributor(metered=metered)
    out = []
    for number, (start_s, end_s) in enumerate(times):
        attributor.on_step(kit.step(start_s, end_s, kit.share(f"r{number}", decode=1)))
        attributor.finish(kit.facts(f"r{number}"))
        out.append(attributor.advance(end_s, kit.reading(end_s, 100.0 * number)))
    out.append(attributor.close(0.0, None))
    everything = kit.join(*out)
    assert len(everything.records) == len(times)
    assert all(record.energy_j >= 0 for record in everything.records)
    assert all(i.active_j >= 0 and i.idle_j >= 0 for i in everything.intervals)
    assert all(math.isfinite(record.carbon_g) for record in everything.records)
    assert not attributor.pending


def test_a_device_without_any_constants_still_shares_the_meter(kit):
    nothing = StepModel(DeviceModel("x", 0, 0, 0, 700.0, "t", 2025, False), kit.engine)
    attributor = kit.attributor(metered=True, model=nothing)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    attributor.on_step(kit.step(0.0, 1.0, kit.share("a", decode=1), kit.share("b", decode=1)))
    for name in "ab":
        attributor.finish(kit.facts(name))
    records = attributor.advance(1.0, kit.reading(1.0, 100.0)).records
    assert [r.energy_j for r in records] == pytest.approx([50.0, 50.0])
