"""Doubles of what passes on other services' values: the Carbon Aware SDK and a Prometheus.

Values are a function of time, so that a test may ask for any hour.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from green_core.testing.carbon_api import CarbonApi, Question, Reply

ValueAt: TypeAlias = Callable[[float], float | None]
EXPORTER_LABELS: Mapping[str, str] = {
    "__name__": "grid_intensity_carbon_average",
    "is_estimated": "false",
    "job": "grid",
    "location": "GBR",
    "provider": "ElectricityMaps",
    "units": "gCO2e per kWh",
}


def serve_carbon_aware_sdk(
    api: CarbonApi,
    value_at: ValueAt,
    *,
    forecast_at: ValueAt | None = None,
    forecast_hours: int = 24,
    location: str = "westeurope",
    period_s: int = 3600,
) -> None:
    """``/emissions/bylocation`` and, where ``forecast_at`` is given, the current forecast."""

    def observed(question: Question) -> Any:
        first_s, last_s = (
            datetime.fromisoformat(question.params[name]).timestamp() for name in ("time", "toTime")
        )
        first_s = math.ceil(first_s / period_s) * period_s
        span = f"{period_s // 3600:02}:{period_s % 3600 // 60:02}:00"
        return [
            {"location": location, "time": _iso(at_s), "rating": value_at(at_s), "duration": span}
            for at_s in range(first_s, int(last_s) + 1, period_s)
        ] or Reply(204, b"")

    def expected(question: Question) -> Any:
        if forecast_at is None:
            return Reply(400, {"title": "ArgumentException", "detail": "not configured"})
        first_s = int(time.time()) // period_s * period_s
        times = range(first_s, first_s + forecast_hours * 3600, period_s)
        points = [
            {
                "location": location,
                "timestamp": _iso(at_s),
                "duration": period_s // 60,
                "value": forecast_at(at_s),
            }
            for at_s in times
        ]
        return [{"location": question.params["location"], "forecastData": points}]

    api.route("/emissions/bylocation", observed)
    api.route("/emissions/forecasts/current", expected)


def serve_prometheus(
    api: CarbonApi,
    value_at: ValueAt,
    *,
    series: Sequence[Mapping[str, str]] = (EXPORTER_LABELS,),
    warnings: Sequence[str] = (),
) -> None:
    """Answer every query with ``series``, all of the same value; ``None`` reads NaN."""

    def wrap(kind: str, result: list[dict[str, Any]]) -> dict[str, Any]:
        answer = {"status": "success", "data": {"resultType": kind, "result": result}}
        return {**answer, "warnings": list(warnings)} if warnings else answer

    def instant(question: Question) -> Any:
        at_s = float(question.params["time"])
        sample = [at_s, _number(value_at(at_s))]
        return wrap("vector", [{"metric": dict(labels), "value": sample} for labels in series])

    def span(question: Question) -> Any:
        start_s, end_s, step_s = (float(question.params[name]) for name in ("start", "end", "step"))
        count = int((end_s - start_s) // step_s) + 1
        times = [start_s + n * step_s for n in range(count)]
        samples = [[at_s, _number(value_at(at_s))] for at_s in times]
        return wrap("matrix", [{"metric": dict(labels), "values": samples} for labels in series])

    api.route("/api/v1/query", instant)
    api.route("/api/v1/query_range", span)


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def _number(value: float | None) -> str:
    return "NaN" if value is None else str(value)
