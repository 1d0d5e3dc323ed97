"""The Web API of the Green Software Foundation's Carbon Aware SDK.

Shapes as in the SDK's source at commit e6de58d (2025-05) and in the answers shown in its issue
570: ``/emissions/bylocation`` answers a list of ``location``, ``time``, ``rating`` (g/kWh) and
``duration`` (a .NET time span), ``/emissions/forecasts/current`` a list of forecasts, one a
location, whose ``forecastData`` have ``timestamp``, ``value`` and ``duration`` (minutes).

The SDK passes on what its own data source says and does not tell which one that is: Electricity
Maps serves average values, WattTime marginal ones. So ``carbon.kind`` is what you say it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.source import Slot, Snapshot, Source
from green_core.grid.sources.http import Http, TokenAuth, token
from green_core.grid.sources.parse import (
    Point,
    as_list,
    iso_minute,
    member,
    number,
    past_and_coming,
    seconds,
    slots_from_points,
    unless_missing,
)

SERVICE = "Carbon Aware SDK"
HISTORY_S = 86_400.0
# "01:00:00", "1.00:00:00", "00:05:00.5000000"
_TIME_SPAN = re.compile(r"(?:(\d+)\.)?(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)")
# The SDK's generator of test data draws whole numbers below this.
_TEST_DATA_BELOW = 100


def open_source(carbon: CarbonConfig) -> Source:
    """The SDK's service at ``carbon.url``. Raises ``ConfigError`` without address or location."""
    for key, example in (("url", "http://127.0.0.1:8080"), ("zone", "westeurope")):
        if not getattr(carbon, key).strip():
            raise ConfigError(
                f"carbon.{key}",
                'is empty while carbon.source is "carbon_aware_sdk"',
                remedy=f"Set it, for example to {example}",
            )
    return CarbonAwareSdk(carbon)


class CarbonAwareSdk:
    """Asks for the past 24 hours and for the current forecast.

    The SDK publishes as often as its data source, every five minutes to every hour.
    """

    name = "carbon_aware_sdk"
    period_s = 300.0

    def __init__(self, carbon: CarbonConfig) -> None:
        self._carbon = carbon
        auth = TokenAuth(carbon, "authorization", prefix="Bearer ") if token(carbon) else None
        self._http = Http(carbon, carbon.url, service=SERVICE, auth=auth)

    def fetch(self, now_s: float) -> Snapshot:
        """History, and the forecast where the SDK has a data source for it."""
        carbon = self._carbon
        span = {"time": iso_minute(now_s - HISTORY_S), "toTime": iso_minute(now_s)}
        question = {"location": carbon.zone, **span}
        answer = self._http.get("/emissions/bylocation", question, reasons={404: "zone"})
        rows = as_list(answer, SERVICE)
        points = [_observed(row) for row in rows]
        self._refuse_test_data(points)
        history, forecast = past_and_coming(
            slots_from_points(points), unless_missing(self._forecast, ()), now_s
        )
        return Snapshot(
            source=f"{SERVICE} ({_place(rows)})",
            zone=carbon.zone,
            kind=carbon.kind,
            basis="unknown" if carbon.basis == "any" else carbon.basis,
            licence="that of the data source behind the SDK",
            fetched_at_s=now_s,
            history=history,
            forecast=forecast,
        )

    def close(self) -> None:
        """Give the connection back."""
        self._http.close()

    def _forecast(self) -> tuple[Slot, ...]:
        """The current forecast; the SDK answers 400 or 501 where it has no source for one."""
        answer = self._http.get("/emissions/forecasts/current", {"location": self._carbon.zone})
        forecasts = as_list(answer, SERVICE)
        rows = as_list(member(forecasts[0], SERVICE, "forecastData"), SERVICE)
        return slots_from_points(_expected(row) for row in rows)

    def _refuse_test_data(self, points: Sequence[Point]) -> None:
        """Refuse what the SDK serves as shipped: a file of random numbers (FIELD G9).

        Its generator starts at the second in which it was run and draws whole numbers below 100.
        Services publish on the minute, so both together are a sign of it.
        """
        values = [point.value for point in points if point.value is not None]
        off_the_minute = all(point.at_s % 60 for point in points)
        drawn = all(value < _TEST_DATA_BELOW and value == int(value) for value in values)
        if off_the_minute and drawn and values and not self._carbon.allow_synthetic:
            raise SignalUnavailable(
                f"{SERVICE}: serves what looks like its own test data, random whole numbers below "
                f"{_TEST_DATA_BELOW} at odd seconds. Configure a data source in the SDK "
                "(DataSources__EmissionsDataSource), or set carbon.allow_synthetic = true",
                reason="synthetic",
            )


def _observed(row: dict[str, Any]) -> Point:
    at_s = seconds(member(row, SERVICE, "time"), SERVICE)
    length_s = _time_span_s(row.get("duration"))
    return Point(
        at_s=at_s,
        value=number(member(row, SERVICE, "rating"), SERVICE),
        end_s=at_s + length_s if length_s else None,
    )


def _expected(row: dict[str, Any]) -> Point:
    at_s = seconds(member(row, SERVICE, "timestamp"), SERVICE)
    minutes = number(row.get("duration"), SERVICE)
    return Point(
        at_s=at_s,
        value=number(member(row, SERVICE, "value"), SERVICE),
        is_estimate=True,
        end_s=at_s + minutes * 60 if minutes else None,
    )


def _time_span_s(text: Any) -> float:
    """Seconds of a .NET time span; 0 where there is none, and the SDK writes 0 for unknown."""
    if text is None:
        return 0.0
    match = _TIME_SPAN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise SignalUnavailable(
            f"{SERVICE}: {text!r:.60} is no duration such as 01:00:00", reason="malformed"
        )
    days, hours, minutes, rest = match.groups(default="0")
    return int(days) * 86_400.0 + int(hours) * 3600.0 + int(minutes) * 60.0 + float(rest)


def _place(rows: Sequence[dict[str, Any]]) -> str:
    """The grid area that the values are of: WattTime's name for it may differ from the zone."""
    places = sorted({str(row.get("location") or "") for row in rows} - {""})
    if len(places) > 1:
        raise SignalUnavailable(
            f"{SERVICE}: answered for {len(places)} places at once: {', '.join(places)[:200]}. "
            "Set carbon.zone to one location of its /locations page",
            reason="zone",
        )
    return places[0] if places else "no place named"
