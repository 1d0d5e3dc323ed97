"""What a killed process has left on a board, and who takes it back."""

import json
import shutil

import pytest

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

SET = "nvmlDeviceSetPowerManagementLimit"
RECORDS = "greenserve/power-*.json"


def test_what_a_killed_process_left_is_repaired_at_the_next_start(stub, run, tmp_path):
    """FIELD E15, through kill -9."""
    stub.set_power_limit(650.0)
    code = "it = lever()\nit.apply(PowerTarget(clock_mhz=1200, power_limit_w=400.0))\nask()\n"
    script = run(code)
    script.says()
    script.kill()
    assert stub.power_limit_w() == 400.0
    assert stub.locked_clocks_mhz() == (345, 1200)
    assert run("print(lever().limit_w)").finish() == ["650.0"]
    assert stub.power_limit_w() == 650.0
    assert stub.locked_clocks_mhz() is None
    assert not list(tmp_path.glob(RECORDS))


@pytest.mark.parametrize("policies", ["", 'power="power_cap", shadow=("power",)'])
def test_a_start_that_does_not_steer_repairs_too(stub, run, policies):
    """FIELD E15: the policy may have been removed, or put into shadow, since."""
    script = run("it = lever()\nit.apply(PowerTarget(power_limit_w=400.0))\nask()\n")
    script.says()
    script.kill()
    code = f"""
from green_core.config import GreenConfig, PoliciesConfig
from green_core.manager import GreenManager
from green_core.power.steering import build_steering
manager = GreenManager(GreenConfig(policies=PoliciesConfig({policies})))
build_steering(manager, engine_info(device="NVIDIA H100 80GB HBM3"))
import pynvml
print(pynvml.nvmlLib is not None)
"""
    assert run(code).finish() == ["True"]
    assert stub.power_limit_w() == 700.0
    assert run(code).finish() == ["False"]  # nothing to repair: NVML is not even loaded


@pytest.mark.parametrize("change", ["operator", "reboot", "garbled", "half a change"])
def test_a_record_that_no_longer_fits_changes_nothing(stub, run, tmp_path, change):
    script = run("it = lever()\nit.apply(PowerTarget(power_limit_w=400.0))\nask()\n")
    script.says()
    script.kill()
    (record,) = tmp_path.glob(RECORDS)
    expected = 400.0
    if change == "operator":
        stub.set_power_limit(expected := 500.0)
    elif change == "reboot":
        record.write_text(json.dumps(json.loads(record.read_text()) | {"boot": "another"}))
    elif change == "garbled":
        record.write_text("{")
    else:  # killed after the record was written and before the limit was set
        stub.set_power_limit(expected := 700.0)
    assert run("print(lever().problem)").finish() == [""]
    assert stub.power_limit_w() == expected


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("first", [True, False])
def test_a_kill_at_any_moment_of_a_change_is_repaired(stub, run, moment, first):
    """FIELD E15: just before or just after the driver took a first or a second limit."""
    code = f"""
import pynvml
it = lever()
if not {first}:
    it.apply(PowerTarget(power_limit_w=450.0))
real = pynvml.nvmlDeviceSetPowerManagementLimit
def die(handle, milliwatts):
    if {moment!r} == "after":
        real(handle, milliwatts)
    os._exit(9)
pynvml.nvmlDeviceSetPowerManagementLimit = die
it.apply(PowerTarget(power_limit_w=400.0))
"""
    script = run(code)
    script.process.communicate(timeout=60)
    assert script.process.returncode == 9
    left_w = 400.0 if moment == "after" else 700.0 if first else 450.0
    assert stub.power_limit_w() == left_w
    assert run("print(lever().limit_w)").finish() == ["700.0"]
    assert stub.power_limit_w() == 700.0
