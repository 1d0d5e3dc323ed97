from __future__ import annotations

import os
import subprocess
import sys

import pytest

from green_core.testing.nvml import NvmlStub, build_stub

# What every script starts with. A lever remembers in XDG_RUNTIME_DIR.
PRELUDE = """
import os, sys
from green_core.power.nvml_lever import nvml_lever
from green_core.testing.builders import engine_info
from green_core.values import PowerTarget

def lever(count=1, device="NVIDIA H100 80GB HBM3"):
    return nvml_lever(engine_info(device=device, device_count=count))

def ask(*values):
    '''Tell the test something and wait until it answers.'''
    print(*values, flush=True)
    return sys.stdin.readline()
"""


class Script:
    """A subprocess under the stub library that speaks line by line."""

    def __init__(self, code: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )

    def says(self) -> str:
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)

    def finish(self) -> list[str]:
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        self.err = err
        return out.splitlines()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stub(library, tmp_path):
    """Two boards of 700 W, 200 to 700 W allowed."""
    return NvmlStub(tmp_path, library=library, count=2)


@pytest.fixture
def run(stub, tmp_path):
    """Start a script; the first board is visible unless told otherwise."""
    started = []

    def start(code: str, **env: str) -> Script:
        base = {
            **stub.env(),
            "XDG_RUNTIME_DIR": str(tmp_path),
            "CUDA_VISIBLE_DEVICES": "0",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        started.append(Script(code, base | env))
        return started[-1]

    yield start
    for script in started:
        if script.process.poll() is None:
            script.kill()
