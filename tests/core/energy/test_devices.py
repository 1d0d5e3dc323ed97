import msgspec
import pytest

from green_core.config import EnergyConfig
from green_core.energy.devices import device_model, known_devices
from green_core.energy.model import StepModel
from green_core.values import StepShare, StepView

# ML.ENERGY benchmark v3, Llama 3.1 8B, bfloat16, one H100, chat with 390 output tokens:
# (average batch, output tokens per second, joules per output token).
H100_CHAT = [
    (7.978, 1069.57, 0.454798),
    (31.91, 3391.07, 0.165055),
    (127.6, 7036.53, 0.0951099),
    (510.9, 9805.59, 0.0701945),
]


@pytest.mark.parametrize(("batch", "tokens_per_s", "measured_j"), H100_CHAT)
def test_h100_constants_reproduce_published_joules_per_token(kit, batch, tokens_per_s, measured_j):
    engine = msgspec.structs.replace(kit.engine, parameters=8.03e9, weight_bytes=15e9)
    model = StepModel(device_model("NVIDIA H100 80GB HBM3"), engine)
    prompt, output = 250, 390
    running = round(batch)
    duration_s = running / tokens_per_s
    shares = tuple(StepShare(f"d{i}", 0, 1, prompt + output // 2) for i in range(running))
    cost = model.price(StepView(0.0, duration_s, shares))
    modelled_j = cost.total_j / running + model.prefill_j(prompt) / output
    assert modelled_j == pytest.approx(measured_j, rel=0.13)


def test_every_known_device_names_its_source_and_year():
    for device in known_devices():
        assert device.source
        assert 2015 < device.year < 2030
        assert min(device.static_w, device.flop_j, device.byte_j, device.max_w) > 0
        assert device_model(device.name, cores=1) == device


def test_only_fitted_devices_are_called_measured():
    assert [d.name for d in known_devices() if d.is_measured] == ["NVIDIA H100 80GB HBM3"]


@pytest.mark.parametrize("name", ["H100 80GB HBM3", "nvidia h100 80gb hbm3"])
def test_vendor_prefix_and_case_do_not_matter(name):
    assert device_model(name) == device_model("NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA B200", ""])
def test_an_unknown_device_is_never_taken_for_a_known_one(name):
    device = device_model(name)
    assert device.method == "estimated:model(unknown device)"
    assert not device.is_measured
    assert all(device.flop_j != known.flop_j for known in known_devices())


def test_config_overrides_win_and_are_not_called_measured():
    device = device_model("NVIDIA H100 80GB HBM3", EnergyConfig(byte_j=1e-9))
    assert device.byte_j == 1e-9
    assert device.flop_j == device_model("NVIDIA H100 80GB HBM3").flop_j
    assert not device.is_measured
    assert device.source.startswith("config (byte_j)")


def test_an_unknown_device_described_in_full_is_no_longer_unknown():
    full = EnergyConfig(static_w=0.0, flop_j=1e-12, byte_j=1e-10)
    assert device_model("new", full).method == "estimated:model"
    partly = EnergyConfig(static_w=10.0)
    assert device_model("new", partly).method == "estimated:model(unknown device)"


def test_cpu_static_power_grows_with_cores():
    assert device_model("cpu", cores=64).static_w == pytest.approx(
        64 * device_model("CPU", cores=1).static_w
    )
