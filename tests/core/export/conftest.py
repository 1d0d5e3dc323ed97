"""Builders of records, and scripts that run in processes of their own."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from green_core.values import EnergyParts, EngineInfo, IntervalRecord, RequestRecord

ENGINE = EngineInfo(
    engine="vllm",
    version="0.32.0",
    model="org/model-8b",
    engine_index=0,
    max_running=256,
    max_tokens=8192,
    parameters=8e9,
    weight_bytes=16e9,
    kv_bytes_per_token=131_072,
    hidden_size=4096,
    num_layers=32,
    quantization="fp8",
    device="NVIDIA H100",
    device_count=2,
)


@pytest.fixture
def engine() -> EngineInfo:
    return ENGINE


@pytest.fixture
def make_engine() -> Callable[..., EngineInfo]:
    return lambda **changes: msgspec.structs.replace(ENGINE, **changes)


@pytest.fixture
def make_record() -> Callable[..., RequestRecord]:
    """Records that keep the invariants of ``RequestRecord``; energy is split 6:3:1 by cause."""
    numbers = itertools.count()

    def make(energy_j: float = 10.0, **changes: Any) -> RequestRecord:
        number = next(numbers)
        record = RequestRecord(
            request_id=f"request-{number}",
            tenant="acme",
            urgency="standard",
            arrival_s=1_700_000_000.0 + number,
            finished_s=1_700_000_002.5 + number,
            wait_s=0.5,
            held_s=0.25,
            prompt_tokens=100,
            cached_tokens=40,
            output_tokens=20,
            energy_j=energy_j,
            prefill_j=energy_j * 0.25,
            decode_j=energy_j * 0.75,
            parts=EnergyParts(energy_j * 0.6, energy_j * 0.3, energy_j * 0.1, energy_j * 0.2),
            avoided_j=1.5,
            operational_g=0.004,
            embodied_g=0.001,
            intensity_g_per_kwh=300.0,
            kind="average",
            zone="DE",
            method="measured:nvml-counter",
            settled=True,
            finish_reason="stop",
        )
        return msgspec.structs.replace(record, **changes)

    return make


@pytest.fixture
def make_interval() -> Callable[..., IntervalRecord]:
    def make(active_j: float = 10.0, idle_j: float = 5.0, **changes: Any) -> IntervalRecord:
        interval = IntervalRecord(
            start_s=1_700_000_000.0,
            end_s=1_700_000_010.0,
            active_j=active_j,
            idle_j=idle_j,
            intensity_g_per_kwh=300.0,
            operational_g=0.006,
            embodied_g=0.0015,
            method="measured:nvml-counter",
        )
        return msgspec.structs.replace(interval, **changes)

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
