"""The stub's setters, which power levers are tested against."""

from green_core.testing import nvml as stubs
from green_core.testing.nvml import NvmlStub

OPEN = """
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
def refused(function, *args):
    try:
        function(*args)
    except pynvml.NVMLError as error:
        return error.value
def limit():
    return pynvml.nvmlDeviceGetPowerManagementLimit(device)
def clock_mhz():
    return pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM)
"""


def test_a_limit_that_one_process_sets_is_seen_by_others_and_by_the_test(stub, script):
    code = """
print(limit(), *pynvml.nvmlDeviceGetPowerManagementLimitConstraints(device))
pynvml.nvmlDeviceSetPowerManagementLimit(device, 450_000)
ask(limit(), pynvml.nvmlDeviceGetEnforcedPowerLimit(device))
print(limit(), pynvml.nvmlDeviceGetPowerManagementDefaultLimit(device))
"""
    assert stub.power_limit_w() is None
    running = script(stub, OPEN + code)
    assert running.says() == "700000 200000 700000"
    assert running.says() == "450000 450000"
    assert (stub.power_limit_w(), stub.power_limit_w(1)) == (450.0, None)
    assert script(stub, OPEN + "print(limit())").finish() == ["450000"]
    stub.set_power_limit(500.0)
    running.go()
    assert running.finish() == ["500000 700000"]
    assert stub.changes() == ["power_limit_mw.0=450000", "power_limit_mw.0=500000"]


def test_clocks_are_locked_and_reset(stub, script):
    code = """
print(clock_mhz(), pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_SM))
pynvml.nvmlDeviceSetGpuLockedClocks(device, 210, 1500)
ask(clock_mhz())
pynvml.nvmlDeviceResetGpuLockedClocks(device)
print(clock_mhz())
(memory,) = pynvml.nvmlDeviceGetSupportedMemoryClocks(device)
clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(device, memory)
print(clocks[0], clocks[-1], len(clocks))
"""
    running = script(stub, OPEN + code)
    assert running.says() == "1980 1980"
    assert running.says() == "1500"
    assert stub.locked_clocks_mhz() == (210, 1500)
    running.go()
    assert running.finish() == ["1980", "1980 345 110"]
    assert stub.locked_clocks_mhz() is None


def test_what_a_setter_refuses_changes_nothing(stub, script):
    stub.set_error("nvmlDeviceSetGpuLockedClocks", stubs.NO_PERMISSION)
    code = """
print(refused(pynvml.nvmlDeviceSetPowerManagementLimit, device, 900_000),
      refused(pynvml.nvmlDeviceSetPowerManagementLimit, device, 100_000),
      refused(pynvml.nvmlDeviceSetGpuLockedClocks, device, 300, 900))
"""
    wanted = f"{stubs.INVALID_ARGUMENT} {stubs.INVALID_ARGUMENT} {stubs.NO_PERMISSION}"
    assert script(stub, OPEN + code).finish() == [wanted]
    assert stub.changes() == []


def test_a_reload_of_the_driver_forgets_what_was_set(stub):
    stub.set_power_limit(500.0)
    stub.lock_clocks(300, 900)
    stub.reload_driver()
    assert (stub.power_limit_w(), stub.locked_clocks_mhz()) == (None, None)


def test_devices_have_names_values_and_errors_of_their_own(tmp_path, library, script):
    stub = NvmlStub(tmp_path, library=library, count=2, name=["A", "B"])
    stub.set("gpu_percent", 37, index=1)
    stub.set_error("nvmlDeviceGetPowerManagementLimit", stubs.NOT_SUPPORTED, index=1)
    code = """
for i in range(2):
    device = pynvml.nvmlDeviceGetHandleByIndex(i)
    print(pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUtilizationRates(device).gpu,
          refused(pynvml.nvmlDeviceGetPowerManagementLimit, device))
"""
    assert script(stub, OPEN + code).finish() == ["A 0 None", f"B 37 {stubs.NOT_SUPPORTED}"]


def test_what_the_stub_does_not_have_is_not_found_as_in_an_old_driver(stub, script):
    """FIELD E3."""
    code = "print(refused(pynvml.nvmlDeviceGetSerial, device))"
    assert script(stub, OPEN + code).finish() == [str(stubs.FUNCTION_NOT_FOUND)]
