"""Runs the command in this process, and fills ledgers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from green_core.cli import run
from green_core.export.ledger import Ledger
from green_core.testing.builders import engine_info, interval_record, request_record
from green_core.values import Settled

RECORD = request_record(
    3_600.0,
    arrival_s=1_767_225_600.0,  # 2026-01-01T00:00:00Z
    finished_s=1_767_225_602.5,
    operational_g=0.4,
    embodied_g=0.1,
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
        interval = interval_record(
            sum(record.energy_j for record in records) + missing_j,
            idle_j,
            start_s=RECORD.arrival_s,
            end_s=RECORD.arrival_s + 10,
        )
        path = tmp_path / "ledger.db"
        ledger = Ledger.open(path, engine=engine_info(), keep_days=0)
        ledger.write(Settled(records, (interval,)))
        ledger.close()
        return str(path)

    return write
