"""Attributes that a finished request adds to the engine's own span.

The names are literals on purpose: ``gen_ai.energy.*``, ``gen_ai.carbon.*``, ``gen_ai.grid.*`` and
``gen_ai.gpu.*`` are in no standard yet, and the semantic-conventions package marks its GenAI names
as deprecated. ``hw.*`` follows the hardware conventions (status: development); ``hw.id`` is left
out, since it names one component and a request may run on several.
"""

from __future__ import annotations

from green_core.export.text import storable
from green_core.values import JOULES_PER_KWH, EngineInfo, RequestRecord


def span_attributes(
    record: RequestRecord, engine: EngineInfo
) -> dict[str, str | float | int | bool]:
    """Attributes of ``record`` as OpenTelemetry takes them (plain str, float, int, bool)."""
    attributes: dict[str, str | float | int | bool] = {
        "gen_ai.energy.kwh": record.energy_j / JOULES_PER_KWH,
        "gen_ai.carbon.gco2": record.carbon_g,
        "gen_ai.region": record.zone,
        "gen_ai.grid.carbon_intensity": record.intensity_g_per_kwh,
        "gen_ai.gpu.model": storable(engine.device),
        "gen_ai.gpu.count": engine.device_count,
        "billing.account": storable(record.tenant),
        "greenserve.energy.method": record.method,
        "greenserve.energy.settled": record.settled,
        "greenserve.energy.joules": record.energy_j,
        "greenserve.energy.prefill_joules": record.prefill_j,
        "greenserve.energy.decode_joules": record.decode_j,
        "greenserve.energy.avoided_joules": record.avoided_j,
        "greenserve.carbon.operational_gco2": record.operational_g,
        "greenserve.carbon.embodied_gco2": record.embodied_g,
        "greenserve.carbon.kind": record.kind,
        "greenserve.carbon.basis": record.basis,
        "greenserve.urgency": record.urgency,
        "greenserve.wait_s": record.wait_s,
        "greenserve.held_s": record.held_s,
        "greenserve.cached_tokens": record.cached_tokens,
    }
    if record.uncertainty_ratio is not None:
        attributes["greenserve.energy.uncertainty_ratio"] = record.uncertainty_ratio
    kind = _hardware_type(engine.device)
    if kind:
        attributes["hw.type"] = kind
        attributes["hw.model"] = storable(engine.device)
    return attributes


def _hardware_type(device: str) -> str:
    """``hw.type`` of a device by its name; empty when it says nothing."""
    lowered = device.lower()
    if not lowered or lowered == "unknown":
        return ""
    return "cpu" if "cpu" in lowered else "gpu"
