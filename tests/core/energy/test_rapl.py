import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.energy.powercap import zones_of
from green_core.energy.processes import ServerTime
from green_core.energy.rapl import METHOD, rapl_meters
from green_core.energy.track import CounterTrack
from green_core.errors import MeterUnavailable
from green_core.testing.builders import engine_info
from green_core.testing.proc import ProcTree
from green_core.testing.rapl import RANGE_UJ, RaplTree


class Scene:
    """One machine; this server is process 100."""

    def __init__(self, folder, *, cpus=None, **options):
        self.at_s = 1000.0
        self.tree = RaplTree(folder, **options)
        self.proc = ProcTree(folder, cpus=4)
        self.proc.start(100, 1)
        self.proc.start(200, 1)
        self.allowed = {0} if cpus is None else cpus

    def open(self):
        (meter,) = rapl_meters(
            engine_info(device="cpu"),
            now_s=lambda: self.at_s,
            powercap=self.tree.powercap,
            tree=self.tree.cpus,
            cpus=self.allowed,
            times=lambda cpus: ServerTime(
                cpus=cpus,
                proc=self.proc.path,
                pid=100,
                root=lambda: 100,
                engines=set,
                steady_s=lambda: self.at_s,
            ),
        )
        return meter

    def names(self):
        zones = zones_of(self.allowed, powercap=self.tree.powercap, tree=self.tree.cpus)
        return [zone.name for zone in zones]


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_packages_and_dram_are_counted_once(tmp_path):
    """FIELD E7: neither psys, nor a package's parts, nor the MMIO copies are added."""
    scene = Scene(tmp_path, psys=True, mmio=True)
    assert scene.names() == ["package-0", "package-0 dram"]
    meter = scene.open()
    for name, joules in (("package-0", 60.0), ("core-0", 40.0), ("dram-0", 6.0), ("psys", 90.0)):
        scene.tree.add_j(name, joules)
    scene.proc.work(100, 1.0)
    scene.at_s += 1.0
    assert meter.read().energy_j == pytest.approx(66.0)
    assert meter.name == "rapl:package-0+package-0 dram"


def test_the_platform_counts_where_no_package_is_listed(tmp_path):
    """FIELD E7."""
    assert Scene(tmp_path, packages=0, psys=True).names() == ["psys"]


def test_mmio_counters_serve_where_there_are_no_others(tmp_path):
    scene = Scene(tmp_path, mmio=True, dram=False)
    for zone in list(scene.tree.powercap.iterdir()):
        if zone.name.startswith("intel-rapl:"):
            zone.rename(tmp_path / zone.name)
    assert scene.names() == ["package-0"]


def test_the_parts_of_a_package_with_two_dies_are_both_counted(tmp_path):
    scene = Scene(tmp_path, packages=2, dram=False)
    for number in range(2):
        (scene.tree.powercap / f"intel-rapl:{number}" / "name").write_text(
            f"package-0-die-{number}\n"
        )
    assert scene.names() == ["package-0-die-0", "package-0-die-1"]


@pytest.mark.parametrize(
    ("cpus", "joules"), [({0}, 10.0), ({2, 3}, 100.0), ({1, 2}, 110.0)], ids=str
)
def test_only_the_packages_of_our_own_cpus_are_counted(tmp_path, cpus, joules):
    """FIELD E10."""
    scene = Scene(tmp_path, packages=2, cpus=cpus)
    meter = scene.open()
    scene.tree.add_j("package-0", 10.0)
    scene.tree.add_j("package-1", 100.0)
    scene.at_s += 1.0
    assert meter.read().energy_j == pytest.approx(joules)


def test_a_server_pays_for_its_part_of_the_busy_time_and_others_for_the_rest(scene):
    """FIELD E8, E10: a package counts every process on it."""
    meter = scene.open()
    scene.tree.add_j("package-0", 100.0)
    scene.proc.work(100, 0.75, cpu=1)
    scene.proc.work(200, 0.25)
    scene.proc.work(200, 50.0, cpu=3)  # on the other socket
    scene.at_s += 1.0
    assert meter.read().energy_j == pytest.approx(75.0)
    assert meter.rest_j() == pytest.approx(25.0)
    scene.tree.add_j("package-0", 10.0)  # nobody works: it is all ours
    scene.at_s += 1.0
    assert meter.read().energy_j == pytest.approx(85.0)
    assert meter.method == METHOD == "measured:rapl(cpu-time share)"


def test_a_counter_that_wraps_loses_nothing(scene):
    """FIELD E1."""
    scene.tree.set_uj("package-0", RANGE_UJ - 1_000_000)
    meter = scene.open()
    for _ in range(3):
        scene.tree.add_j("package-0", 2.0)
        scene.at_s += 1.0
        reading = meter.read()
    assert reading.energy_j == pytest.approx(6.0)
    assert not reading.restarts


