"""What a user gets from the wheel and the sdist."""

import configparser
import tarfile
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

PACKAGES = {"green_core": "core", "vllm_green": "plugins"}


def dist_info(wheel: dict[str, bytes], file: str) -> bytes:
    (name,) = (name for name in wheel if name.endswith(f".dist-info/{file}"))
    return wheel[name]


def test_the_wheel_holds_every_file_of_both_packages_and_nothing_else(
    wheel: dict[str, bytes], repository: Path, tracked: list[Path]
) -> None:
    """Data files too: the static intensity table, the NVML stub, the type markers."""
    expected = {
        name.relative_to(room).as_posix()
        for package, room in PACKAGES.items()
        for name in tracked
        if name.is_relative_to(f"{room}/{package}")
    }
    assert {name for name in wheel if ".dist-info/" not in name} == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_says_that_it_is_typed(wheel: dict[str, bytes], package: str) -> None:
    assert f"{package}/py.typed" in wheel


def test_the_static_intensity_table_is_in_the_wheel(wheel: dict[str, bytes]) -> None:
    assert len(wheel["green_core/grid/static_table.csv"].splitlines()) > 1


def test_no_test_is_in_the_wheel(wheel: dict[str, bytes]) -> None:
    assert [name for name in wheel if "test_" in name or name.startswith("tests")] == []


def test_entry_points_are_those_in_pyproject(
    wheel: dict[str, bytes], pyproject: dict[str, Any]
) -> None:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(dist_info(wheel, "entry_points.txt").decode())
    built = {group: dict(parser[group]) for group in parser.sections()}
    project = pyproject["project"]
    assert built == {"console_scripts": project["scripts"], **project["entry-points"]}


def test_metadata_carries_version_and_licence(
    wheel: dict[str, bytes], pyproject: dict[str, Any], repository: Path
) -> None:
    metadata = BytesParser().parsebytes(dist_info(wheel, "METADATA"))
    assert metadata["Version"] == pyproject["project"]["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert dist_info(wheel, "licenses/LICENSE") == (repository / "LICENSE").read_bytes()


def test_no_engine_is_a_dependency(wheel: dict[str, bytes]) -> None:
    """Engines are chosen by the user; without an extra none is dragged in."""
    metadata = BytesParser().parsebytes(dist_info(wheel, "METADATA"))
    plain = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    heavy = ("vllm", "sglang", "torch", "pandas", "numpy", "duckdb")
    assert [text for text in plain if text.lower().startswith(heavy)] == []


def test_the_sdist_can_rebuild_and_retest_the_project(dist: Path, tracked: list[Path]) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {name.as_posix() for name in tracked if name.parts[0] in {"core", "plugins", "tests"}}
    assert needed | {"LICENSE", "README.md", "pyproject.toml", "tox.ini"} <= names
