"""Make the virtual environment and the model that the tests of one engine run with.

    python tools/engine_env.py vllm [--root DIR]

The environment is DIR/venv, the model DIR/models/NAME; DIR is .tox/engines/ENGINE by default.
Progress goes to standard error; the one line on standard output is the interpreter's path.

What goes in is data, ``tools/engines/ENGINE.toml``:

``env.install``                       requirements, resolved together
``env.install_without_dependencies``  requirements taken alone, after those
``env.uninstall``                     distributions that the above drag in and that do harm
``env.alias_metadata``                name = version of distributions that are metadata alone
``env.check``                         Python code that must run in the finished environment
``model.name``, ``model.maker``       the script in ``tools/`` that writes a model to a folder
``advice.found``, ``advice.say``      what to say when a failed command's log holds a text

Each of the three parts (environment, project, model) carries a stamp, a hash of all it was made
from, written when the part is complete. A part whose stamp matches is left alone; any other is
made again from nothing. A lock keeps parallel runs apart. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
REPOSITORY = TOOLS.parent
RECIPES = TOOLS / "engines"
HEARTBEAT_S = 30
LOG_LINES_SHOWN = 40
# Under the first nothing is compiled, and every import of torch takes a minute instead of
# seconds. The others would let the caller's packages into the environment.
UNSET = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH")


class StepFailed(Exception):
    """A command of a recipe failed; the message carries the end of its log and the advice."""


class EngineEnvironment:
    """The environment of one recipe under one root folder."""

    def __init__(self, engine: str, root: Path) -> None:
        recipe = tomllib.loads((RECIPES / f"{engine}.toml").read_text("utf-8"))
        self.engine = engine
        self.root = root
        self.env: dict[str, Any] = recipe["env"]
        self.model: dict[str, str] = recipe["model"]
        self.advice: list[dict[str, str]] = recipe["advice"]
        self.venv = root / "venv"
        self.python = self.venv / "bin" / "python"
        self.model_dir = root / "models" / self.model["name"]

    def make(self) -> None:
        """Make the parts that are missing or out of date."""
        python_build = [platform.python_version(), platform.machine(), str(self.venv)]
        with self._part("environment", self.venv, digest(self.env, python_build)) as stale:
            if stale:
                self._make_venv()
        pyproject = (REPOSITORY / "pyproject.toml").read_text("utf-8")
        with self._part("project", self.venv, digest(pyproject, str(REPOSITORY))) as stale:
            if stale:
                # Editable: changed code is picked up as it is, only a changed pyproject.toml
                # (entry points, dependencies) needs this again.
                self._pip("install", "--editable", str(REPOSITORY))
        maker = TOOLS / self.model["maker"]
        wanted = digest(self.model, maker.read_text("utf-8"))
        with self._part("model", self.model_dir, wanted) as stale:
            if stale:
                self._make_model(maker)

    @contextlib.contextmanager
    def _part(self, part: str, folder: Path, wanted: str) -> Iterator[bool]:
        """Yield whether the part must be made; stamp its folder if the block ends well."""
        stamp = folder / f".{part}.stamp"
        # The interpreter is a link that dangles when the Python it came from is removed.
        stale = not (self.python.exists() and stamp.exists() and stamp.read_text("utf-8") == wanted)
        if not stale:
            say(f"{self.engine} {part}: up to date")
            yield False
            return
        stamp.unlink(missing_ok=True)
        say(f"{self.engine} {part}: making, in {folder}")
        started = time.monotonic()
        yield True
        stamp.write_text(wanted, "utf-8")
        say(f"{self.engine} {part}: made in {time.monotonic() - started:.0f} s")

    def _make_venv(self) -> None:
        shutil.rmtree(self.venv, ignore_errors=True)
        self._run("create the virtual environment", sys.executable, "-m", "venv", str(self.venv))
        self._pip("install", *self.env["install"])
        self._pip("install", "--no-deps", *self.env["install_without_dependencies"])
        self._pip("uninstall", "--yes", *self.env["uninstall"])
        self._write_aliases()
        self._run("check the environment", str(self.python), "-c", self.env["check"])

    def _pip(self, verb: str, *arguments: str) -> None:
        compiled = ["--compile", "--progress-bar=off"] if verb == "install" else []
        what = f"pip {verb} {' '.join(arguments)}"
        self._run(what, str(self.python), "-m", "pip", verb, *compiled, *arguments)

    def _write_aliases(self) -> None:
        """Write the metadata folders, with a RECORD so that pip can remove them again."""
        site_packages = next(self.venv.glob("lib/python3.*/site-packages"))
        for name, version in self.env["alias_metadata"].items():
            folder = site_packages / f"{name.replace('-', '_')}-{version}.dist-info"
            folder.mkdir()
            metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            (folder / "METADATA").write_text(metadata, "utf-8")
            (folder / "INSTALLER").write_text("tools/engine_env.py\n", "utf-8")
            files = ("METADATA", "INSTALLER", "RECORD")
            record = "".join(f"{folder.name}/{file},,\n" for file in files)
            (folder / "RECORD").write_text(record, "utf-8")

    def _make_model(self, maker: Path) -> None:
        """Write the model beside its place, and move it there once its maker has checked it."""
        unfinished = self.model_dir.with_name(self.model_dir.name + ".unfinished")
        for folder in (self.model_dir, unfinished):
            shutil.rmtree(folder, ignore_errors=True)
        unfinished.mkdir(parents=True)
        self._run(f"run {maker.name}", str(self.python), str(maker), str(unfinished))
        unfinished.rename(self.model_dir)

    def _run(self, what: str, *command: str) -> None:
        """Run a command with its output in a log, and a sign of life now and then."""
        say(f"{self.engine}: {what}")
        environment = {name: value for name, value in os.environ.items() if name not in UNSET}
        log = self.root / "last-step.log"
        started = time.monotonic()
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
            try:
                while process.poll() is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(HEARTBEAT_S)
                        break
                    say(f"{self.engine}: still at it after {time.monotonic() - started:.0f} s")
            except BaseException:
                process.kill()
                process.wait()
                raise
        if process.returncode:
            raise StepFailed(self._explain(what, process.returncode, log))

    def _explain(self, what: str, status: int, log: Path) -> str:
        text = log.read_text("utf-8", errors="replace")
        advice = [f"Advice: {entry['say']}" for entry in self.advice if entry["found"] in text]
        shown = text.splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([*shown, f"`{what}` ended with status {status}; log: {log}", *advice])


def say(message: str) -> None:
    """Print a progress line."""
    print(f"[engine_env] {message}", file=sys.stderr, flush=True)


def digest(*parts: object) -> str:
    """Hash what a part is made from."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Let one process at a time work on ``root``; the kernel frees the lock if it dies."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that is at work in {root}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: list[str] | None = None) -> int:
    """Make one engine's environment; 0 when it is complete, 1 when a step failed."""
    engines = sorted(recipe.stem for recipe in RECIPES.glob("*.toml"))
    parser = argparse.ArgumentParser(description="Make the environment to test an engine in.")
    parser.add_argument("engine", choices=engines)
    parser.add_argument("--root", type=Path, help="folder to work in (.tox/engines/ENGINE)")
    options = parser.parse_args(arguments)
    root = (options.root or REPOSITORY / ".tox" / "engines" / options.engine).resolve()
    environment = EngineEnvironment(options.engine, root)
    try:
        with locked(root):
            environment.make()
    except StepFailed as failure:
        say(f"{options.engine}: failed; the next run starts this part afresh\n{failure}")
        return 1
    print(environment.python)
    return 0


if __name__ == "__main__":
    # As an exception, so that a running pip ends before this process and the lock do.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    raise SystemExit(main())
