"""Great Britain: the Carbon Intensity API of the National Energy System Operator (NESO).

https://carbon-intensity.github.io/api-definitions/ (no key). Half-hourly average intensity: what
power stations emit by burning, imports and grid losses included (methodology: "CO2 emissions
related to electricity generation only"), so the basis is direct. The country as a whole has
``actual`` values, null until they are settled; regions have forecasts alone, also of the past.
"""

from __future__ import annotations

import re
from typing import Any

from green_core.config import CarbonConfig, nearest
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.source import Slot, Snapshot
from green_core.grid.sources.http import Http
from green_core.grid.sources.offer import require_offer, require_zone
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

URL = "https://api.carbonintensity.org.uk"
SERVICE = "UK Carbon Intensity"
PERIOD_S = 1800.0
DAY_S = 86_400.0
REGIONS = (
    "North Scotland",
    "South Scotland",
    "North West England",
    "North East England",
    "Yorkshire",
    "North Wales & Merseyside",
    "South Wales",
    "West Midlands",
    "East Midlands",
    "East England",
    "South West England",
    "South England",
    "London",
    "South East England",
    "England",
    "Scotland",
    "Wales",
)
# Biomass is listed apart by the service and counted apart here: it burns.
RENEWABLE = frozenset({"wind", "solar", "hydro"})
_POSTCODE = re.compile(r"GB-([A-Z]{1,2}[0-9][0-9A-Z]?)")


def open_source(carbon: CarbonConfig) -> UkSource:
    """The API for Great Britain for ``carbon``; ``ConfigError`` where it cannot serve that."""
    return UkSource(carbon)


class UkSource:
    """Zone ``GB``, ``GB-1`` to ``GB-17`` or a region's name, or ``GB-`` and the outward half of a
    postcode (``GB-RG10``).

    Raises ``ConfigError`` for another zone, kind or basis.
    """

    name = "uk"
    period_s = PERIOD_S

    def __init__(self, carbon: CarbonConfig) -> None:
        require_offer(carbon, kinds=["average"], bases=["direct"])
        self._zone, self._place = _place(require_zone(carbon, "GB"))
        by, _, number = self._place.partition("/")
        self._region = number if by == "regionid" else None
        self._wants_forecast = carbon.forecast in {"auto", "source"}
        self._http = Http(carbon, carbon.url or URL, service=SERVICE)

    def fetch(self, now_s: float) -> Snapshot:
        """The last day, the present and the coming two days."""
        now = iso_minute(now_s)
        known = self._periods(f"{iso_minute(now_s - DAY_S)}/{iso_minute(now_s + PERIOD_S)}")
        foreseen: list[dict[str, Any]] = []
        if self._wants_forecast:
            foreseen = unless_missing(lambda: self._periods(f"{now}/fw48h"), foreseen)
        history, forecast = past_and_coming(_slots(known), _slots(foreseen), now_s)
        if not history:
            raise SignalUnavailable(
                f"{SERVICE}: no value for the present of {self._zone}", reason="empty"
            )
        return Snapshot(
            source="UK Carbon Intensity API (NESO)",
            zone=self._zone,
            kind="average",
            basis="direct",
            licence="CC BY 4.0",
            fetched_at_s=now_s,
            history=history,
            forecast=forecast,
            renewable_ratio=unless_missing(lambda: self._renewable_ratio(known, now_s), None),
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _periods(self, span: str) -> list[dict[str, Any]]:
        """The half hours of a span; those of a region lie one level deeper."""
        path = f"/regional/intensity/{span}/{self._place}" if self._place else f"/intensity/{span}"
        reasons = {400: "zone", 404: "zone"} if self._place else {}
        found = as_list(member(self._http.get(path, reasons=reasons), SERVICE, "data"), SERVICE)
        for outer in found:
            region = outer.get("regionid", self._region)
            if str(region) != str(self._region) and self._region is not None:
                raise SignalUnavailable(
                    f"{SERVICE}: answers for region {region!r:.40} instead of {self._zone}",
                    reason="zone",
                )
        return [
            period
            for outer in found
            for period in (as_list(outer["data"], SERVICE) if "data" in outer else [outer])
        ]

    def _renewable_ratio(self, known: list[dict[str, Any]], now_s: float) -> float | None:
        """The renewable part of the newest mix that has begun."""
        if not self._place:
            known = as_list(member(self._http.get("/generation"), SERVICE, "data"), SERVICE)
        mixes = [
            (seconds(period.get("from"), SERVICE), period["generationmix"])
            for period in known
            if period.get("generationmix")
        ]
        begun = [mix for mix in mixes if mix[0] <= now_s]
        if not begun:
            return None
        _, mix = max(begun, key=lambda found: found[0])
        parts = [
            number(part.get("perc"), SERVICE)
            for part in as_list(mix, SERVICE)
            if str(part.get("fuel")) in RENEWABLE
        ]
        percent = [part for part in parts if part is not None]
        return min(1.0, sum(percent) / 100.0) if percent else None


def _place(zone: str) -> tuple[str, str]:
    """The zone as we name it, and the end of the path that asks for it ("" is all of GB)."""
    wanted = zone.upper()
    if wanted == "GB":
        return "GB", ""
    by_name = {f"GB-{number}": number for number in range(1, len(REGIONS) + 1)}
    by_name |= {name.upper(): number for number, name in enumerate(REGIONS, 1)}
    region = by_name.get(wanted)
    if region is None:
        region = by_name.get(wanted.removeprefix("GB-"))
    if region is not None:
        return f"GB-{region}", f"regionid/{region}"
    postcode = _POSTCODE.fullmatch(wanted)
    if postcode:
        return wanted, f"postcode/{postcode[1]}"
    known = ["GB", "GB-1", f"GB-{len(REGIONS)}", *REGIONS]
    raise ConfigError(
        "carbon.zone",
        f"{zone!r} is no zone of Great Britain",
        remedy=nearest(zone.removeprefix("GB-").title(), known),
    )


def _slots(periods: list[dict[str, Any]]) -> tuple[Slot, ...]:
    return slots_from_points(map(_point, periods), fallback_s=PERIOD_S)


def _point(period: dict[str, Any]) -> Point:
    """A half hour: what was settled, else what was forecast for it."""
    intensity: dict[str, Any] = {}
    if period.get("intensity"):
        intensity = as_list(period["intensity"], SERVICE)[0]
    actual = number(intensity.get("actual"), SERVICE)
    forecast = number(intensity.get("forecast"), SERVICE)
    end = period.get("to")
    return Point(
        at_s=seconds(period.get("from"), SERVICE),
        value=forecast if actual is None else actual,
        is_estimate=actual is None,
        end_s=None if end is None else seconds(end, SERVICE),
    )
