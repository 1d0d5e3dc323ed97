"""The NVIDIA lever against the compiled stub, in subprocesses."""

import shutil

import pytest

from green_core.testing import nvml as stubs
from green_core.testing.nvml import MigSlice, NvmlStub

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

SET = "nvmlDeviceSetPowerManagementLimit"
LOCK = "nvmlDeviceSetGpuLockedClocks"
RECORDS = "greenserve/power-*.json"


def limits(stub):
    """The limits that were set on board 0, in W, without the probe of the present one."""
    return [
        float(line.split("=")[1]) * 1e-3
        for line in stub.changes()
        if line.startswith("power_limit_mw.0=")
    ][1:]


def test_a_limit_is_set_and_what_was_found_comes_back_at_the_end(stub, run, tmp_path):
    """FIELD E15: the operator's value, not the factory's."""
    stub.set_power_limit(600.0)
    code = """
it = lever()
print(it.problem == "", it.limit_w, it.describe())
it.apply(PowerTarget(power_limit_w=450.0))
ask()
it.close()
"""
    script = run(code)
    assert script.says() == (
        "True 600.0 power limit (found 600 W) and clocks 345 to 1980 MHz on 1 device(s)"
    )
    script.says()
    assert stub.power_limit_w() == 450.0
    assert list(tmp_path.glob(RECORDS))
    script.go()
    script.finish()
    assert stub.power_limit_w() == 600.0
    assert not list(tmp_path.glob(RECORDS))
    assert stub.power_limit_w(1) is None


def test_an_operators_change_meanwhile_wins(stub, run):
    """FIELD E15: it is neither overwritten nor taken back, and nothing is set any more."""
    code = """
it = lever()
it.apply(PowerTarget(power_limit_w=450.0))
ask()
it.apply(PowerTarget(power_limit_w=400.0))
it.apply(PowerTarget(power_limit_w=350.0))
print(it.problem)
it.close()
"""
    script = run(code)
    script.says()
    stub.set_power_limit(500.0)
    script.go()
    (problem,) = script.finish()
    assert "changed by somebody else" in problem
    assert stub.power_limit_w() == 500.0
    assert script.err.count("changed by somebody else") == 1


def test_an_operators_change_is_noticed_when_an_engine_that_idles_gives_back(stub, run):
    """FIELD E15: not taken for the limit to lower further once it works again."""
    code = """
it = lever()
it.apply(PowerTarget(power_limit_w=450.0))
print(it.set_w)
ask()
it.restore()
print(it.set_w, it.problem)
it.apply(PowerTarget(power_limit_w=350.0))
it.close()
"""
    script = run(code)
    assert script.says() == "450.0"
    script.says()
    stub.set_power_limit(500.0)
    script.go()
    (said,) = script.finish()
    assert said.startswith("None the power limit was changed by somebody else")
    assert stub.power_limit_w() == 500.0


def test_an_operators_change_before_the_end_is_not_taken_back(stub, run):
    """FIELD E15."""
    script = run("it = lever()\nit.apply(PowerTarget(power_limit_w=450.0))\nask()\nit.close()\n")
    script.says()
    stub.set_power_limit(300.0)
    script.go()
    script.finish()
    assert stub.power_limit_w() == 300.0


def test_a_limit_that_the_operator_changed_while_we_had_none_is_the_new_one(stub, run):
    code = """
it = lever()
it.apply(PowerTarget(power_limit_w=450.0))
it.apply(PowerTarget())
ask()
it.apply(PowerTarget(power_limit_w=450.0))
it.close()
print(it.problem)
"""
    script = run(code)
    script.says()
    assert stub.power_limit_w() == 700.0
    stub.set_power_limit(550.0)
    script.go()
    assert script.finish() == [""]
    assert stub.power_limit_w() == 550.0


def test_without_permission_nothing_is_set_and_the_remedy_is_said(stub, run):
    """FIELD E14: probed once, at the start."""
    stub.set_error(SET, stubs.NO_PERMISSION)
    code = """
it = lever()
print(it.problem)
for watts in (500.0, 400.0):
    it.apply(PowerTarget(clock_mhz=1000, power_limit_w=watts))
it.close()
print(it.limit_w, it.failures, it.describe())
"""
    script = run(code)
    problem, rest = script.finish()
    assert "needs root" in problem
    assert "SYS_ADMIN" in problem
    assert "only measured" in problem
    assert rest.startswith("None 0 none: ")
    assert stub.changes() == []


