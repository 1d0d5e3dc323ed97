import pytest

from green_core.config import EnergyConfig
from green_core.energy.build import build_meter, build_model
from green_core.errors import MeterUnavailable
from green_core.values import Meter


class Plugins:
    def __init__(self, *meters):
        self._meters = list(meters)

    def meters(self, engine):
        return self._meters


def test_a_plugins_meter_is_claimed_and_closed(kit, tmp_path, monkeypatch):
    """FIELD E8: a plugin's devices have one owner too."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    closed = []
    plugins = Plugins(
        Meter("rapl:0", "measured:rapl", 0.001, lambda: None, lambda: closed.append("rapl:0"))
    )
    config = EnergyConfig(meter="rapl")
    meter = build_meter(config, kit.engine, plugins)
    with pytest.raises(MeterUnavailable, match="rapl:0 is already metered"):
        build_meter(config, kit.engine, plugins)
    meter.close()
    build_meter(config, kit.engine, plugins).close()
    assert meter.method == "measured:rapl"
    assert len(closed) == 3


def test_a_plugin_without_meters_is_refused(kit):
    with pytest.raises(MeterUnavailable, match="offers no meter"):
        build_meter(EnergyConfig(meter="rapl"), kit.engine, Plugins())


def test_the_model_follows_device_count_and_overrides(kit):
    import msgspec

    engine = msgspec.structs.replace(kit.engine, device="NVIDIA L4", device_count=4)
    assert build_model(EnergyConfig(static_w=10.0), engine).static_w == 40.0
    assert build_model(EnergyConfig(meter="model"), engine).method == "estimated:model"
