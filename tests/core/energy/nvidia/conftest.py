"""Runs scripts against the compiled stub, in subprocesses (the loader reads its path at start)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from green_core.testing.nvml import NvmlStub, build_stub

# What every script starts with. The clock is a fake one; the stub has its own.
PRELUDE = """
import os, sys
import msgspec
from green_core.config import EnergyConfig
from green_core.energy.nvml import nvml_meters
from green_core.errors import MeterUnavailable
from green_core.testing.builders import engine_info

def engine(count=1, device="NVIDIA H100 80GB HBM3"):
    return engine_info(device=device, device_count=count)

class Clock:
    at_s = 1000.0
    def __call__(self):
        return self.at_s

clock = Clock()
def meters(count=1):
    return nvml_meters(engine(count), now_s=clock)

def ask(*values):
    '''Tell the test something and wait until it answers.'''
    print(*values, flush=True)
    return sys.stdin.readline()
"""


class Script:
    """A subprocess that speaks line by line."""

    def __init__(self, stub: NvmlStub | None, code: str, **env: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "NVIDIA_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **(stub.env() if stub else {}), **env},
        )

    def says(self) -> str:
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> list[str]:
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return out.splitlines()


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    started = []

    def start(*args: Any, **env: str) -> Script:
        started.append(Script(*args, **env))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:  # the test failed before its end
            each.process.kill()
            each.process.communicate()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    return build_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stub(library: Path, tmp_path: Path) -> NvmlStub:
    """Three devices whose counters stand at 1000 J until a test gives them power."""
    return NvmlStub(tmp_path, library=library, count=3, watts=0.0)