@pytest.mark.parametrize(("asked_w", "set_w"), [(50.0, 200.0), (333.0, 333.0), (5000.0, 600.0)])
def test_a_limit_stays_within_what_the_board_allows_and_what_was_found(stub, run, asked_w, set_w):
    stub.set_power_limit(600.0)
    run(f"it = lever()\nit.apply(PowerTarget(power_limit_w={asked_w}))").finish()
    assert stub.power_limit_w() == set_w


def test_the_probe_changes_nothing_and_equal_targets_are_set_once(stub, run):
    stub.set("power_default_mw", 650e3)
    code = """
it = lever()
for _ in range(5):
    it.apply(PowerTarget(power_limit_w=400.0))
    it.apply(PowerTarget(power_limit_w=400.0, reason="again"))
it.restore()
it.restore()
it.close()
"""
    run(code).finish()
    assert stub.changes()[0] == "power_limit_mw.0=650000"
    assert limits(stub) == [400.0, 650.0]


def test_a_setter_that_fails_later_is_counted_said_once_and_ends_the_lever(stub, run):
    code = """
it = lever(2)
it.apply(PowerTarget(power_limit_w=450.0))
ask()
for watts in (400.0, 350.0):
    it.apply(PowerTarget(power_limit_w=watts))
ask(it.failures, bool(it.problem))
it.close()
"""
    script = run(code, CUDA_VISIBLE_DEVICES="0,1")
    script.says()
    stub.set_error(SET, stubs.UNKNOWN, index=1)
    script.go()
    failures, gave_up = script.says().split()
    assert (int(failures) >= 1, gave_up) == (True, "True")
    assert stub.power_limit_w(0) == 700.0  # the other board is not left limited
    stub.clear_errors()
    script.go()
    script.finish()
    assert stub.power_limit_w(1) == 700.0  # tried again at the end
    assert script.err.count("limits cannot be set") == 1


def test_a_driver_that_was_reloaded_ends_the_lever_and_nothing_raises(stub, run):
    """FIELD E17: the reload undid the limit."""
    script = run(
        "it = lever()\nit.apply(PowerTarget(power_limit_w=450.0))\nask()\n"
        "it.apply(PowerTarget(power_limit_w=400.0))\nit.close()\nprint(it.problem)"
    )
    script.says()
    stub.reload_driver()
    script.go()
    assert "reload of the driver" in script.finish()[0]
    assert stub.power_limit_w() is None


def test_clocks_are_locked_as_a_range_of_supported_ones_and_unlocked(stub, run):
    code = """
it = lever()
it.apply(PowerTarget(clock_mhz=1407))
ask()
it.apply(PowerTarget(clock_mhz=1))
ask()
it.apply(PowerTarget())
it.close()
"""
    script = run(code)
    script.says()
    assert stub.locked_clocks_mhz() == (345, 1395)
    script.go()
    script.says()
    assert stub.locked_clocks_mhz() == (345, 345)
    script.go()
    script.finish()
    assert stub.locked_clocks_mhz() is None


def test_clocks_that_we_did_not_lock_are_never_unlocked(stub, run):
    stub.lock_clocks(900, 900)
    run("it = lever()\nit.apply(PowerTarget(power_limit_w=400.0))\nit.close()").finish()
    assert stub.locked_clocks_mhz() == (900, 900)


def test_a_board_without_a_power_limit_can_still_lock_clocks(stub, run):
    stub.set_error("nvmlDeviceGetPowerManagementLimit", stubs.NOT_SUPPORTED)
    code = """
it = lever()
print(it.problem == "", it.limit_w, it.describe())
it.apply(PowerTarget(clock_mhz=1200, power_limit_w=400.0))
"""
    assert run(code).finish() == ["True None clocks 345 to 1980 MHz on 1 device(s)"]
    assert stub.locked_clocks_mhz() == (345, 1200)


