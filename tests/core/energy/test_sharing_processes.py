"""Real processes on one scripted device."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from green_core.testing.nvml import NvmlStub

ENGINE = """
import sys, time
from pathlib import Path
from green_core.energy.sharing import share
from green_core.values import Meter, MeterReading

# The clock runs fast, so that patience is short.
folder, number, load = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
fast = lambda: time.monotonic() * 20.0
read = lambda: MeterReading(fast(), float((folder / "counter").read_text()))
meter = share(
    Meter("GPU-1", "measured:nvml-counter", 0.1, read, lambda: None, is_absolute=True),
    folder=folder / "shares", now_s=fast, steady_s=fast,
)
began = float(sys.argv[4])
got_j, told, started_s = 0.0, None, fast()
while True:
    meter.note_work(load * (fast() - started_s))
    reading = meter.read()
    if reading is not None:
        got_j = reading.energy_j - began
    now = f"{got_j!r} {meter.rest_j()!r}"
    if now != told:
        draft = folder / f"{number}.draft"
        draft.write_text(now)
        draft.replace(folder / f"{number}.says")
        told = now
    time.sleep(0.005)
"""
LOADS = (8.0, 4.0, 2.0, 2.0)


class Scene:
    """The device's counter and the engines on it."""

    def __init__(self, folder):
        self.folder = folder
        self.counter_j = 0.0
        self.set(1000.0)
        (folder / "shares").mkdir()
        (folder / "engine.py").write_text(ENGINE)
        self.engines = {}

    def set(self, counter_j):
        draft = self.folder / "counter.draft"
        draft.write_text(repr(counter_j))
        draft.replace(self.folder / "counter")
        self.counter_j = counter_j

    def start(self, number):
        command = [sys.executable, str(self.folder / "engine.py"), str(self.folder), str(number)]
        command += [str(LOADS[number]), repr(self.counter_j)]
        self.engines[number] = subprocess.Popen(command)
        self.until((self.folder / f"{number}.says").exists)

    def says(self, number):
        got_j, rest_j = (self.folder / f"{number}.says").read_text().split()
        return float(got_j), float(rest_j)

    def sum_j(self):
        return sum(self.says(number)[0] for number in self.engines)

    def run(self, ticks):
        """The counter moves by 10 J every 20 ms; then it stands until all of it is divided."""
        for _ in range(ticks):
            time.sleep(0.02)
            self.set(self.counter_j + 10.0)

    def until(self, condition):
        give_up_s = time.monotonic() + 30.0
        while not condition():
            assert all(engine.poll() is None for engine in self.engines.values())
            if time.monotonic() > give_up_s:
                pytest.fail(f"{[self.says(n) for n in self.engines]} of {self.counter_j}")
            time.sleep(0.01)


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path)
    yield scene
    for engine in scene.engines.values():
        engine.kill()
        engine.wait()


def test_four_processes_on_one_device_add_up_to_its_counter(scene):
    """FIELD E8: with different loads, after one of them was killed, and with a new one."""
    for number in range(4):
        scene.start(number)
    scene.run(50)
    scene.until(lambda: scene.sum_j() == pytest.approx(500.0))
    shares = [scene.says(number)[0] / 500.0 for number in range(4)]
    assert shares == pytest.approx([0.5, 0.25, 0.125, 0.125], abs=0.12)
    for number in range(4):
        assert sum(scene.says(number)) == pytest.approx(500.0)

    os.kill(scene.engines[0].pid, signal.SIGKILL)
    scene.engines.pop(0).wait()
    before_j, counter_j = scene.sum_j(), scene.counter_j
    scene.run(50)
    # The first division after the kill may still pay for what the dead had noted.
    scene.until(lambda: all(sum(scene.says(n)) == pytest.approx(1000.0) for n in scene.engines))
    after_j = scene.sum_j() - before_j
    assert 0.3 * 500.0 < after_j <= scene.counter_j - counter_j + 1e-6

    settled_j, counter_j = scene.sum_j(), scene.counter_j
    scene.run(20)
    scene.until(lambda: scene.sum_j() - settled_j == pytest.approx(scene.counter_j - counter_j))

    others_j = scene.sum_j()
    (scene.folder / "0.says").unlink()
    scene.start(0)
    scene.run(20)
    scene.until(lambda: scene.sum_j() == pytest.approx(others_j + 200.0))
    assert scene.says(0)[0] > 50.0


BY_NVML = """
import sys, time
from pathlib import Path
from green_core.config import EnergyConfig
from green_core.energy.build import open_meter
from green_core.testing.builders import engine_info

says, load = Path(sys.argv[1]), float(sys.argv[2])
engine = engine_info(device="NVIDIA H100 80GB HBM3")
meter = open_meter(EnergyConfig(meter="nvml"), engine).meter
first_j, started_s = None, time.monotonic()
while True:
    meter.note_work(load * (time.monotonic() - started_s))
    reading = meter.read()
    if reading is not None:
        first_j = reading.energy_j if first_j is None else first_j
        draft = says.with_suffix(".draft")
        draft.write_text(f"{reading.energy_j - first_j!r} {first_j!r} {reading.method}")
        draft.replace(says)
    time.sleep(0.02)
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_engines_that_read_one_gpu_through_nvml_add_up_to_its_counter(tmp_path):
    """FIELD E8, with the library in between and the clock as it is."""
    stub = NvmlStub(tmp_path, watts=300.0)
    env = {**os.environ, **stub.env(), "XDG_RUNTIME_DIR": str(tmp_path)}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    files = [tmp_path / f"{number}.says" for number in range(2)]
    engines = []

    def says(file):
        got_j, first_j, method = file.read_text().split()
        return float(got_j), float(first_j), method

    def until(condition):
        give_up_s = time.monotonic() + 30.0
        while not condition():
            assert time.monotonic() < give_up_s, [file.read_text() for file in files]
            assert all(engine.poll() is None for engine in engines)
            time.sleep(0.02)

    try:
        for file, load in zip(files, ("6.0", "2.0"), strict=True):
            command = [sys.executable, "-c", BY_NVML, str(file), load]
            engines.append(subprocess.Popen(command, env=env))
            until(file.exists)
        began_j = says(files[0])[1]
        until(lambda: says(files[1])[0] > 150.0)
        stub.set_power(0.0)
        total_j = stub.counter_j() - began_j
        until(lambda: sum(says(file)[0] for file in files) == pytest.approx(total_j, abs=1.0))
        assert says(files[0])[0] > says(files[1])[0]
        assert {says(file)[2] for file in files} == {"measured:nvml-counter(shared)"}
    finally:
        for engine in engines:
            engine.kill()
            engine.wait()
