"""NVML against the compiled stub, in subprocesses (the loader reads its path at start)."""

import os
import shutil
import subprocess
import sys

import pytest

from green_core.energy.nvml import combine
from green_core.testing import nvml as stubs
from green_core.testing.nvml import NvmlStub, build_stub
from green_core.values import Meter, MeterReading

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

# What every script below starts with. The clock is a fake one; the stub has its own.
PRELUDE = """
import os, sys
import msgspec
from green_core.config import EnergyConfig
from green_core.energy import nvml as room
from green_core.energy.build import build_meter
from green_core.errors import MeterUnavailable
from green_core.testing.builders import engine_info

def engine(count=1, device="NVIDIA H100 80GB HBM3"):
    return engine_info(device=device, device_count=count)

class Clock:
    at_s = 1000.0
    def __call__(self):
        return self.at_s

clock = Clock()
def meters(count=1):
    return room.nvml_meters(engine(count), now_s=clock)

def ask(*values):
    '''Tell the test something and wait until it answers.'''
    print(*values, flush=True)
    return sys.stdin.readline()
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stub(library, tmp_path):
    return NvmlStub(tmp_path, library=library, count=3)


class Script:
    """A subprocess that speaks line by line."""

    def __init__(self, stub, code, **env):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(stub.env() if stub else {}), **env},
        )

    def says(self):
        return self.process.stdout.readline().strip()

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self):
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return out.splitlines()


def test_the_counter_of_visible_devices_is_read(stub):
    """FIELD E10: by index or UUID, in the given order, as many as the engine uses."""
    stub.set_power(0.0)
    code = """
found = meters(2)
print(*[m.name for m in found])
print(*[m.method for m in found])
print(found[0].read().energy_j, found[0].read().at_s)
both = room.combine(found)
print(both.read().energy_j, both.method, both.period_s)
both.close()
"""
    lines = Script(stub, code, CUDA_VISIBLE_DEVICES=f"2,{stub.uuids[0]},1").finish()
    assert lines[0].split() == [stub.uuids[2], stub.uuids[0]]
    assert lines[1] == "measured:nvml-counter measured:nvml-counter"
    counter_j, at_s = map(float, lines[2].split())
    assert counter_j == pytest.approx(1000.0, abs=1.0)
    assert at_s == 1000.0
    assert lines[3].split()[1:] == ["measured:nvml-counter", "0.1"]
    assert float(lines[3].split()[0]) == pytest.approx(2 * counter_j)


def test_a_failing_counter_is_asked_again_then_is_a_gap_and_recovers(stub):
    """FIELD E4, E17: a lost device and a reloaded driver give None, never an exception."""
    stub.set_power(0.0)
    code = """
(meter,) = meters()
ask(meter.read().energy_j)
ask(meter.read(), meter.read())      # the device is lost
clock.at_s += 0.5
print(meter.read())                  # it is back, but the pause is not over
clock.at_s += 0.6
ask(meter.read().energy_j)
print(meter.read())                  # the driver was reloaded
clock.at_s += 1.1
print(meter.read().energy_j)
"""
    script = Script(stub, code, CUDA_VISIBLE_DEVICES="0")
    assert float(script.says()) == pytest.approx(1000.0, abs=1.0)
    stub.set_error("nvmlDeviceGetTotalEnergyConsumption", stubs.GPU_IS_LOST)
    script.go()
    assert script.says() == "None None"
    stub.clear_errors()
    stub.set_counter(2000.0)
    script.go()
    assert script.says() == "None"
    assert float(script.says()) == pytest.approx(2000.0, abs=1.0)
    stub.reload_driver()
    stub.set_counter(5.0)
    script.go()
    assert script.finish() == ["None", "5.0"]


def test_pauses_between_attempts_grow_up_to_a_minute(stub):
    """FIELD E17: a driver that stays away is not asked all the time."""
    code = """
(meter,) = meters()
ask()
attempts = 0
def refuse():
    global attempts
    attempts += 1
    raise room_nvml.NVMLError(9)
import pynvml as room_nvml
meter.read()
room_nvml.nvmlInit = refuse
for _ in range(3600):
    clock.at_s += 1
    meter.read()
