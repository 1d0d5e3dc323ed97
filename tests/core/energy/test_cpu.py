import pytest

from green_core.energy.cpu import METHOD, cpu_meters
from green_core.energy.devices import device_model
from green_core.energy.processes import ServerTime
from green_core.errors import MeterUnavailable
from green_core.testing.builders import engine_info
from green_core.testing.proc import ProcTree


class Scene:
    def __init__(self, folder, engines=(100,)):
        self.at_s = 1000.0
        self.proc = ProcTree(folder)
        for pid in (100, 101):
            self.proc.start(pid, 1)
        times = ServerTime(
            proc=self.proc.path,
            pid=100,
            root=lambda: 100,
            engines=lambda: set(engines),
            steady_s=lambda: self.at_s,
        )
        (self.meter,) = cpu_meters(
            engine_info(device="cpu"), now_s=lambda: self.at_s, times=times, cores=4
        )


def test_a_busy_server_costs_static_power_and_its_cpu_seconds(tmp_path):
    scene = Scene(tmp_path)
    model = device_model("cpu", cores=4)
    scene.at_s += 10.0
    scene.proc.work(100, 8.0)
    scene.proc.work(101, 30.0)  # not ours
    expected_j = 10.0 * model.static_w + 8.0 * (model.max_w - model.static_w) / 4
    assert scene.meter.read().energy_j == pytest.approx(expected_j)
    assert scene.meter.method == METHOD == "estimated:cpu-utilisation"
    assert scene.meter.uncertainty_ratio is None


def test_a_machine_at_full_load_costs_its_power_limit(tmp_path):
    scene = Scene(tmp_path)
    scene.at_s += 1.0
    scene.proc.work(100, 4.0)
    assert scene.meter.read().energy_j == pytest.approx(device_model("cpu", cores=4).max_w)


def test_engines_of_one_server_divide_the_static_power(tmp_path):
    """FIELD E8."""
    scene = Scene(tmp_path, engines=(100, 101))
    scene.at_s += 10.0
    assert scene.meter.read().energy_j == pytest.approx(5.0 * device_model("cpu", cores=4).static_w)


def test_a_short_interval_shows_the_same_reading(tmp_path):
    """FIELD E12."""
    scene = Scene(tmp_path)
    first = scene.meter.read()
    scene.at_s += 0.1
    assert scene.meter.read() == first


def test_without_proc_it_is_unavailable(tmp_path):
    """FIELD E2."""
    (tmp_path / "proc").mkdir()
    times = ServerTime(proc=tmp_path / "proc", root=lambda: 1, engines=set)
    with pytest.raises(MeterUnavailable, match="Mount /proc"):
        cpu_meters(engine_info(device="cpu"), times=times)