def test_a_board_that_supports_nothing_is_said(stub, run):
    stub.set_error(SET, stubs.NOT_SUPPORTED)
    stub.set_error("nvmlDeviceGetSupportedMemoryClocks", stubs.NOT_SUPPORTED)
    assert "supports neither" in run("print(lever().problem)").finish()[0]


def test_only_the_boards_that_the_engine_uses_are_steered(stub, run):
    """FIELD E10."""
    run("lever().apply(PowerTarget(power_limit_w=400.0))", CUDA_VISIBLE_DEVICES="1").finish()
    assert stub.power_limit_w(1) == 400.0
    assert not [line for line in stub.changes() if ".0=" in line]


def test_one_process_steers_a_board_and_the_next_one_may_follow(stub, run):
    first = run("it = lever()\nask(it.problem)\nit.close()\nask()")
    assert first.says() == ""
    assert "another process steers" in run("print(lever().problem)").finish()[0]
    first.go()
    first.says()
    assert run("print(lever().problem)").finish() == [""]
    first.go()
    first.finish()


def test_a_forked_child_neither_sets_nor_restores(stub, run):
    """FIELD E16."""
    code = """
it = lever()
it.apply(PowerTarget(power_limit_w=450.0))
pid = os.fork()
if pid == 0:
    it.apply(PowerTarget(power_limit_w=300.0))
    it.restore()
    it.close()
    os._exit(0)
os.waitpid(pid, 0)
ask()
it.close()
"""
    script = run(code)
    script.says()
    assert stub.power_limit_w() == 450.0
    script.go()
    script.finish()
    assert stub.power_limit_w() == 700.0


def test_nvml_is_given_back_between_changes(stub, run):
    """FIELD E17: a meter can only open it anew when nobody else holds it."""
    code = """
import pynvml
it = lever()
it.apply(PowerTarget(power_limit_w=450.0))
try:
    pynvml.nvmlDeviceGetCount()
except pynvml.NVMLError as error:
    print(error.value == pynvml.NVML_ERROR_UNINITIALIZED)
"""
    assert run(code).finish() == ["True"]


def test_a_slice_of_a_board_is_not_steered(library, tmp_path, run):
    """FIELD E5: the limit would hold for the neighbours too."""
    NvmlStub(tmp_path, library=library, count=1, mig={0: [MigSlice("MIG-1")]})
    assert "MIG slice" in run("print(lever().problem)").finish()[0]


@pytest.mark.parametrize("device", ["cpu", "AMD Instinct MI300X"])
def test_a_device_without_a_lever_is_said(run, device):
    assert "no lever" in run(f"print(lever(device={device!r}).problem)").finish()[0]


def test_a_machine_without_a_driver_has_no_lever(run):
    blocked = """
import pynvml
def absent(flags): raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
pynvml.nvmlInitWithFlags = absent
print(lever().problem)
"""
    assert "--gpus all" in run(blocked).finish()[0]


def test_a_folder_that_cannot_be_used_is_said(run, tmp_path):
    (tmp_path / "greenserve").write_text("not a folder")
    assert "XDG_RUNTIME_DIR" in run("print(lever().problem)").finish()[0]


def test_a_dirty_grid_lowers_a_boards_limit_and_a_clean_one_gives_it_back(stub, run):
    """Config, policy, steering and lever together."""
    code = """
from green_core.config import GreenConfig, PoliciesConfig
from green_core.manager import GreenManager
from green_core.policies.power_cap import PowerCap
from green_core.power.steering import build_steering
from green_core.testing.builders import grid_view
from green_core.values import LoadView

policies = PoliciesConfig(power="power_cap", params={"power_cap": {"dwell_s": 0}})
manager = GreenManager(GreenConfig(policies=policies), {"power_cap": PowerCap()})
it = build_steering(manager, engine_info(device="NVIDIA H100 80GB HBM3"))
for now_s, intensity in enumerate((450.0, 100.0, 450.0)):
    it.control(LoadView(now_s, 500.0, 0.9, 0.02, 0.3), grid_view(intensity))
    ask(it.active, it.problem)
it.close()
"""
    script = run(code)
    for expected_w in (490.0, 700.0, 490.0):
        assert script.says() == "True"
        assert stub.power_limit_w() == pytest.approx(expected_w)
        script.go()
    script.finish()
    assert stub.power_limit_w() == 700.0