def test_a_wrap_of_unknown_range_is_a_gap(tmp_path):
    """FIELD E1: never negative, never made up."""
    scene = Scene(tmp_path, range_uj=None)
    scene.tree.set_uj("package-0", 5_000_000)
    meter = scene.open()
    scene.tree.set_uj("package-0", 1_000_000)
    scene.at_s += 1.0
    reading = meter.read()
    assert (reading.restarts, reading.energy_j) == (True, 0.0)
    scene.tree.add_j("package-0", 3.0)
    scene.at_s += 1.0
    assert meter.read().energy_j == pytest.approx(3.0)
    assert not meter.read().restarts


def test_a_counter_nobody_looked_at_for_long_is_a_gap(scene):
    """FIELD E1, E11: it may have wrapped unseen."""
    meter = scene.open()
    scene.tree.add_j("package-0", 3.0)
    scene.at_s += 3600.0
    assert meter.read().restarts


def test_a_zone_that_fails_is_a_gap_and_recovers(scene):
    """FIELD E2, E17."""
    meter = scene.open()
    file = scene.tree.powercap / "intel-rapl:0" / "energy_uj"
    file.write_text("")
    scene.at_s += 1.0
    assert meter.read().restarts
    scene.tree.set_uj("package-0", 500_000_000)
    scene.at_s += 1.0
    assert meter.read().restarts
    scene.tree.add_j("package-0", 4.0)
    scene.at_s += 1.0
    assert meter.read().energy_j == pytest.approx(4.0)


def test_joules_whose_cpu_time_could_not_be_read_are_a_gap(scene):
    """FIELD E17: they are not left out of the sum unseen."""
    meter = scene.open()
    stat = scene.proc.path / "stat"
    text = stat.read_text()
    stat.unlink()
    scene.tree.add_j("package-0", 3.0)
    scene.at_s += 1.0
    assert meter.read() is None
    stat.write_text(text)
    scene.at_s += 1.0
    assert meter.read().restarts
    scene.at_s += 1.0
    assert not meter.read().restarts


def test_counters_for_root_only_are_unavailable_with_file_and_remedy(scene):
    """FIELD E2, E6: said, not counted as nothing."""
    scene.tree.forbid("package-0")
    scene.tree.forbid("dram-0")
    with pytest.raises(MeterUnavailable, match=r"intel-rapl:0/energy_uj cannot be read.*chmod"):
        scene.open()


def test_what_can_be_read_is_measured_and_the_rest_is_said(scene, caplog):
    """FIELD E6."""
    scene.tree.forbid("dram-0")
    with caplog.at_level(logging.WARNING, "greenserve"):
        meter = scene.open()
    assert "does not count package-0 dram" in caplog.text
    assert meter.name == "rapl:package-0"
    scene.tree.add_j("package-0", 5.0)
    scene.at_s += 1.0
    assert meter.read().energy_j == pytest.approx(5.0)


def test_a_machine_without_rapl_is_unavailable_with_a_way_out(tmp_path):
    """FIELD E2."""
    with pytest.raises(MeterUnavailable, match="intel_rapl_msr.*containers.*model"):
        rapl_meters(engine_info(), powercap=tmp_path / "none", tree=tmp_path)


def test_reading_faster_than_cpu_time_is_counted_shows_the_same_reading(scene):
    """FIELD E12: an interval too short to tell shares apart is not 0 J."""
    meter = scene.open()
    first = meter.read()
    scene.tree.add_j("package-0", 1.0)
    scene.at_s += 0.1
    assert meter.read() == first
    scene.at_s += meter.period_s
    assert meter.read().energy_j == pytest.approx(1.0)


@given(
    moves=st.lists(
        st.tuples(st.floats(0.0, 400.0), st.floats(0.0, 2000.0), st.booleans()), max_size=20
    )
)
def test_whatever_the_counter_does_no_energy_is_negative(tmp_path_factory, moves):
    """FIELD E1."""
    scene = Scene(tmp_path_factory.mktemp("rapl"), dram=False)
    meter = scene.open()
    track = CounterTrack(
        method=METHOD,
        model_method="estimated:model",
        period_s=meter.period_s,
        max_w=3000.0,
        max_gap_s=10.0,
        start_s=scene.at_s,
    )
    last_j = 0.0
    for seconds, joules, falls in moves:
        scene.at_s += seconds
        if falls:
            scene.tree.set_uj("package-0", 0)
        scene.tree.add_j("package-0", joules)
        reading = meter.read()
        assert reading.energy_j >= last_j
        last_j = reading.energy_j
        stretch = track.observe(scene.at_s, reading)
        assert stretch is None or stretch.metered_j is None or stretch.metered_j >= 0.0
