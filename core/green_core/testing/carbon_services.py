"""Ready-made services for :class:`~green_core.testing.carbon_api.CarbonApi`.

Each answers like the real one from a table of values: ``values[0]`` holds from ``start_s`` on, the
next one a period later and so on, round and round, also before ``start_s``. ``None`` is a gap.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from green_core.testing.carbon_api import CarbonApi, Question, Reply
from green_core.testing.carbon_gateways import serve_carbon_aware_sdk, serve_prometheus

HALF_HOUR_S, HOUR_S, DAY_S = 1800.0, 3600.0, 86_400.0
FIVE_MINUTES_S = 300.0
UK_MIX = {"gas": 30.0, "wind": 40.0, "solar": 5.0, "hydro": 2.0, "biomass": 8.0, "nuclear": 15.0}
LB_PER_MWH = 1 / 0.45359237  # of one g/kWh
Clock = Callable[[], float]


def serve_all(api: CarbonApi, *, now_s: Clock = time.time) -> None:
    """All services with a curve of one day: 80 g/kWh at 13:00 UTC, 320 at 01:00."""
    curve = [200.0 - 120.0 * math.cos((hour - 13) * math.pi / 12) for hour in range(24)]

    def at(at_s: float) -> float:
        return curve[int(at_s // HOUR_S) % 24]

    half_hours = [value for value in curve for _ in range(2)]
    serve_uk(api, half_hours, now_s=now_s)
    serve_electricity_maps(api, curve, now_s=now_s)
    serve_watttime(api, [value for value in curve for _ in range(12)], now_s=now_s)
    serve_carbon_aware_sdk(api, at, forecast_at=at)
    serve_prometheus(api, at)


def serve_uk(
    api: CarbonApi,
    values: Sequence[float | None],
    *,
    start_s: float = 0.0,
    now_s: Clock = time.time,
    settled_until_s: float = math.inf,
    regional_list: bool = False,
) -> None:
    """The UK Carbon Intensity API, half-hourly; postcodes and all regions share the values.

    ``actual`` is null after ``settled_until_s`` or the present. With ``regional_list`` a region
    comes as a list of one instead of an object.
    """

    def period(at_s: float, *, region: bool) -> dict[str, Any]:
        value = _value(values, start_s, at_s, HALF_HOUR_S)
        intensity: dict[str, Any] = {"forecast": value, "index": "moderate"}
        mix = {"generationmix": [{"fuel": f, "perc": p} for f, p in UK_MIX.items()]}
        if not region:
            settled = at_s + HALF_HOUR_S <= min(now_s(), settled_until_s)
            intensity["actual"] = value if settled else None
        span = {"from": _minute(at_s), "to": _minute(at_s + HALF_HOUR_S)}
        return {**span, "intensity": intensity, **(mix if region else {})}

    def span(question: Question) -> list[float]:
        begin_s = _seconds(question.parts["from"])
        to = question.parts.get("to", "fw48h")
        end_s = begin_s + 2 * DAY_S if to == "fw48h" else _seconds(to)
        return _steps(begin_s, end_s, HALF_HOUR_S)

    def national(question: Question) -> Any:
        return {"data": [period(at_s, region=False) for at_s in span(question)]}

    def regional(question: Question) -> Any:
        periods = [period(at_s, region=True) for at_s in span(question)]
        region = {"regionid": question.parts["id"], "shortname": "Somewhere", "data": periods}
        return {"data": [region] if regional_list else region}

    def mix(_question: Question) -> Any:
        return {"data": period(_steps(now_s(), now_s(), HALF_HOUR_S)[0], region=True)}

    for end in ("{to}", "fw48h"):
        api.route(f"/intensity/{{from}}/{end}", national)
        api.route(f"/regional/intensity/{{from}}/{end}/regionid/{{id}}", regional)
        api.route(f"/regional/intensity/{{from}}/{end}/postcode/{{id}}", regional)
    api.route("/generation", mix)


def serve_electricity_maps(
    api: CarbonApi,
    values: Sequence[float | None],
    *,
    start_s: float = 0.0,
    now_s: Clock = time.time,
    token: str = "",
    zones: Sequence[str] = (),
    sandbox: bool = False,
    forecast: bool = True,
) -> None:
    """Electricity Maps v4, hourly. ``token`` and ``zones`` are those it knows; empty: all.

    The newest value is flagged as estimated. ``forecast`` says whether the plan holds one.
    """

    def row(at_s: float, question: Question) -> dict[str, Any]:
        estimated = sandbox or at_s + HOUR_S > now_s()
        method = "SANDBOX_MODE_DATA" if sandbox else "TIME_SLICER_AVERAGE"
        return {
            "zone": question.params.get("zone", "DE"),
            "carbonIntensity": _value(values, start_s, at_s, HOUR_S),
            "datetime": _milli(at_s),
            "updatedAt": _milli(now_s()),
            "emissionFactorType": question.params.get("emissionFactorType", "lifecycle"),
            "isEstimated": estimated,
            "estimationMethod": method if estimated else None,
        }

    def guarded(answer: Callable[[Question], Any]) -> Callable[[Question], Any]:
        def handler(question: Question) -> Any:
            if token and question.headers.get("auth-token") != token:
                return Reply(401, {"error": "Invalid auth-token"})
            zone = question.params.get("zone", "")
            if zone and zones and zone not in zones:
                return Reply(403, {"error": f"Request unauthorized for zoneKey={zone}"})
            return answer(question)

        return handler

    def latest(question: Question) -> Any:
        return row(_steps(now_s(), now_s(), HOUR_S)[0], question)

    def past(question: Question) -> Any:
        rows = [row(at_s, question) for at_s in _steps(now_s() - DAY_S, now_s(), HOUR_S)]
        return {"zone": rows[0]["zone"], "temporalGranularity": "hourly", "history": rows}

    def ahead(question: Question) -> Any:
        if not forecast:
            return Reply(403, {"error": "Request unauthorized for requestType=forecast"})
        end_s = now_s() + float(question.params.get("horizonHours", "24")) * HOUR_S
        rows = [row(at_s, question) for at_s in _steps(now_s(), end_s, HOUR_S)]
        points = [{key: found[key] for key in ("carbonIntensity", "datetime")} for found in rows]
        sandbox_word = {"_disclaimer": "Data is for SANDBOX MODE only"} if sandbox else {}
        return {"zone": rows[0]["zone"], "forecast": points, **sandbox_word}

    for name, answer in (("latest", latest), ("history", past), ("forecast", ahead)):
        api.route(f"/v4/carbon-intensity/{name}", guarded(answer))


def serve_watttime(
    api: CarbonApi,
    values: Sequence[float | None],
    *,
    start_s: float = 0.0,
    now_s: Clock = time.time,
    username: str = "",
    password: str = "",
    regions: Sequence[str] = (),
    model: str = "2023-03-01",
) -> None:
    """WattTime v3, every five minutes; ``values`` are in g/kWh and served in lb/MWh.

    Tokens live 30 minutes of ``now_s``. A region not among ``regions`` (empty: all are) has the
    percentile index alone. ``co2_aoer`` has no forecast.
    """
    tokens: dict[str, float] = {}

    def login(question: Question) -> Any:
        wanted = base64.b64encode(f"{username}:{password}".encode()).decode()
        given = question.headers.get("authorization", "")
        if not given.startswith("Basic ") or (username and given != f"Basic {wanted}"):
            return Reply(401, {"error": "not authorized"})
        tokens[f"token-{len(tokens)}"] = now_s() + 1800.0
        return {"token": f"token-{len(tokens) - 1}"}

    def guarded(answer: Callable[[Question], Any], *, of_plan: bool) -> Callable[[Question], Any]:
        def handler(question: Question) -> Any:
            bearer = question.headers.get("authorization", "").removeprefix("Bearer ")
            if tokens.get(bearer, 0.0) <= now_s():
                return Reply(401, {"error": "token expired"})
            if of_plan and regions and question.params.get("region") not in regions:
                return Reply(403, {"error": "no access", "message": "not in your plan"})
            return answer(question)

        return handler

    def series(question: Question, times: list[float], factor: float, units: str) -> Any:
        found = [(at_s, _value(values, start_s, at_s, FIVE_MINUTES_S)) for at_s in times]
        return {
            "data": [
                {"point_time": _offset(at_s), "value": None if v is None else v * factor}
                for at_s, v in found
            ],
            "meta": {
                "data_point_period_seconds": 300,
                "region": question.params["region"],
                "signal_type": question.params.get("signal_type", "co2_moer"),
                "units": units,
                "model": {"date": model},
                "warnings": [],
            },
        }

    def historical(question: Question) -> Any:
        times = _steps(
            _seconds(question.params["start"]), _seconds(question.params["end"]), FIVE_MINUTES_S
        )
        return series(question, times, LB_PER_MWH, "lbs_co2_per_mwh")

    def ahead(question: Question) -> Any:
        if question.params.get("signal_type") == "co2_aoer":
            return Reply(400, {"message": "no forecast for this signal_type"})
        end_s = now_s() + float(question.params.get("horizon_hours", "24")) * HOUR_S
        return series(
            question, _steps(now_s(), end_s, FIVE_MINUTES_S), LB_PER_MWH, "lbs_co2_per_mwh"
        )

    def index(question: Question) -> Any:
        return series(question, _steps(now_s(), now_s(), FIVE_MINUTES_S), 0.1, "percentile")

    api.route("/login", login)
    api.route("/v3/historical", guarded(historical, of_plan=True))
    api.route("/v3/forecast", guarded(ahead, of_plan=True))
    api.route("/v3/signal-index", guarded(index, of_plan=False))


def _value(values: Sequence[float | None], start_s: float, at_s: float, period_s: float) -> Any:
    return values[int((at_s - start_s) // period_s) % len(values)]


def _steps(begin_s: float, end_s: float, period_s: float) -> list[float]:
    """Starts of the periods from the one that holds ``begin_s`` to the one that holds the end."""
    first, last = int(begin_s // period_s), int(end_s // period_s)
    return [step * period_s for step in range(first, last + 1)]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _minute(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%MZ}"


def _milli(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%S}.000Z"


def _offset(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()
