import re

import msgspec
import pytest

from green_core.config import EnergyConfig
from green_core.energy.devices import device_model, known_devices
from green_core.energy.figures import QUANTITIES, figure, figures, listed
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


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA B300 SXM6 AC", "H100", "A100", "", "  "]
)
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


FIGURES = [each for name in listed() for each in figures(name)]


def test_every_figure_names_its_document_and_year():
    for each in FIGURES:
        assert 2015 < each.year < 2030
        assert each.method in {"measured", "datasheet", "estimated"}
        assert QUANTITIES[each.quantity].unit == each.unit
        # "a datasheet" says nothing: the document has to be named by maker or by arXiv number.
        assert re.search(r"NVIDIA|AMD|Intel|ADEME|arXiv:\d{4}\.\d{5}|ML\.ENERGY", each.source), each


def test_no_figure_stands_twice():
    keys = [(each.device, each.quantity, each.note) for each in FIGURES]
    assert len(set(keys)) == len(keys)


def test_figures_are_of_a_plausible_size():
    """A slip of the unit (kW, TFLOP, kg) is off by a thousand."""
    bounds = {
        "power_limit_w": (50, 1500),
        "idle_w": (5, 200),
        "idle_context_w": (20, 200),
        "peak_flops": (1e13, 1e16),
        "memory_bytes_per_s": (1e11, 2e13),
        "joules_per_token": (0.01, 10),
        "embodied_g": (2e4, 1e6),
    }
    for each in FIGURES:
        low, high = bounds.get(each.quantity, (0, float("inf")))
        assert low < each.value < high, each


def test_an_idle_device_draws_less_without_a_context_and_less_than_its_limit():
    for name in listed():
        order = [
            found.value
            for quantity in ("idle_w", "idle_context_w", "power_limit_w")
            if (found := figure(name, quantity))
        ]
        assert order == sorted(order)


def test_a_device_without_a_footprint_has_none_and_not_a_neighbours():
    assert device_model("NVIDIA H100 80GB HBM3").embodied_g == 164_000
    assert device_model("NVIDIA H100 PCIe").embodied_g is None
    assert device_model("unheard of").embodied_g is None
    assert device_model("cpu").embodied_g is None


def test_only_the_fit_has_a_known_error_and_an_override_loses_it(kit):
    fitted = device_model("NVIDIA H100 80GB HBM3")
    assert StepModel(fitted, kit.engine).uncertainty_ratio == 0.11
    assert StepModel(fitted, kit.engine).embodied_g == 164_000
    overridden = device_model("NVIDIA H100 80GB HBM3", EnergyConfig(byte_j=1e-10))
    assert overridden.uncertainty_ratio is None
    assert overridden.embodied_g == 164_000
    others = [d for d in known_devices() if d.name != fitted.name]
    assert {d.uncertainty_ratio for d in others} == {None}


def test_a_measured_idle_power_is_taken_rather_than_a_scaled_one():
    assert device_model("NVIDIA L40S").static_w == 102.1
    assert device_model("NVIDIA L4").static_w == pytest.approx(120 * 72 / 700)


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("H100 PCIe", "NVIDIA H100 PCIe"),
        ("rtx 4090", "NVIDIA GeForce RTX 4090"),
        ("GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("Instinct MI300X", "AMD Instinct MI300X"),
        ("mi210", "AMD Instinct MI210"),
        ("GAUDI3", "Intel Gaudi 3"),
        ("NVIDIA  T4", "Tesla T4"),
        ("amd epyc 7763", "AMD EPYC 7763"),
    ],
)
def test_a_missing_maker_does_not_hide_a_device(short, name):
    assert figures(short) == figures(name)
    assert figures(name)[0].device == name


def test_a_device_with_figures_but_no_peak_has_generic_constants():
    assert figures("AMD EPYC 9654")
    assert device_model("AMD EPYC 9654").method == "estimated:model(unknown device)"
