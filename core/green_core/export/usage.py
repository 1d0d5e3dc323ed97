"""``usage.green`` of an answer, and how a record travels from the engine to the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from green_core.values import RequestRecord


def usage_payload(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """The value of ``usage.green`` for one answer, which may stand on several engine requests.

    Energy and carbon add up; the wait is the longest; the intensity is weighted by energy; the
    answer is settled once each of its requests is. ``uncertainty_ratio`` is the largest, and is
    left out where that of any request is not known. ``stopped_early`` is there where a policy
    ended any of them, with the sum of what that saved. Numbers carry six significant digits.
    ``records`` must not be empty (``ValueError``).
    """
    if not records:
        raise ValueError("usage_payload: no records, expected one for each engine request")
    energy_j = sum(record.energy_j for record in records)
    payload = {
        "energy_j": _rounded(energy_j),
        "carbon_g": _rounded(sum(record.carbon_g for record in records)),
        "method": _joined(record.method for record in records),
        "settled": all(record.settled for record in records),
        "zone": _joined(record.zone for record in records),
        "kind": _joined(record.kind for record in records),
        "basis": _joined(record.basis for record in records),
        "intensity_g_per_kwh": _rounded(_mean_intensity(records, energy_j)),
        "wait_s": _rounded(max(record.wait_s for record in records)),
    }
    known = [r.uncertainty_ratio for r in records if r.uncertainty_ratio is not None]
    if len(known) == len(records):
        payload["uncertainty_ratio"] = _rounded(max(known))
    stops = [r.early_stop for r in records if r.early_stop and not r.early_stop.shadow]
    if stops:
        payload["stopped_early"] = {
            "reason": _joined(stop.reason for stop in stops),
            "saved_tokens": sum(stop.saved_tokens for stop in stops),
            "saved_j": _rounded(sum(stop.saved_j for stop in stops)),
            "method": "estimated:max_tokens",
        }
    return payload


def to_wire(record: RequestRecord) -> dict[str, Any]:
    """``record`` as plain JSON values, for any serialiser that an engine uses between processes."""
    wire: dict[str, Any] = msgspec.to_builtins(record)
    return wire


def from_wire(wire: Mapping[str, Any]) -> RequestRecord:
    """Inverse of :func:`to_wire`; keys of a later release are ignored.

    Raises ``msgspec.ValidationError`` when a field is missing or has another type.
    """
    return msgspec.convert(wire, RequestRecord)


def _mean_intensity(records: Sequence[RequestRecord], energy_j: float) -> float:
    if energy_j <= 0:  # nothing was computed (aborted while waiting): no weights
        return sum(record.intensity_g_per_kwh for record in records) / len(records)
    return sum(r.energy_j * r.intensity_g_per_kwh for r in records) / energy_j


def _joined(names: Iterable[str]) -> str:
    """Distinct names in order of appearance, joined by "+"."""
    return "+".join(dict.fromkeys(names))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
