"""Runs the command in this process, and fills ledgers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from green_core.cli import run
from green_core.export.ledger import Ledger
from green_core.values import EnergyParts, EngineInfo, IntervalRecord, RequestRecord, Settled

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
)
RECORD = RequestRecord(
    request_id="request-0",
    tenant="acme",
    urgency="standard",
    arrival_s=1_767_225_600.0,  # 2026-01-01T00:00:00Z
    finished_s=1_767_225_602.5,
    wait_s=0.5,
    held_s=0.0,
    prompt_tokens=100,
    cached_tokens=40,
    output_tokens=20,
    energy_j=3_600.0,
    prefill_j=1_600.0,
    decode_j=2_000.0,
    parts=EnergyParts(2_000.0, 1_000.0, 600.0, 720.0),
    avoided_j=1.5,
    operational_g=0.4,
    embodied_g=0.1,
    intensity_g_per_kwh=333.3,
    kind="average",
    zone="DE",
    method="measured:nvml-counter",
    settled=True,
    finish_reason="stop",
)


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def green(capsys) -> Callable[..., Answer]:
    """Run ``green ARGUMENTS``; argparse's own exits count as exit codes."""

    def call(*arguments: Any) -> Answer:
        try:
            code = run([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def fill(tmp_path) -> Callable[..., str]:
    """Write a ledger with one request for each dict of changes, and the time it took."""

    def write(*changes: dict[str, Any], idle_j: float = 1_200.0, missing_j: float = 0.0) -> str:
        records = tuple(
            msgspec.structs.replace(RECORD, **{"request_id": f"request-{i}", **change})
            for i, change in enumerate(changes)
        )
        interval = IntervalRecord(
            start_s=RECORD.arrival_s,
            end_s=RECORD.arrival_s + 10,
            active_j=sum(record.energy_j for record in records) + missing_j,
            idle_j=idle_j,
            intensity_g_per_kwh=333.3,
            operational_g=0.5,
            embodied_g=0.1,
            method="measured:nvml-counter",
        )
        path = tmp_path / "ledger.db"
        ledger = Ledger.open(path, engine=ENGINE, keep_days=0)
        ledger.write(Settled(records, (interval,)))
        ledger.close()
        return str(path)

    return write