print(attempts)
"""
    script = Script(stub, code, CUDA_VISIBLE_DEVICES="0")
    script.says()
    stub.set_error("nvmlDeviceGetTotalEnergyConsumption", stubs.UNKNOWN)
    script.go()
    (attempts,) = script.finish()
    assert 50 < int(attempts) < 80


def test_a_device_without_a_counter_is_sampled_by_power(stub):
    """FIELD E3, E13: probed query by query, and the method says which one it was."""
    stub.set_power(250.0)
    stub.set_error("nvmlDeviceGetTotalEnergyConsumption", stubs.NOT_SUPPORTED)
    code = """
(meter,) = meters()
print(meter.method)
meter.read()
clock.at_s += 4
print(meter.read().energy_j)
clock.at_s -= 9
print(meter.read().energy_j)
"""
    lines = Script(stub, code, CUDA_VISIBLE_DEVICES="0").finish()
    assert lines[0] == "measured:nvml-power"
    assert [float(line) for line in lines[1:]] == [1000.0, 1000.0]


def test_nvml_is_not_opened_before_a_fork_and_opens_again_in_the_child(stub):
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
    assert Script(stub, code, CUDA_VISIBLE_DEVICES="0").finish() == ["True"] * 3


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


def test_what_cannot_be_metered_is_said_with_a_way_out(stub):
    lines = Script(stub, WHY).finish()
    assert stub.uuids[0] in lines[0]
    assert "shows 0 of the 3" in lines[1]
    assert "uses 4 device(s)" in lines[2]
    assert "MIG slice" in lines[3]


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("nvmlInitWithFlags", stubs.DRIVER_NOT_LOADED, "nvidia-smi"),
        ("nvmlDeviceGetCount_v2", stubs.NO_PERMISSION, "/dev/nvidia"),
    ],
)
def test_a_driver_that_refuses_is_unavailable_with_a_way_out(stub, function, code, words):
    """FIELD E6: no permission is said, not raised through."""
    stub.set_error(function, code)
    (first, *_) = Script(stub, WHY).finish()
    assert words in first
    assert 'energy.meter = "model"' in first


BUILD = """
for wanted, device in (("auto", "h100"), ("nvml", "h100"), ("auto", "cpu"), ("nvml", "cpu"),
                       ("model", "h100")):
    try:
        meter = build_meter(EnergyConfig(meter=wanted), engine(device=device))
        print(meter and meter.method)
        if meter:
            meter.close()
    except MeterUnavailable as error:
        print(error)
"""


def test_auto_takes_the_meter_and_a_cpu_engine_never_takes_a_gpu_meter(stub, tmp_path):
    lines = Script(stub, BUILD, XDG_RUNTIME_DIR=str(tmp_path)).finish()
    assert lines[:3] == ["measured:nvml-counter", "measured:nvml-counter", "None"]
    assert "runs on the CPU" in lines[3]
    assert lines[4] == "None"


def test_without_a_driver_auto_falls_back_and_nvml_is_refused(tmp_path):
    """FIELD E2: no meter is unavailable, never zero joules."""
    empty = {"LD_LIBRARY_PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    blocked = """
import pynvml
def absent(flags): raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
pynvml.nvmlInitWithFlags = absent
"""
    lines = Script(None, blocked + BUILD, **empty).finish()
    assert lines[0] == "None"
    assert "--gpus all" in lines[1]


def test_a_second_engine_on_the_same_device_does_not_meter_it(stub, tmp_path):
    """FIELD E8."""
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}
    code = 'held = build_meter(EnergyConfig(meter="nvml"), engine())\nask(held.method)\n'
    first = Script(stub, code, **env)
    assert first.says() == "measured:nvml-counter"
    lines = Script(stub, BUILD, **env).finish()
    assert lines[0] == "None"
    assert f"already metered by process {first.process.pid}" in lines[1]
    assert Script(stub, BUILD, **{**env, "CUDA_VISIBLE_DEVICES": "1"}).finish()[0] != "None"
    first.go()
    first.finish()


def test_a_combined_meter_has_a_gap_when_one_of_its_devices_has_one():
    closed = []

    def meter(name, energy_j, method):
        def read():
            return None if energy_j is None else MeterReading(energy_j, energy_j)

        return Meter(name, method, 0.1, read, lambda: closed.append(name))

    both = combine([meter("a", 1.0, "measured:x"), meter("b", 2.0, "measured:y")])
    assert both.read() == MeterReading(2.0, 3.0)
    assert (both.name, both.method) == ("a,b", "measured:x+measured:y")
    both.close()
    assert closed == ["a", "b"]
    assert combine([meter("a", 1.0, "m"), meter("b", None, "m")]).read() is None
