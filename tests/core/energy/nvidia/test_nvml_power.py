"""Devices that have power but no energy counter: which way is taken, and how samples add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.energy.integral import PowerIntegral
from green_core.testing import nvml as stubs
from green_core.testing.nvml import NvmlStub, build_stub

COUNTER, POWER = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"
FIELDS = "nvmlDeviceGetFieldValues"
AVERAGE, INSTANT = f"field.{stubs.POWER_AVERAGE}", f"field.{stubs.POWER_INSTANT}"

READ = """
(meter,) = meters()
print(meter.method, meter.uncertainty_ratio)
meter.read()
clock.at_s += 4
print(meter.read().energy_j)
clock.at_s -= 9
print(meter.read().energy_j)
"""


@pytest.mark.parametrize(
    ("broken", "method", "watts"),
    [
        ([COUNTER], "average", 250.0),
        ([COUNTER, AVERAGE], "instant", 300.0),
        ([COUNTER, AVERAGE, INSTANT], "", 250.0),
        ([COUNTER, FIELDS], "", 250.0),
    ],
)
def test_the_best_power_that_a_device_has_is_added_up(stub, script, broken, method, watts):
    """FIELD E3, E13: probed query by query, and the method says which one it was."""
    stub.set_power(250.0)
    stub.set("instant_watts", 300.0)
    for function in broken:
        stub.set_error(function, stubs.NOT_SUPPORTED)
    lines = script(stub, READ, CUDA_VISIBLE_DEVICES="0").finish()
    assert lines[0] == f"measured:nvml-power{method and '-' + method} None"
    assert [float(line) for line in lines[1:]] == [4 * watts, 4 * watts]


def test_each_device_is_probed_for_itself(stub, script):
    """FIELD E3: one board without a counter does not cost another its own."""
    stub.set_power(100.0)
    stub.set_error(COUNTER, stubs.NOT_SUPPORTED, index=1)
    stub.set_error(AVERAGE, stubs.NOT_SUPPORTED, index=1)
    code = "print(*[m.method for m in meters(3)])"
    assert script(stub, code).finish()[0].split() == [
        "measured:nvml-counter",
        "measured:nvml-power-instant",
        "measured:nvml-counter",
    ]


def test_a_library_from_before_the_power_fields_still_meters(tmp_path, script, library):
    """FIELD E3: symbols that an old driver lacks are no failure (nor is a driver without MIG)."""
    folder = tmp_path / "old"
    folder.mkdir()
    old = build_stub(folder, missing=[COUNTER, FIELDS, "nvmlDeviceGetMigMode"])
    stub = NvmlStub(tmp_path, library=old, watts=50.0)
    assert script(stub, READ).finish()[0] == "measured:nvml-power None"


def test_a_counter_that_is_not_ready_yet_is_waited_for_not_replaced(stub, script):
    """FIELD E4, E13: "not in ready state" at the start gives gaps, never another method."""
    stub.set_error(COUNTER, stubs.NOT_READY)
    code = """
(meter,) = meters()
ask(meter.method, meter.read())
clock.at_s += 1.1
print(meter.read().energy_j)
"""
    running = script(stub, code, CUDA_VISIBLE_DEVICES="0")
    assert running.says() == "measured:nvml-counter None"
    stub.clear_errors()
    running.go()
    assert float(running.finish()[0]) == pytest.approx(1000.0)


def test_a_counter_that_fails_later_is_a_gap_and_never_power(stub, script):
    """FIELD E13: the method of a meter holds for its life."""
    code = """
(meter,) = meters()
ask(meter.read() is not None)
for _ in range(5):
    clock.at_s += 100
    print(meter.read())
"""
    running = script(stub, code, CUDA_VISIBLE_DEVICES="0")
    assert running.says() == "True"
    stub.set_error(COUNTER, stubs.NOT_SUPPORTED)
    running.go()
    assert running.finish() == ["None"] * 5


def test_a_counter_that_shows_zero_is_no_counter(stub, script):
    """FIELD E2: nothing draws no power, so zero joules is a counter that is not there."""
    stub.set_counter(0.0)
    stub.set("instant_watts", 75.0)
    assert script(stub, READ).finish()[0] == "measured:nvml-power-instant None"


def test_a_device_that_reports_nothing_is_unavailable(stub, script):
    """FIELD E2: never zero joules."""
    for function in (COUNTER, FIELDS, POWER):
        stub.set_error(function, stubs.NOT_SUPPORTED)
    code = "try: meters()\nexcept MeterUnavailable as error: print(error)\n"
    assert "reports neither energy nor power" in script(stub, code).finish()[0]


def test_power_is_not_stretched_over_time_in_which_nobody_looked():
    """FIELD E13: two samples an hour apart say nothing about the hour."""
    integral = PowerIntegral(max_gap_s=10.0)
    assert integral.add(0.0, 400.0).energy_j == 0.0
    assert integral.add(10.0, 400.0).energy_j == 4000.0
    late = integral.add(3610.0, 100.0)
    assert (late.energy_j, late.restarts) == (4000.0, True)
    after = integral.add(3611.0, 100.0)
    assert (after.energy_j, after.restarts) == (4100.0, False)


samples = st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 1000.0)), min_size=1, max_size=50)


@given(samples)
def test_an_integral_never_falls_and_stays_between_the_least_and_the_most_power(samples):
    integral, at_s, readings = PowerIntegral(), 0.0, []
    for span_s, watts in samples:
        at_s += span_s
        readings.append(integral.add(at_s, watts))
    joules = [reading.energy_j for reading in readings]
    assert joules == sorted(joules)
    span_s = readings[-1].at_s - readings[0].at_s
    watts = [each for _, each in samples]
    assert min(watts) * span_s - 1e-6 <= joules[-1] <= max(watts) * span_s + 1e-6
