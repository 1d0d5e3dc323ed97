"""``vllm serve`` with green installed: dormant unless asked, live if asked, or not at all.

One run of the driver serves all tests: importing vLLM is what takes the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MIDDLEWARE = "vllm_green.http.GreenMiddleware"
DORMANT = {"engine": False, "front": False, "http": False}
LIVE = {"engine": True, "front": True, "http": True}
# All that may be imported to offer two flags: nothing that meters, decides or serves.
LIGHT = {"green_core", "vllm_green"} | {
    f"green_core.{name}" for name in ("activation", "config", "errors", "spec", "values")
}

Started = dict[str, dict[str, Any]]
GRID = "ts_utc,ci_lca\n2024-05-01T00:00Z,300\n2024-05-01T01:00Z,100\n"
# What no server may start with: the config's text (or None: no file), and what the line must say.
BAD_CONFIGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown key": ('[carbon]\nzones = "DE"', ("carbon.zones", "unknown key", "'zone'")),
    "unknown table": ('[carbn]\nzone = "DE"', ("carbn", "unknown key", "'carbon'")),
    "unknown profile": ('profile = "green"', ("profile", "'green'", "measure")),
    "unknown policy": ('[policies]\nbatch = "slow"', ("policies.batch", "'slow'", "'slo'")),
    "unknown parameter": (
        '[policies]\nadmission = "deadline"\n[policies.deadline]\nsaftey = 2',
        ("policies.deadline.saftey", "unknown key", "'safety'"),
    ),
    "unknown zone": ('[carbon]\nzone = "Germoney"', ("carbon.zone", "Germoney")),
    "unknown source": ('[carbon]\nsource = "fil"', ("carbon.source", "'fil'", "'file'")),
    "unknown meter": ('[energy]\nmeter = "nvlm"', ("energy.meter", "'nvlm'", "'nvml'")),
    "lever without effect": ('[policies]\ncache = "slo"', ("policies.cache", "slo")),
    "negative deadline": (
        "[admission]\ndefault_deadline_s = -5",
        ("admission.default_deadline_s", "-5"),
    ),
    "negative hold": ("[admission]\nmax_hold_s = -1", ("admission.max_hold_s", "-1")),
    "not a number": ("[energy]\npue = nan", ("energy.pue", "nan")),
    "infinite": ("[carbon]\nspeed = inf", ("carbon.speed", "inf")),
    "not TOML": ("[carbon", ("not valid TOML",)),
    "empty CSV": ("[carbon]\nsource = 'file'\npath = 'empty.csv'", ("empty.csv",)),
    "one-line CSV": ("[carbon]\nsource = 'file'\npath = 'one.csv'", ("one.csv",)),
    "naive times": ("[carbon]\nsource = 'file'\npath = 'naive.csv'", ("naive.csv", "offset")),
    "no such CSV": ("[carbon]\nsource = 'file'\npath = 'none.csv'", ("none.csv",)),
    "mixed kinds": ('[carbon]\nkind = "marginal"\nzone = "DE"', ("carbon.kind", "average")),
    "bad caller": ('[marks]\ncallers = ["10.0.0.0/99"]', ("marks.callers", "10.0.0.0/99")),
}


def cases(folder: Path) -> list[dict[str, Any]]:
    """Everything the driver is to try; configs lie in ``folder``."""
    good = folder / "green.toml"
    good.write_text('[carbon]\nzone = "DE"\n')
    (folder / "empty.csv").write_text("")
    (folder / "one.csv").write_text(GRID.partition("\n")[0] + "\n")
    (folder / "naive.csv").write_text(GRID.replace("Z", ""))
    (folder / "plain.yaml").write_text(f"plugins: green\ngreen-config: {good}\n")
    flags = {
        "not asked": [],
        "--plugins green": ["--plugins", "green"],
        "--plugins=green": ["--plugins=green"],
        "--plugins other": ["--plugins", "other"],
        "--plugins other,green": ["--plugins", "other,green"],
        "--green-config": ["--green-config", str(good)],
        "yaml": ["M", "--config", str(folder / "plain.yaml")],
        "config first": ["--green-config", str(good), "--plugins", "green"],
        "middleware twice": [
            *("--middleware", "vllm_green.http.GreenMiddleware", "--middleware", "json.dumps"),
            *("--plugins", "green", "--green-config", str(good)),
        ],
        "unreadable": ["--green-config", str(folder / "missing.toml")],
    }
    found = [{"name": name, "argv": ["serve", *argv]} for name, argv in flags.items()]
    on = ["serve", "--plugins", "green,third"]
    for name, env, argv in (
        ("whitelist", {"VLLM_PLUGINS": "other,green"}, on),
        ("GREEN_ENABLE=1", {"GREEN_ENABLE": "1"}, ["serve"]),
        ("GREEN_CONFIG", {"GREEN_CONFIG": str(good)}, ["serve"]),
        ("GREEN_ENABLE=0", {"GREEN_ENABLE": "0", "GREEN_CONFIG": str(good)}, ["serve"]),
        ("GREEN_ENABLE=maybe", {"GREEN_ENABLE": "maybe"}, ["serve"]),
        ("bad variable", {"GREEN_ENABLE": "1", "GREEN_CARBON_ZONES": "DE"}, ["serve"]),
        ("rust", {"VLLM_USE_RUST_FRONTEND": "1"}, on),
    ):
        found.append({"name": name, "env": env, "argv": argv})
    for name, (text, _) in BAD_CONFIGS.items():
        path = folder / f"{name.replace(' ', '-')}.toml"
        path.write_text(text)
        found.append({"name": name, "argv": ["serve", "--green-config", str(path)]})
    bad = folder / "unknown-key.toml"
    for name, call, env in (
        ("enable()", "embed", {"TEST_CONFIG": str(good)}),
        ("enable(bad)", "embed", {"TEST_CONFIG": str(bad)}),
        ("fork", "fork_again", {}),
        ("key 1", "compile_key", {}),
        ("key 2", "compile_key", {"TEST_CONFIG": str(good)}),
        ("unverified", "unverified", {}),
        ("moved", "moved", {}),
    ):
        found.append({"name": name, "call": call, "env": env})
    return found


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Started:
    """What became of each case, by name."""
    folder = tmp_path_factory.mktemp("seams")
    driver = Path(__file__).with_name("vllm_driver.py")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("GREEN_", "VLLM_PLUG"))}
    done = subprocess.run(
        [sys.executable, str(driver)],
        input=json.dumps(cases(folder)),
        env={**inherited, "TMPDIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: Started = json.loads(done.stdout)
    return answers


def light(module: str) -> bool:
    within = module.startswith(("green_core.config.", "green_core.values."))
    return module in LIGHT or within or module == "vllm_green.cli"


@pytest.mark.parametrize("name", ["not asked", "--plugins other", "GREEN_ENABLE=0"])
def test_installed_but_not_asked_is_dormant(started: Started, name: str) -> None:
    """No symbol patched, no thread, nothing imported but what offers the flags."""
    seen = started[name]
    assert seen["code"] == 0
    assert seen["live"] == DORMANT
    assert seen["threads"] == []
    assert [module for module in seen["modules"] if not light(module)] == []
    assert seen["middleware"] == []
    assert seen["GREEN_RUN_DIR"] is None
    assert seen["VLLM_PLUGINS"] is None


@pytest.mark.parametrize("name", ["not asked", "--plugins green", "GREEN_ENABLE=1"])
def test_vllms_parser_is_itself_again_after_parsing(started: Started, name: str) -> None:
    assert started[name]["parser_restored"]


@pytest.mark.parametrize(
    "name",
    [
        "--plugins green",
        "--plugins=green",
        "--plugins other,green",
        "--green-config",
        "yaml",
        "config first",
        "middleware twice",
        "whitelist",
        "GREEN_ENABLE=1",
        "GREEN_CONFIG",
    ],
)
def test_asked_in_any_way_is_live(started: Started, name: str) -> None:
    """FIELD P3. No thread yet: the server may still fork."""
    seen = started[name]
    assert seen["code"] == 0, seen["stderr"]
    assert seen["live"] == LIVE
    assert seen["threads"] == []
    assert seen["middleware"].count(MIDDLEWARE) == 1
    assert seen["GREEN_ENABLE"] == "1"


def test_middleware_of_others_is_kept(started: Started) -> None:
    assert started["middleware twice"]["middleware"] == [MIDDLEWARE, "json.dumps"]


def test_a_whitelist_of_plugins_is_extended_and_never_narrowed(started: Started) -> None:
    """Where there is none, none is made: everything keeps loading."""
    assert started["whitelist"]["VLLM_PLUGINS"] == "other,green,third"
    for name in ("--plugins green", "--plugins other,green", "GREEN_ENABLE=1"):
        assert started[name]["VLLM_PLUGINS"] is None


def refused(seen: dict[str, Any]) -> str:
    """The one line of a refusal."""
    assert seen["code"] == 2, seen["stderr"]
    lines = seen["stderr"].strip().splitlines()
    assert len(lines) == 1, seen["stderr"]
    assert lines[0].startswith("green: ")
    return str(lines[0])


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_bad_config_is_one_line_before_the_engine_starts(started: Started, name: str) -> None:
    line = refused(started[name])
    for word in BAD_CONFIGS[name][1]:
        assert word in line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unreadable", ("missing.toml", "No such file")),
        ("bad variable", ("GREEN_CARBON_ZONES", "GREEN_CARBON_ZONE")),
        ("GREEN_ENABLE=maybe", ("GREEN_ENABLE", "'maybe'")),
        ("rust", ("VLLM_USE_RUST_FRONTEND", "Unset it")),
    ],
)
def test_a_bad_set_up_is_one_line_before_the_engine_starts(
    started: Started, name: str, words: tuple[str, ...]
) -> None:
    line = refused(started[name])
    for word in words:
        assert word in line


def test_a_program_of_ones_own_can_ask(started: Started) -> None:
    seen = started["enable()"]
    assert seen["code"] == 0, seen["stderr"]
    assert seen["live"]["engine"]
    assert seen["live"]["front"]


def test_a_program_of_ones_own_gets_an_exception(started: Started) -> None:
    seen = started["enable(bad)"]
    assert seen["code"] == 1
    assert "ConfigError: carbon.zones: unknown key" in seen["stderr"].splitlines()[-1]


def test_a_forked_child_proves_its_seams_anew(started: Started) -> None:
    """FIELD P1."""
    seen = started["fork"]
    assert seen["parent_started"] == seen["parent"]
    assert seen["child"]["code"] == 0, seen["child"]["stderr"]
    assert seen["child"]["started"] == seen["child"]["pid"] != seen["parent"]
    assert seen["child"]["live"]["engine"]


def test_a_release_nobody_verified_is_refused_whole(started: Started) -> None:
    seen = started["unverified"]
    assert seen["refused"].startswith("EngineUnsupported: vLLM 0.99.0 was not verified")
    assert "0.32.0" in seen["refused"]
    assert seen["live"] == DORMANT


def test_a_moved_symbol_is_named_and_nothing_is_half_patched(started: Started) -> None:
    """FIELD P4."""
    seen = started["moved"]
    assert seen["refused"].startswith("SeamMoved: ")
    assert "Scheduler.schedule takes (self, budget), expected (self," in seen["refused"]
    assert seen["live"] == DORMANT


def test_a_start_does_not_change_the_key_of_compiled_graphs(started: Started) -> None:
    """What differs from start to start (run folder, config) would compile everything anew."""
    keys = [dict(started[name]) for name in ("key 1", "key 2")]
    for key in keys:
        assert key.pop("code") == 0, key["stderr"]
        del key["stderr"], key["pid"]
        assert not [name for name in key if "GREEN" in name]
    assert keys[0] == keys[1]
    assert len(keys[0]) > 50
