"""Plain values with sensible defaults: a test names only the fields that it is about.

Every builder takes fields of its type by name and refuses any other name (``TypeError``). What is
not named describes one small scene: a vLLM engine with an 8B model, in zone DE, at ``START_S``
(where :class:`~green_core.testing.doubles.ScriptedClock` starts). A change of one field does not
move the others, except where a builder says so.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, replace

from green_core.config import CarbonConfig
from green_core.testing.doubles import START_S
from green_core.values import (
    EnergyParts,
    EngineInfo,
    GridView,
    IntervalRecord,
    Progress,
    QueueView,
    RequestFacts,
    RequestRecord,
    RequestView,
)

_HOUR_S = 3600.0
_METHOD = "measured:nvml-counter"

_ENGINE = EngineInfo(
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
_QUEUE = QueueView(
    now_s=START_S,
    running=0,
    waiting=0,
    held=0,
    engine_max_running=_ENGINE.max_running,
    engine_max_tokens=_ENGINE.max_tokens,
    kv_usage=0.0,
    preemptions=0,
    last_step=None,
)
_REQUEST = RequestView(
    request_id="request",
    tenant="acme",
    urgency="flex",
    now_s=START_S,
    arrival_s=START_S,
    deadline_s=START_S + 12 * _HOUR_S,
    prompt_tokens=100,
    max_tokens=100,
    estimated_run_s=60.0,
)
_FACTS = RequestFacts(
    request_id="request",
    tenant="acme",
    urgency="standard",
    arrival_s=START_S,
    finished_s=START_S + 2.5,
    wait_s=0.5,
    held_s=0.25,
    prompt_tokens=100,
    cached_tokens=40,
    output_tokens=20,
    finish_reason="stop",
)


def engine_info(**changes: Any) -> EngineInfo:
    """An engine of 256 requests and 8192 tokens a step, on an unknown device."""
    return replace(_ENGINE, **changes)


def queue_view(**changes: Any) -> QueueView:
    """Empty queues before the first step of that engine."""
    return replace(_QUEUE, **changes)


def request_view(**changes: Any) -> RequestView:
    """A flexible request that arrives now, takes a minute and is due in twelve hours."""
    return replace(_REQUEST, **changes)


def grid_view(intensity_g_per_kwh: float = 400.0, **changes: Any) -> GridView:
    """An average signal without a forecast, valid for an hour.

    ``state`` follows the intensity by the default thresholds; 400 g/kWh is dirty.
    """
    view = GridView(
        intensity_g_per_kwh=intensity_g_per_kwh,
        kind="average",
        zone="DE",
        observed_at_s=START_S,
        valid_until_s=START_S + _HOUR_S,
        source="test",
        is_estimate=False,
        state=CarbonConfig().state(intensity_g_per_kwh),
    )
    return replace(view, **changes)


def progress(**changes: Any) -> Progress:
    """Sixty tokens of a greedy answer, no two alike, each of them likely."""
    view = Progress(
        request_id="request",
        output_tokens=60,
        min_tokens=0,
        max_tokens=500,
        temperature=0.0,
        token_ids=tuple(range(60)),
        logprobs=(-0.5,) * 60,
    )
    return replace(view, **changes)


def request_facts(**changes: Any) -> RequestFacts:
    """A standard request that was held for 0.25 s, waited 0.5 s and took 2.5 s in all."""
    return replace(_FACTS, **changes)


def request_record(energy_j: float = 10.0, **changes: Any) -> RequestRecord:
    """The settled record of :func:`request_facts`, at 300 g/kWh.

    Energies follow ``energy_j``: a quarter prefill, 6:3:1 by cause, a fifth more for cooling.
    Carbon is 0.004 g operational and 0.001 g embodied whatever the energy.
    """
    record = RequestRecord(
        **asdict(_FACTS),
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
        method=_METHOD,
        settled=True,
        basis="lifecycle",
        uncertainty_ratio=0.05,
    )
    return replace(record, **changes)


def interval_record(active_j: float = 10.0, idle_j: float = 5.0, **changes: Any) -> IntervalRecord:
    """Ten settled seconds at 300 g/kWh; carbon is the same whatever the energy."""
    interval = IntervalRecord(
        start_s=START_S,
        end_s=START_S + 10.0,
        active_j=active_j,
        idle_j=idle_j,
        intensity_g_per_kwh=300.0,
        operational_g=0.006,
        embodied_g=0.0015,
        method=_METHOD,
    )
    return replace(interval, **changes)
