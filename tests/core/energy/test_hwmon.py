import pytest

from green_core.energy.hwmon import METHOD, hwmon_meters, power_channels
from green_core.errors import MeterUnavailable
from green_core.testing.builders import engine_info
from green_core.testing.hwmon import HwmonTree


class Scene:
    def __init__(self, folder):
        self.at_s = 1000.0
        self.tree = HwmonTree(folder)

    def open(self):
        (meter,) = hwmon_meters(engine_info(), now_s=lambda: self.at_s, root=self.tree.root)
        return meter


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


@pytest.mark.parametrize(
    "sensor",
    [
        {"chip": "power_meter", "ending": "average", "below_device": True},
        {"chip": "power_meter", "ending": "average"},
        {"chip": "ibmpowernv", "label": "System"},
        {"chip": "macsmc_hwmon", "label": "Total System Power"},
    ],
    ids=lambda sensor: sensor["chip"],
)
def test_a_sensor_of_the_whole_node_is_added_up(scene, sensor):
    """FIELD E7: a drive's or a GPU's sensor beside it is no part of it."""
    scene.tree.add("nvme", watts=7.0)
    scene.tree.add("amdgpu", watts=300.0, ending="average")
    file = scene.tree.add(**sensor, watts=400.0)
    meter = scene.open()
    scene.at_s += 1.0
    scene.tree.set(file, 500.0)
    assert meter.read().energy_j == pytest.approx(450.0)
    assert (meter.name, meter.method) == ("node", METHOD)
    assert METHOD == "measured:hwmon(node)"


def test_a_sensor_of_a_part_is_never_taken_for_the_node(scene):
    """FIELD E2, E10: what was found is listed."""
    file = scene.tree.add("nvme", watts=7.0, label="drive")
    with pytest.raises(MeterUnavailable, match="measures the whole node") as it:
        scene.open()
    assert f"{file} (nvme 'drive')" in str(it.value)


def test_two_sensors_of_the_node_are_refused(scene):
    """FIELD E7: they may be two views of one thing."""
    scene.tree.add("power_meter", watts=400.0, ending="average")
    scene.tree.add("power_meter", watts=390.0, ending="average")
    with pytest.raises(MeterUnavailable, match="Several sensors"):
        scene.open()


def test_of_one_sensors_files_the_average_is_taken(scene):
    file = scene.tree.add("power_meter", watts=400.0)
    scene.tree.set(file.with_name("power1_average"), 350.0)
    (channel,) = power_channels(scene.tree.root)
    assert channel.read_w() == pytest.approx(350.0)


def test_a_sensor_that_fails_or_rests_is_a_gap(scene):
    """FIELD E2, E17."""
    file = scene.tree.add("power_meter", watts=100.0)
    meter = scene.open()
    scene.at_s += 1.0
    file.write_text("")
    assert meter.read() is None
    scene.tree.set(file, 100.0)
    scene.at_s += 1.0
    assert meter.read().energy_j == pytest.approx(200.0)
    scene.at_s += 3600.0
    reading = meter.read()
    assert (reading.restarts, reading.energy_j) == (True, pytest.approx(200.0))


def test_a_machine_without_sensors_is_unavailable(tmp_path):
    """FIELD E2."""
    with pytest.raises(MeterUnavailable, match=r"found: nothing.*acpi_power_meter"):
        hwmon_meters(engine_info(), root=tmp_path / "none")


def test_a_sensor_that_cannot_be_read_is_unavailable(scene):
    """FIELD E6."""
    file = scene.tree.add("power_meter", watts=100.0)
    file.unlink()
    file.mkdir()
    with pytest.raises(MeterUnavailable, match="power1_input .* cannot be read"):
        scene.open()
