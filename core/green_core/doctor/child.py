"""The other side of :mod:`green_core.doctor.probes`: one look, answered as JSON on stdout.

``python -m green_core.doctor.child engine NAME`` and ``... meter NAME CONFIG``. What engines and
drivers print themselves is sent to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import msgspec

from green_core import config as configuration
from green_core.doctor.report import EngineReport, MeterReport
from green_core.energy.build import open_meter
from green_core.errors import GreenError
from green_core.values import EngineInfo

ENGINES = "greenserve.engines"


def main(arguments: list[str]) -> None:
    """Answer one question."""
    answer_to = os.dup(1)
    os.dup2(2, 1)
    look, *rest = arguments
    answer = _engine(*rest) if look == "engine" else _meter(*rest)
    with open(answer_to, "wb") as file:
        file.write(msgspec.json.encode(answer))


def _engine(name: str) -> EngineReport:
    inspect: Callable[[], Any] = next(
        entry for entry in entry_points(group=ENGINES) if entry.name == name
    ).load()
    return msgspec.convert(inspect(), EngineReport)


def _meter(name: str, config: str) -> MeterReport:
    energy = configuration.load(config or None).config.energy
    problem = ""
    for device in ("unknown", "cpu"):  # an accelerator, whichever it is, or this CPU
        try:
            wanted = msgspec.structs.replace(energy, meter=name)
            meter = open_meter(wanted, _engine_on(device), shares=False).meter
        except GreenError as error:
            problem = problem or str(error)
            continue
        if meter is not None:
            meter.close()
            return MeterReport(name, meter.method, meter.name, meter.uncertainty_ratio)
    return MeterReport(name, problem=problem)


def _engine_on(device: str) -> EngineInfo:
    """An engine as far as a meter asks for it."""
    return EngineInfo(
        engine="doctor",
        version="",
        model="",
        engine_index=0,
        max_running=1,
        max_tokens=1,
        parameters=0.0,
        weight_bytes=0.0,
        kv_bytes_per_token=0.0,
        hidden_size=0,
        num_layers=0,
        device=device,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
