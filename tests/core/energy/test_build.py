import logging
import os
import sys
import types

import msgspec
import pytest

from green_core.config import EnergyConfig
from green_core.energy.build import METERS, build_model, check_meter, open_meter
from green_core.errors import ConfigError, MeterUnavailable
from green_core.testing.builders import engine_info
from green_core.values import Meter, MeterReading

GPU = engine_info(device="NVIDIA H100 80GB HBM3")
AMD = engine_info(device="AMD_Instinct_MI300X_OAM")
CPU = engine_info(device="cpu")


class Plugins:
    names = ("own",)

    def __init__(self, *meters):
        self._meters = list(meters)

    def meters(self, engine):
        return self._meters


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def vendors(monkeypatch, own_folder):
    """Every built-in meter in place of the real one; answers which were opened and closed."""
    closed = []

    def install(name, *, has=True):
        def meters(engine, *arguments):
            if not has:
                raise MeterUnavailable(f"no {name} here")
            return [
                Meter(
                    f"{name}-{number}",
                    f"measured:{name}",
                    0.1,
                    lambda: MeterReading(1.0, 1.0),
                    lambda number=number: closed.append(f"{name}-{number}"),
                )
                for number in range(engine.device_count)
            ]

        module = types.ModuleType(name)
        setattr(module, f"{name}_meters", meters)
        monkeypatch.setitem(sys.modules, f"green_core.energy.{name}", module)

    for name in METERS:
        install(name)
    return types.SimpleNamespace(install=install, closed=closed)


def opened(wanted, engine=GPU, plugins=None):
    return open_meter(EnergyConfig(meter=wanted), engine, plugins)


@pytest.mark.parametrize(
    ("engine", "method"), [(GPU, "measured:nvml"), (AMD, "measured:amd"), (CPU, "measured:rapl")]
)
def test_auto_takes_the_meter_of_the_engines_own_device(vendors, engine, method):
    choice = opened("auto", engine)
    assert (choice.meter.method, choice.problem) == (method, "")
    choice.meter.close()


def test_auto_falls_back_to_the_model_and_says_why(vendors, caplog):
    """FIELD E2: and never to a meter of something else."""
    vendors.install("nvml", has=False)
    with caplog.at_level(logging.INFO, "greenserve"):
        choice = opened("auto")
    assert (choice.meter, choice.problem) == (None, "no nvml here")
    assert "estimated by the model. no nvml here" in caplog.text


def test_the_model_is_the_model(vendors):
    choice = opened("model")
    assert choice.meter is None
    assert "model" in choice.problem


@pytest.mark.parametrize("name", METERS)
def test_a_meter_by_name_that_cannot_be_had_stops_the_start(vendors, name):
    """FIELD E2: never 0 J."""
    vendors.install(name, has=False)
    with pytest.raises(MeterUnavailable, match=f"no {name} here"):
        opened(name)


@pytest.mark.parametrize("name", ["nvml", "dcgm", "amd"])
def test_a_gpu_meter_is_refused_for_an_engine_on_the_cpu(vendors, name):
    with pytest.raises(MeterUnavailable, match=f"runs on the CPU, which {name}"):
        opened(name, CPU)


def test_gpu_and_host_cpu_are_added_up(vendors):
    engine = msgspec.structs.replace(GPU, device_count=2)
    meter = opened("nvml+rapl", engine).meter
    assert meter.name == "nvml-0,nvml-1,rapl-0,rapl-1"
    assert meter.method == "measured:nvml+measured:rapl"
    assert meter.read().energy_j == 4.0
    meter.close()
    assert len(vendors.closed) == 4


def test_a_half_that_cannot_be_had_closes_the_other(vendors):
    vendors.install("rapl", has=False)
    with pytest.raises(MeterUnavailable, match="no rapl here"):
        opened("nvml+rapl")
    assert vendors.closed == ["nvml-0"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("nvml+dcgm", "nvml and dcgm would count the same GPU twice"),
        ("nvml+nvml", "nvml and nvml would count"),
        ("rapl+cpu", "rapl and cpu would count the same CPU twice"),
        ("hwmon+nvml", "hwmon measures the whole node"),
        ("rapl+ipmi", "ipmi measures the whole node"),
        ("hwmon+ipmi", "hwmon, ipmi measures the whole node"),
        ("nvml+model", "'model' stands alone"),
        ("own+nvml", "'own' stands alone"),
        ("nvlm", "Did you mean 'nvml'"),
        ("nvml+rapll", "unknown meter 'rapll'.*'rapl'"),
        ("", "unknown meter ''"),
        ("nvml+", "unknown meter ''"),
    ],
)
def test_what_would_be_counted_twice_or_is_unknown_is_refused(wanted, words):
    """FIELD E7, E13."""
    with pytest.raises(ConfigError, match=words) as it:
        check_meter(wanted, ["own"])
    assert it.value.path == "energy.meter"


@pytest.mark.parametrize("wanted", [*METERS, "auto", "model", "own", "nvml+rapl", "amd+cpu"])
def test_every_meter_there_is_may_be_named(wanted):
    check_meter(wanted, ["own"])


def test_a_plugins_device_is_shared_with_other_engines(own_folder):
    """FIELD E8."""
    closed = []
    plugins = Plugins(
        Meter(
            "own:0",
            "measured:own",
            0.1,
            lambda: MeterReading(1.0, 1.0),
            lambda: closed.append("own:0"),
        )
    )
    one, two = (opened("own", plugins=plugins).meter for _ in range(2))
    assert one.method == "measured:own"
    assert one.note_work is not None
    other = Plugins(Meter("own:0", "measured:else", 0.1, lambda: None, lambda: None))
    with pytest.raises(MeterUnavailable, match=rf"already metered by process {os.getpid()}"):
        opened("own", plugins=other)
    one.close()
    two.close()
    assert len(closed) == 2


def test_a_look_takes_no_part_in_sharing(vendors, tmp_path):
    choice = open_meter(EnergyConfig(meter="nvml"), GPU, shares=False)
    assert choice.meter.note_work is None
    assert not list(tmp_path.rglob("*.live"))


def test_a_refused_device_closes_all_of_them(own_folder):
    """FIELD E8: all devices or none."""
    closed = []

    def meter(name, method):
        return Meter(name, method, 0.1, lambda: None, lambda: closed.append(name))

    held = opened("own", plugins=Plugins(meter("b", "measured:x"))).meter
    parts = [meter(name, "measured:y") for name in "abc"]
    with pytest.raises(MeterUnavailable, match="Device b"):
        opened("own", plugins=Plugins(*parts))
    assert sorted(closed) == ["a", "b", "c"]
    held.close()


def test_a_plugin_without_meters_is_refused():
    with pytest.raises(MeterUnavailable, match="offers no meter"):
        opened("own", plugins=Plugins())


def test_the_model_follows_device_count_and_overrides():
    engine = msgspec.structs.replace(GPU, device="NVIDIA L4", device_count=4)
    assert build_model(EnergyConfig(static_w=10.0), engine).static_w == 40.0
    assert build_model(EnergyConfig(meter="model"), engine).method.startswith("estimated:model")
