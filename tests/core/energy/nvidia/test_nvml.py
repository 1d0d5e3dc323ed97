"""Meters through NVML: what they read, and what becomes of them while the driver is away."""

import pytest

from green_core.testing import nvml as stubs

COUNTER = "nvmlDeviceGetTotalEnergyConsumption"


def test_the_counter_of_visible_devices_is_read(stub, script):
    """FIELD E10: by index or UUID, in the given order, each its own, as many as the engine uses."""
    stub.set_counter(2000.0, index=2)
    code = """
found = meters(2)
print(*[m.name for m in found])
print(*[m.method for m in found])
print(*[m.read().energy_j for m in found], found[0].read().at_s, found[0].period_s)
for m in found: m.close()
"""
    visible = f"2,{stub.uuids[0]},1"
    lines = script(stub, code, CUDA_VISIBLE_DEVICES=visible).finish()
    assert lines[0].split() == [stub.uuids[2], stub.uuids[0]]
    assert lines[1] == "measured:nvml-counter measured:nvml-counter"
    assert [float(each) for each in lines[2].split()] == pytest.approx([2000, 1000, 1000, 0.1])


def test_the_session_is_given_back_with_the_last_meter(stub, script):
    code = """
import pynvml
one, two = meters(2)
one.close(); one.close()
print(two.read() is not None)
two.close()
try:
    pynvml.nvmlDeviceGetCount()
except pynvml.NVMLError as error:
    print(error.value == pynvml.NVML_ERROR_UNINITIALIZED)
"""
    assert script(stub, code, CUDA_VISIBLE_DEVICES="0,1").finish() == ["True", "True"]


def test_a_failing_counter_is_asked_again_then_is_a_gap_and_recovers(stub, script):
    """FIELD E4, E17: a lost device gives None, never an exception."""
    code = """
(meter,) = meters()
ask(meter.read().energy_j)
ask(meter.read(), meter.read())      # the device is lost
clock.at_s += 0.5
print(meter.read())                  # it is back, but the pause is not over
clock.at_s += 0.6
print(meter.read().energy_j)
"""
    running = script(stub, code, CUDA_VISIBLE_DEVICES="0")
    assert float(running.says()) == pytest.approx(1000.0)
    stub.set_error(COUNTER, stubs.GPU_IS_LOST)
    running.go()
    assert running.says() == "None None"
    stub.clear_errors()
    stub.set_counter(2000.0)
    running.go()
    paused, back = running.finish()
    assert paused == "None"
    assert float(back) == pytest.approx(2000.0)


def test_a_reloaded_driver_is_found_again_and_its_counter_starts_anew(stub, script):
    """FIELD E17, E11: the reset is passed on as it is; who follows the counter judges it."""
    code = """
(meter,) = meters()
ask(meter.read().energy_j)
print(meter.read())
clock.at_s += 1.1
print(meter.read().energy_j)
"""
    running = script(stub, code, CUDA_VISIBLE_DEVICES="0")
    assert float(running.says()) == pytest.approx(1000.0)
    stub.reload_driver()
    stub.set_counter(5.0)
    running.go()
    assert running.finish() == ["None", "5.0"]


@pytest.mark.parametrize("energy_j", [0.0, 3.0, 9e14])
def test_a_leap_of_the_counter_is_not_smoothed_away(stub, script, energy_j):
    """FIELD E11: a wrap, a reset or an overflow reaches the plausibility check."""
    code = "(meter,) = meters()\nask(meter.read().energy_j)\nprint(meter.read().energy_j)\n"
    running = script(stub, code, CUDA_VISIBLE_DEVICES="0")
    running.says()
    stub.set_counter(energy_j)
    running.go()
    assert float(running.finish()[0]) == pytest.approx(energy_j, rel=1e-6)


def test_one_device_that_fails_does_not_pass_for_another(stub, script):
    """FIELD E17: each device has its own answers and its own errors."""
    code = """
one, two = meters(2)
ask(one.read() is not None, two.read() is not None)
print(one.read() is not None, two.read() is not None)
"""
    running = script(stub, code, CUDA_VISIBLE_DEVICES="0,1")
    assert running.says() == "True True"
    stub.set_error(COUNTER, stubs.GPU_IS_LOST, index=1)
    running.go()
    assert running.finish() == ["True False"]


def test_pauses_between_attempts_grow_up_to_a_minute(stub, script):
    """FIELD E17: a driver that stays away is not asked all the time."""
    code = """
import pynvml
attempts, refuses, init = 0, False, pynvml.nvmlInit
def counted():
    global attempts
    attempts += 1
    if refuses:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    init()
pynvml.nvmlInit = counted
(meter,) = meters()
refuses = True
ask()
for _ in range(3600):
    meter.read()
    clock.at_s += 1
print(attempts)
"""
    running = script(stub, code, CUDA_VISIBLE_DEVICES="0")
    running.says()
    stub.set_error(COUNTER, stubs.UNKNOWN)
    running.go()
    (attempts,) = running.finish()
    assert 50 < int(attempts) < 80


def test_nvml_is_not_opened_before_a_fork_and_opens_again_in_the_child(stub, script):
    """FIELD E16: importing opens nothing, and a child that inherits a meter can read it."""
    code = """
import pynvml
assert pynvml.nvmlLib is None, "loaded by import"
(meter,) = meters()
print(meter.read() is not None, flush=True)
pid = os.fork()
if pid == 0:
    print(meter.read() is not None, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(meter.read() is not None)
"""
    assert script(stub, code, CUDA_VISIBLE_DEVICES="0").finish() == ["True"] * 3


WHY = """
for count, visible in ((1, None), (1, ""), (4, None), (1, "MIG-1")):
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    try:
        print([m.name for m in meters(count)])
    except MeterUnavailable as error:
        print(error)
"""


def test_what_cannot_be_metered_is_said_with_a_way_out(stub, script):
    lines = script(stub, WHY).finish()
    assert stub.uuids[0] in lines[0]
    assert "shows 0 of the 3" in lines[1]
    assert "uses 4 device(s)" in lines[2]
    assert "'MIG-1' shows 0" in lines[3]


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("nvmlInitWithFlags", stubs.DRIVER_NOT_LOADED, "nvidia-smi"),
        ("nvmlDeviceGetCount_v2", stubs.NO_PERMISSION, "/dev/nvidia"),
        ("nvmlDeviceGetUUID", stubs.UNKNOWN, "nvidia-smi"),
    ],
)
def test_a_driver_that_refuses_is_unavailable_with_a_way_out(stub, script, function, code, words):
    """FIELD E6: no permission is said, not raised through."""
    stub.set_error(function, code)
    (first, *_) = script(stub, WHY).finish()
    assert words in first
    assert 'energy.meter = "model"' in first


def test_without_the_python_package_there_is_no_meter_and_it_is_said(script):
    """FIELD E2."""
    code = 'sys.modules["pynvml"] = None\n' + WHY
    assert "nvidia-ml-py cannot be imported" in script(None, code).finish()[0]
