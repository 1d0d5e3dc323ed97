"""What the packaging tests look at: the tree, the built distributions, a clean installation."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="session")
def tracked() -> list[Path]:
    """Every file that git tracks or would track, relative to the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    names = sorted({name for name in answer.stdout.split("\0") if name})
    return [Path(name) for name in names if (REPOSITORY / name).is_file()]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with sdist and wheel: built by tox already, or built here."""
    if built := os.environ.get("GREENSERVE_DIST"):
        return Path(built)
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(REPOSITORY)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def wheel_path(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def wheel(wheel_path: Path) -> dict[str, bytes]:
    """The wheel's files, by name."""
    with zipfile.ZipFile(wheel_path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="session")
def installed_bin(wheel_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment that holds the wheel and its dependencies alone."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel_path)]
    subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
    return folder / "bin"
