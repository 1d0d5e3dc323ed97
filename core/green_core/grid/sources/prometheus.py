"""A PromQL query: whatever exports a carbon intensity into a Prometheus already in place.

Answers have the shapes of Prometheus's HTTP API v1 (``/api/v1/query``, ``/api/v1/query_range``),
which Thanos, Mimir and VictoriaMetrics serve as well. Labels are read as the Green Web
Foundation's grid-intensity exporter writes them (``units``, ``location``, ``is_estimated``).

An instant vector carries the time of the question and not that of the sample. A value therefore
counts as observed whenever Prometheus could answer the query: its own look-back (5 min, unless
set otherwise) bounds how long it answers after the exporter has died.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.slots import MOST_G_PER_KWH
from green_core.grid.source import Snapshot, Source
from green_core.grid.sources.http import Http, TokenAuth, token
from green_core.grid.sources.parse import Point, number, slots_from_points

STEP_S = 300.0
HISTORY_S = 86_400.0
MOST_SHOWN = 5
# g/kWh of one unit; 1 lb is 0.45359237 kg (NIST SP 811).
UNITS: Mapping[str, float] = {
    "g/kWh": 1.0,
    "kg/kWh": 1000.0,
    "kg/MWh": 1.0,
    "t/MWh": 1000.0,
    "lb/MWh": 0.45359237,
}
# "gCO2e per kWh", "kg CO2/MWh", "lbs/MWh"
_UNIT_LABEL = re.compile(r"(g|kg|t|lb)s?(?:co2(?:e|eq)?)?(?:/|per)([km]wh)")
_SHOWN_LABELS = ("location", "zone", "region", "provider")
_KIND_LABELS = ("__name__", "kind", "emissions_type", "signal_type")


class _Series(msgspec.Struct, frozen=True):
    """One series of an answer: its labels and its values by time, gaps left out."""

    labels: dict[str, str]
    values: dict[float, float]


def open_source(carbon: CarbonConfig) -> Source:
    """The query of ``carbon``. Raises ``ConfigError`` where the address, query or unit is amiss."""
    for key, example in (
        ("url", "http://127.0.0.1:9090"),
        ("query", 'grid_intensity_carbon_average{location="GBR"}'),
    ):
        if not getattr(carbon, key).strip():
            raise ConfigError(
                f"carbon.{key}",
                'is empty while carbon.source is "prometheus"',
                remedy=f"Set it, for example to {example}",
            )
    if carbon.unit not in UNITS:
        raise ConfigError(
            "carbon.unit",
            f"{carbon.unit!r} is no unit of carbon intensity",
            remedy="Known: " + ", ".join(UNITS),
        )
    return PrometheusSource(carbon)


class PrometheusSource:
    """Asks for the present value, then for the 24 hours before it."""

    name = "prometheus"
    period_s = STEP_S

    def __init__(self, carbon: CarbonConfig) -> None:
        self._carbon = carbon
        self._factor = UNITS[carbon.unit]
        auth = TokenAuth(carbon, "authorization", prefix="Bearer ") if token(carbon) else None
        self._http = Http(carbon, carbon.url, service="Prometheus", auth=auth)

    def fetch(self, now_s: float) -> Snapshot:
        """The present value of the one series that the query answers, and its past day."""
        answer = self._ask("/api/v1/query", {"time": f"{now_s:.3f}"})
        series = self._the_one(_parse(answer))
        labels = series.labels
        self._refuse_contradictions(labels)
        if not series.values:
            raise _unusable("empty", "the value is NaN: the exporter has none, or has gone")
        first_s = (now_s - HISTORY_S) // STEP_S * STEP_S
        span = {"start": f"{first_s:.0f}", "end": f"{now_s:.3f}", "step": f"{STEP_S:.0f}"}
        past = _parse(self._ask("/api/v1/query_range", span))
        values = next((one.values for one in past if one.labels == labels), {})
        is_estimate = labels.get("is_estimated", "").casefold() == "true"
        values[now_s] = self._plausible(next(iter(series.values.values())))
        points = [Point(at_s, value * self._factor, is_estimate) for at_s, value in values.items()]
        carbon = self._carbon
        return Snapshot(
            source=f"Prometheus {carbon.query}{_shown(labels)}{_warnings(answer)}",
            zone=carbon.zone or labels.get("location") or labels.get("zone") or "unknown",
            kind=carbon.kind,
            basis="unknown" if carbon.basis == "any" else carbon.basis,
            licence="that of what the exporter reads",
            fetched_at_s=now_s,
            history=slots_from_points(points, period_s=STEP_S),
        )

    def close(self) -> None:
        """Give the connection back."""
        self._http.close()

    def _ask(self, path: str, params: dict[str, str]) -> dict[str, Any]:
        answer = self._http.get(
            path,
            {"query": self._carbon.query, **params},
            reasons={400: "query", 422: "query"},  # PromQL that does not parse, or does not run
        )
        if not isinstance(answer, dict) or answer.get("status") != "success":
            said = answer.get("error") if isinstance(answer, dict) else None
            raise _unusable(
                "malformed",
                f"answered {str(said)[:200]!r}" if said else "did not answer as its API does",
            )
        return answer

    def _the_one(self, found: list[_Series]) -> _Series:
        if not found:
            raise _unusable(
                "empty",
                f"no series answers {self._carbon.query!r}. Try it in Prometheus's own page; "
                "without an answer there, look whether the exporter is scraped",
            )
        if len(found) > 1:
            sets = "; ".join(_written(one.labels) for one in found[:MOST_SHOWN])
            more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
            raise _unusable(
                "query",
                f"{len(found)} series answer {self._carbon.query!r}, one is needed: {sets}{more}. "
                "Name in carbon.query the labels of the one that is meant",
            )
        return found[0]

    def _plausible(self, value: float) -> float:
        if value * self._factor > MOST_G_PER_KWH:
            raise _unusable(
                "unit",
                f"{value:g} {self._carbon.unit} is more than any grid emits. Set carbon.unit to "
                f"the unit of the series ({', '.join(UNITS)}), and look at carbon.query",
            )
        return value

    def _refuse_contradictions(self, labels: Mapping[str, str]) -> None:
        """The series may know better than the config what it is (FIELD G10, G12)."""
        carbon = self._carbon
        words = [labels.get(name, "") for name in _KIND_LABELS] + [carbon.query]
        other = "marginal" if carbon.kind == "average" else "average"
        for text in words:
            parts = set(re.split(r"[^a-z]+", text.casefold()))
            if other in parts and carbon.kind not in parts:
                raise _unusable(
                    "kind",
                    f"{text!r} speaks of {other} values, and carbon.kind is {carbon.kind!r}. "
                    "Set carbon.kind to what the series is",
                )
            if {"relative", "percentile"} & parts:
                raise _unusable(
                    "unit",
                    f"{text!r} speaks of a percentile. Query the series of absolute intensity",
                )
        told = labels.get("units") or labels.get("unit") or ""
        match = _UNIT_LABEL.fullmatch(re.sub(r"\s+", "", told).casefold().replace("₂", "2"))
        unit = f"{match[1]}/{match[2].replace('wh', 'Wh').replace('m', 'M')}" if match else ""
        if told and UNITS.get(unit) != self._factor:
            raise _unusable(
                "unit",
                f"the series says that it is in {told!r}, and carbon.unit is {carbon.unit!r}. "
                + (
                    f'Set carbon.unit = "{unit}"'
                    if unit in UNITS
                    else f"Known units: {', '.join(UNITS)}"
                ),
            )


def _parse(answer: dict[str, Any]) -> list[_Series]:
    """The series of an answer, whichever of the API's result types it has (FIELD G7)."""
    data = answer.get("data")
    kind = data.get("resultType") if isinstance(data, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if kind == "scalar":
        return [_Series({}, dict(_samples([result])))]
    if kind not in {"vector", "matrix"} or not isinstance(result, list):
        raise _unusable("malformed", f"answered a result of type {kind!r}, not numbers")
    found = []
    for series in result:
        labels = series.get("metric") if isinstance(series, dict) else None
        samples = [series.get("value")] if kind == "vector" and labels is not None else None
        if kind == "matrix" and labels is not None:
            samples = series.get("values")
        if not isinstance(labels, dict) or not isinstance(samples, list):
            raise _unusable("malformed", "answered a series without labels or values")
        text = {str(name): str(value) for name, value in labels.items()}
        found.append(_Series(text, dict(_samples(samples))))
    return found


def _samples(samples: list[Any]) -> Iterator[tuple[float, float]]:
    """Time and value of each sample; NaN is a gap (FIELD G4)."""
    for sample in samples:
        if not isinstance(sample, list) or len(sample) != 2:
            raise _unusable("malformed", f"answered {sample!r:.80} as a sample")
        at_s, value = (number(part, "Prometheus") for part in sample)
        if at_s is not None and value is not None:
            yield at_s, value


def _shown(labels: Mapping[str, str]) -> str:
    """What the series says of its place and origin."""
    told = [f"{name} {labels[name]}" for name in _SHOWN_LABELS if labels.get(name)]
    return f" ({', '.join(told)})" if told else ""


def _warnings(answer: Mapping[str, Any]) -> str:
    warnings = answer.get("warnings")
    if not isinstance(warnings, list) or not warnings:
        return ""
    return "; warns: " + " ".join("; ".join(map(str, warnings)).split())[:200]


def _written(labels: Mapping[str, str]) -> str:
    """Labels as PromQL writes them."""
    inner = ", ".join(f'{name}="{value}"' for name, value in labels.items() if name != "__name__")
    return f"{labels.get('__name__', '')}{{{inner}}}"[:200]


def _unusable(reason: str, problem: str) -> SignalUnavailable:
    return SignalUnavailable(f"Prometheus: {problem}", reason=reason)
