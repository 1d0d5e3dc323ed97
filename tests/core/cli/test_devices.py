"""``green devices``."""

import json

import pytest

from green_core.cli import run


def test_every_device_is_listed_and_what_is_unknown_is_a_dash(capsys):
    assert run(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (h100,) = [line for line in lines if line.startswith("NVIDIA H100 80GB HBM3")]
    assert " ".join(h100.split()[4:]) == "700 W 71.8 W 121.7 W 989.5 TFLOP/s 3350 GB/s 164 kgCO2e"
    (pcie,) = [line for line in lines if line.startswith("NVIDIA H100 PCIe")]
    assert pcie.split()[-1] == "-"


def test_one_device_is_shown_with_the_source_and_year_of_each_figure(capsys):
    assert run(["devices", "H100 80GB HBM3"]) == 0
    out = capsys.readouterr().out
    assert "NVIDIA HGX H100 Product Carbon Footprint Summary" in out
    assert "2025" in out
    assert "11% at most" in out
    assert "fitted to measurements" in out


def test_an_unknown_device_is_said_to_be_unknown_with_the_nearest_names(capsys):
    assert run(["devices", "NVIDIA H1000 PCIe"]) == 1
    shown = capsys.readouterr()
    assert "estimated:model(unknown device)" in shown.out
    assert "nothing is known" in shown.err
    assert "'NVIDIA H100 PCIe'" in shown.err


@pytest.mark.parametrize("name", ["cpu", "MI300X"])
def test_json_holds_figures_and_model(capsys, name):
    assert run(["devices", name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["model"]["static_w"] > 0
    assert bool(shown["figures"]) == (name != "cpu")
    assert all(each["source"] and each["year"] for each in shown["figures"])


def test_json_of_all_is_a_list(capsys):
    assert run(["devices", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) > 30
