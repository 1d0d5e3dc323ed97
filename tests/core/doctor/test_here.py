"""``green doctor`` without a server: this machine, its engines, meters, signal and config."""

import json
import time

import pytest

from green_core.doctor import local, probes
from green_core.doctor.facts import StartFacts
from green_core.doctor.report import EngineReport, MeterReport, SeamReport
from green_core.doctor.starts import note_start
from green_core.testing.status import host_facts

FINE = EngineReport("vllm", "vllm", "0.32.0", ("0.32.0",), True, (SeamReport("a:b", True),))
METERS = (
    MeterReport("nvml", "measured:nvml-counter", "GPU-0", 0.05),
    MeterReport("rapl", problem="no permission"),
)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A quiet physical machine with one verified engine; a test changes what it is about."""
    now = {"engines": (FINE,), "meters": METERS, "host": host_facts()}
    monkeypatch.setattr(probes, "engines", lambda: now["engines"])
    monkeypatch.setattr(probes, "meters", lambda config: now["meters"])
    monkeypatch.setattr(local, "host_facts", lambda: now["host"])
    return now


def write(tmp_path, text):
    file = tmp_path / "green.toml"
    file.write_text(text)
    return file


def test_a_sound_machine_is_reported_and_exits_with_0(green):
    code, out, err = green()
    assert (code, err) == (0, "")
    for words in (
        "vllm 0.32.0 (vllm): verified (verified: 0.32.0); 1 of 1 seams fit",
        "nvml: measured:nvml-counter (GPU-0), uncertain by 5%",
        "rapl: no. no permission",
        "gCO2e/kWh (average",
        "32 CPUs on 2 NUMA node(s); physical",
        "none is remembered",
    ):
        assert words in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_json_has_the_same_keys_whatever_is_found(green, machine):
    keys = [
        *("greenserve_version", "at_s", "host", "engines", "meters", "signal", "settings"),
        *("starts", "problems", "findings", "not_checked"),
    ]
    code, out, _ = green("--json")
    assert (code, list(json.loads(out))) == (0, keys)
    machine.update(engines=(), meters=(), host=host_facts(governors={}))
    code, out, _ = green("--json")
    assert (code, list(json.loads(out))) == (1, keys)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (EngineReport("vllm", problem="was ended by signal 4"), "vllm: was ended by signal 4"),
        (EngineReport("vllm", "vllm", "0.33.0", ("0.32.0",)), "verified are 0.32.0"),
        (
            EngineReport("vllm", "vllm", "0.32.0", ("0.32.0",), False, (SeamReport("a:b", False),)),
            "1 seam(s) do not fit",
        ),
    ],
)
def test_an_engine_that_cannot_be_served_green_is_a_problem(green, machine, engine, words):
    machine["engines"] = (engine,)
    code, out, _ = green("--json")
    assert code == 1
    assert words in " ".join(json.loads(out)["problems"])


def test_a_meter_is_a_problem_only_where_the_config_names_it(green, tmp_path, machine):
    code, out, _ = green("--json", "--config", write(tmp_path, '[energy]\nmeter = "nvml"\n'))
    assert code == 0
    machine["meters"] = (MeterReport("nvml", problem="no driver"),)
    code, out, _ = green("--json", "--config", tmp_path / "green.toml")
    assert code == 1
    (problem,) = json.loads(out)["problems"]
    assert "nvml (energy.meter) is not there: no driver" in problem


def test_a_signal_that_cannot_be_had_is_one_problem(green, tmp_path):
    file = write(tmp_path, '[carbon]\nsource = "file"\npath = "/nowhere.csv"\n')
    code, out, _ = green("--json", "--config", file)
    report = json.loads(out)
    assert code == 1
    assert report["signal"] is None
    (problem,) = report["problems"]
    assert "/nowhere.csv" in problem


def test_a_config_that_cannot_be_read_is_an_error(green, tmp_path):
    code, out, err = green("--config", write(tmp_path, "[carbon]\nzonne = 1\n"))
    assert (code, out) == (2, "")
    assert "carbon.zonne" in err


def test_settings_show_their_origin_and_defaults_only_when_asked_for(green, tmp_path):
    file = write(tmp_path, "[energy]\npue = 1.5\n")
    _, out, _ = green("--config", file)
    assert "energy.pue = 1.5  # file" in out
    assert "energy.idle" not in out
    _, out, _ = green("--config", file, "--all")
    assert 'energy.idle = "apart"  # default' in out


def test_a_model_that_was_started_again_and_again_is_found_without_a_server(green, monkeypatch):
    monkeypatch.setattr("green_core.doctor.starts.is_alive", lambda pid, content: False)
    for ago_s in (60.0, 120.0, 180.0):
        note_start(StartFacts("org/often", time.time() - ago_s, 40.0))
    note_start(StartFacts("org/once", time.time(), 40.0))
    code, out, _ = green("--json")
    report = json.loads(out)
    assert code == 1
    (found,) = report["findings"]
    assert found["trap"] == "repeated_loading"
    assert "3 starts of org/often" in found["evidence"]
    assert len(report["starts"]) == 4


def test_a_trap_of_the_machine_is_found_once_however_many_models_were_started(green, machine):
    machine["host"] = host_facts(governors={}, drivers={})
    for model in ("a", "b"):
        note_start(StartFacts(model, time.time()))
    code, out, _ = green("--json")
    assert code == 1
    assert [found["trap"] for found in json.loads(out)["findings"]] == ["frequency"]
