"""The wheel in an environment of its own: no engine, no development tools."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# What importing a package may load besides the standard library and itself. The engine imports
# the plugin in every process it starts, asked for or not.
ALLOWED = {
    "green_core": {"green_core", "msgspec", "pluggy", "typing_extensions"},
    "vllm_green": {"vllm_green"},
}
MODULES_AT_MOST = {"green_core": 150, "vllm_green": 20}

LIST_LOADED = """
import json, sys
before = set(sys.modules)
import {package}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
LOAD_ENTRY_POINTS = """
from importlib.metadata import distribution
for entry_point in distribution("greenserve").entry_points:
    try:
        assert callable(entry_point.load())
    except Exception as problem:
        print(entry_point.name, "=", entry_point.value, "->", repr(problem))
"""


def run(bin_folder: Path, *command: str) -> str:
    """Run a program of the clean environment, away from the repository; return its output."""
    answer = subprocess.run(
        [str(bin_folder / command[0]), *command[1:]],
        cwd=bin_folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("package", ALLOWED)
def test_importing_a_package_is_light(installed_bin: Path, package: str) -> None:
    script = LIST_LOADED.format(package=package)
    loaded = json.loads(run(installed_bin, "python", "-I", "-c", script))
    roots = {name.partition(".")[0] for name in loaded}
    assert roots - sys.stdlib_module_names <= ALLOWED[package]
    assert len(loaded) <= MODULES_AT_MOST[package], loaded


def test_green_version_prints_the_version(installed_bin: Path, pyproject: dict[str, Any]) -> None:
    assert pyproject["project"]["version"] in run(installed_bin, "green", "version").split()


def test_every_entry_point_loads_without_an_engine(installed_bin: Path) -> None:
    assert run(installed_bin, "python", "-I", "-c", LOAD_ENTRY_POINTS) == ""
