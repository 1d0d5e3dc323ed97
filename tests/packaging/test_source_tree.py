"""Rules for the files in the repository."""

import re
from pathlib import Path
from typing import Any

LINES_AT_MOST = 400
# A folder of the machine that the project was written on; matches no URL and no relative path.
MACHINE_PATH = re.compile(r"(?<![\w.\-/}])/(?:work|root|home|Users|tmp/env)/\w")


def read_text(path: Path) -> str | None:
    """Return a file's text, or ``None`` for a binary file."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return None


def test_no_python_file_is_longer_than_400_lines(repository: Path, tracked: list[Path]) -> None:
    lengths = {
        str(name): len((repository / name).read_text("utf-8").splitlines())
        for name in tracked
        if name.suffix == ".py"
    }
    assert {name: n for name, n in lengths.items() if n > LINES_AT_MOST} == {}


def test_no_file_names_a_folder_of_one_machine(repository: Path, tracked: list[Path]) -> None:
    found = {
        f"{name}:{number}": line.strip()
        for name in tracked
        for number, line in enumerate((read_text(repository / name) or "").splitlines(), 1)
        if MACHINE_PATH.search(line)
    }
    assert found == {}


def test_the_rule_about_machine_paths_can_fail() -> None:
    assert MACHINE_PATH.search("open('/" + "work/main/x')")
    assert not MACHINE_PATH.search("https://example.org/" + "home/x")


def test_the_licence_is_apache_2(repository: Path, pyproject: dict[str, Any]) -> None:
    text = (repository / "LICENSE").read_text("utf-8")
    assert pyproject["project"]["license"] == "Apache-2.0"
    assert re.match(r"\s*Apache License\s+Version 2\.0, January 2004\s", text)
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_begins_with_the_version_in_pyproject(
    repository: Path, pyproject: dict[str, Any]
) -> None:
    text = (repository / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(
        r"^## \[(?P<version>\d[^\]]*)\] - (unreleased|\d{4}-\d{2}-\d{2})$", text, re.M
    )
    assert heading is not None, "no heading like: ## [0.1.0] - unreleased"
    assert heading["version"] == pyproject["project"]["version"]


def test_no_module_repeats_the_version(
    repository: Path, tracked: list[Path], pyproject: dict[str, Any]
) -> None:
    """The number is written once; code asks ``importlib.metadata`` for it."""
    literal = re.compile(rf"""["']{re.escape(pyproject["project"]["version"])}["']""")
    repeated = [
        str(name)
        for name in tracked
        if name.parts[0] in {"core", "plugins"} and name.suffix == ".py"
        if literal.search((repository / name).read_text("utf-8"))
    ]
    assert repeated == []


def test_continuous_integration_runs_the_command_that_the_readme_gives(repository: Path) -> None:
    command = (repository / ".ci" / "run").read_text("utf-8").splitlines()[-1]
    assert command.startswith("python -m pip install tox")
    assert command in (repository / "README.md").read_text("utf-8")


def test_every_default_tox_environment_is_described(repository: Path) -> None:
    text = (repository / "tox.ini").read_text("utf-8")
    listed = re.search(r"^env_list = (.+)$", text, re.MULTILINE)
    assert listed is not None
    guide = (repository / "CONTRIBUTING.md").read_text("utf-8")
    names = [*listed[1].split(", "), "demo", "bench-vllm"]
    assert [name for name in names if f"`{name}`" not in guide] == []
    assert [name for name in names if f"[testenv:{name}]" not in text] == []
