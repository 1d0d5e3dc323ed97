"""Distinct records, and scripts that run in processes of their own."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from green_core.testing.builders import engine_info, request_record
from green_core.testing.doubles import START_S
from green_core.values import EngineInfo, RequestRecord


@pytest.fixture
def engine() -> EngineInfo:
    return engine_info(quantization="fp8", device="NVIDIA H100", device_count=2)


@pytest.fixture
def make_record() -> Callable[..., RequestRecord]:
    """Records with an id of their own, each a second after the one before."""
    numbers = itertools.count()

    def make(energy_j: float = 10.0, **changes: Any) -> RequestRecord:
        number = next(numbers)
        own = {
            "request_id": f"request-{number}",
            "arrival_s": START_S + number,
            "finished_s": START_S + number + 2.5,
        }
        return request_record(energy_j, **own | changes)

    return make


@pytest.fixture
def start_script() -> Any:
    """Start Python code in a process of its own; it is killed at the end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *args: str, **popen: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
