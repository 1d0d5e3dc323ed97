"""tools/engine_env.py: parts are made once, in order, and never left half made."""

import importlib.util
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RECIPE = """
[env]
install = ["engine==1"]
install_without_dependencies = ["weights==1"]
uninstall = ["harmful"]
alias_metadata = {{ alias-name = "1.0+cpu" }}
check = "import {module}"

[model]
name = "tiny"
maker = "maker.py"

[[advice]]
found = "No module named"
say = "install the module"
"""


@pytest.fixture
def tool(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, with one recipe named ``fake`` in a tools folder of its own."""
    spec = importlib.util.spec_from_file_location("engine_env", repository / "tools/engine_env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tools = tmp_path / "tools"
    (tools / "engines").mkdir(parents=True)
    (tools / "maker.py").write_text("first")
    (tmp_path / "pyproject.toml").write_text("first")
    monkeypatch.setattr(module, "TOOLS", tools)
    monkeypatch.setattr(module, "RECIPES", tools / "engines")
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    write_recipe(module, "json")
    return module


def write_recipe(tool: ModuleType, module: str) -> None:
    (tool.RECIPES / "fake.toml").write_text(RECIPE.format(module=module))


def shape(recipe: dict[str, Any]) -> dict[str, set[str]]:
    """Return the keys of a recipe's tables, and of the first of each list of tables."""
    tables = {
        part: table[0] if isinstance(table, list) else table for part, table in recipe.items()
    }
    return {part: set(table) for part, table in tables.items()}


class Steps:
    """Stands for the commands: notes each, makes what the tool relies on, fails on request."""

    def __init__(self, tool: ModuleType, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.tool = tool
        self.root = root
        self.done: list[str] = []
        self.fail_at = ""
        steps = self

        def run(environment: object, what: str, *command: str) -> None:
            steps.done.append(what)
            if steps.fail_at and what.startswith(steps.fail_at):
                raise tool.StepFailed(what)
            if what.startswith("create"):
                (root / "venv/bin").mkdir(parents=True)
                (root / "venv/bin/python").touch()
                (root / "venv/lib/python3.11/site-packages").mkdir(parents=True)

        monkeypatch.setattr(tool.EngineEnvironment, "_run", run)

    def make(self) -> tuple[int, list[str]]:
        """Run the tool; return its status and the first two words of each command."""
        self.done.clear()
        status = self.tool.main(["fake", "--root", str(self.root)])
        return status, [" ".join(what.split()[:2]) for what in self.done]


@pytest.fixture
def steps(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Steps:
    return Steps(tool, monkeypatch, tmp_path / "root")


ENVIRONMENT = ["create the", "pip install", "pip install", "pip uninstall", "check the"]
PROJECT = ["pip install"]
MODEL = ["run maker.py"]


def test_everything_is_made_once(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    assert steps.make() == (0, ENVIRONMENT + PROJECT + MODEL)
    assert capsys.readouterr().out == f"{steps.root}/venv/bin/python\n"
    assert steps.make() == (0, [])


def test_a_changed_recipe_makes_the_environment_again_but_not_the_model(steps: Steps) -> None:
    steps.make()
    write_recipe(steps.tool, "csv")
    assert steps.make() == (0, ENVIRONMENT + PROJECT)


def test_a_changed_pyproject_reinstalls_the_project_alone(steps: Steps) -> None:
    steps.make()
    (steps.tool.REPOSITORY / "pyproject.toml").write_text("second")
    assert steps.make() == (0, PROJECT)


def test_a_changed_maker_makes_the_model_again(steps: Steps) -> None:
    steps.make()
    (steps.tool.TOOLS / "maker.py").write_text("second")
    assert steps.make() == (0, MODEL)


def test_a_vanished_interpreter_makes_the_environment_again(steps: Steps) -> None:
    steps.make()
    (steps.root / "venv/bin/python").unlink()
    status, done = steps.make()
    assert (status, done[: len(ENVIRONMENT)]) == (0, ENVIRONMENT)


@pytest.mark.parametrize("step", ["create", "pip uninstall", "check"])
def test_a_failed_installation_starts_afresh_next_time(steps: Steps, step: str) -> None:
    steps.fail_at = step
    assert steps.make()[0] == 1
    steps.fail_at = ""
    assert steps.make() == (0, ENVIRONMENT + PROJECT + MODEL)


def test_a_failed_model_is_not_left_in_its_place(steps: Steps) -> None:
    steps.fail_at = "run maker.py"
    assert steps.make()[0] == 1
    assert not (steps.root / "models/tiny").exists()
    steps.fail_at = ""
    assert steps.make() == (0, MODEL)


def test_alias_metadata_is_found_as_a_distribution(steps: Steps) -> None:
    steps.make()
    site_packages = steps.root / "venv/lib/python3.11/site-packages"
    (alias,) = distributions(name="alias-name", path=[str(site_packages)])
    assert alias.version == "1.0+cpu"
    assert alias.files is not None
    assert all(Path(str(file.locate())).is_file() for file in alias.files)


def test_a_failed_command_shows_its_log_and_the_advice(tool: ModuleType, tmp_path: Path) -> None:
    environment = tool.EngineEnvironment("fake", tmp_path)
    with pytest.raises(tool.StepFailed) as failure:
        environment._run("look", sys.executable, "-c", "import no_such_module")
    assert "No module named 'no_such_module'" in str(failure.value)
    assert "`look` ended with status 1" in str(failure.value)
    assert "Advice: install the module" in str(failure.value)


def test_installed_packages_are_compiled_whatever_the_caller_has_set(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "kept")
    script = "import sys, os; assert not sys.dont_write_bytecode; os.environ['PIP_FIND_LINKS']"
    tool.EngineEnvironment("fake", tmp_path)._run("look", sys.executable, "-c", script)


def test_a_second_run_waits_for_the_first(tool: ModuleType, tmp_path: Path) -> None:
    script = (
        "import importlib.util, pathlib, sys\n"
        "spec = importlib.util.spec_from_file_location('engine_env', sys.argv[1])\n"
        "tool = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(tool)\n"
        "with tool.locked(pathlib.Path(sys.argv[2])):\n"
        "    print('entered', file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", script, tool.__file__, str(tmp_path)]
    with tool.locked(tmp_path):
        second = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert second.stderr is not None
        assert "waiting for another run" in second.stderr.readline()
        assert second.poll() is None
    assert second.communicate()[1] == "entered\n"
    assert second.returncode == 0


def test_every_recipe_has_the_keys_that_the_tool_reads(repository: Path) -> None:
    expected = shape(tomllib.loads(RECIPE.format(module="json")))
    for path in (repository / "tools/engines").glob("*.toml"):
        recipe = tomllib.loads(path.read_text("utf-8"))
        assert shape(recipe) == expected
        assert (repository / "tools" / recipe["model"]["maker"]).is_file()
