"""Electricity Maps, API v4: hourly average intensity of a zone or of a cloud region.

https://app.electricitymaps.com/developer-hub/api/reference. The token goes into ``auth-token``.
A sandbox token is answered with made-up values and status 200, so each answer is searched for a
sign of it (FIELD G9).
"""

from __future__ import annotations

import json
from typing import Any

from green_core.config import CarbonConfig
from green_core.errors import SignalUnavailable
from green_core.grid.source import Snapshot
from green_core.grid.sources.http import Http, TokenAuth
from green_core.grid.sources.offer import require_offer, require_zone
from green_core.grid.sources.parse import (
    Point,
    as_list,
    member,
    number,
    past_and_coming,
    seconds,
    slots_from_points,
    unless_missing,
)
from green_core.values import Basis

URL = "https://api.electricitymaps.com"
SERVICE = "Electricity Maps"
PERIOD_S = 3600.0
HORIZONS_H = (6, 24, 48, 72)  # those that the service knows
_GET_TOKEN = "Get one at portal.electricitymaps.com"


def open_source(carbon: CarbonConfig) -> ElectricityMapsSource:
    """Electricity Maps for ``carbon``; ``ConfigError`` where it cannot serve that."""
    return ElectricityMapsSource(carbon)


class ElectricityMapsSource:
    """Zone ``DE``, ``US-CAL-CISO`` ..., or a data centre's region such as ``aws:eu-central-1``.

    Raises ``ConfigError`` for marginal values and without a zone.
    """

    name = "electricity_maps"
    period_s = PERIOD_S

    def __init__(self, carbon: CarbonConfig) -> None:
        require_offer(carbon, kinds=["average"], bases=["lifecycle", "direct"])
        self._zone = require_zone(carbon, "DE")
        self._basis: Basis = "direct" if carbon.basis == "direct" else "lifecycle"
        self._allow_synthetic = carbon.allow_synthetic
        self._wants_forecast = carbon.forecast in {"auto", "source"}
        self._horizon_h = next(
            (h for h in HORIZONS_H if h >= carbon.forecast_hours), HORIZONS_H[-1]
        )
        auth = TokenAuth(carbon, "auth-token", remedy=_GET_TOKEN)
        self._http = Http(carbon, carbon.url or URL, service=SERVICE, auth=auth)

    def fetch(self, now_s: float) -> Snapshot:
        """The newest value; the last day and the forecast where the plan holds them."""
        latest, synthetic = self._points("latest")
        past: list[Point] = []
        past = unless_missing(lambda: self._points("history")[0], past)
        ahead: list[Point] = []
        if self._wants_forecast:
            ahead = unless_missing(lambda: self._points("forecast")[0], ahead)
        history, forecast = past_and_coming(
            slots_from_points([*past, *latest], period_s=PERIOD_S),
            slots_from_points(ahead, period_s=PERIOD_S),
            now_s,
        )
        if not history:
            raise self._error("has no value for the present", "empty")
        return Snapshot(
            source="Electricity Maps v4" + (" (made-up sandbox values)" if synthetic else ""),
            zone=self._zone,
            kind="average",
            basis=self._basis,
            licence="Electricity Maps terms of your plan (free plan: not for commercial use)",
            fetched_at_s=now_s,
            history=history,
            forecast=forecast,
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _points(self, which: str) -> tuple[list[Point], bool]:
        """The points of one endpoint, and whether they are made up."""
        tree = self._ask(which)
        synthetic = "sandbox" in json.dumps(tree).lower()
        if synthetic and not self._allow_synthetic:
            raise self._error(
                "answers with a sandbox's made-up values. Use a token of a real plan, or set "
                "carbon.allow_synthetic = true to try things out",
                "synthetic",
            )
        single = isinstance(tree, dict) and "carbonIntensity" in tree
        found = tree if single else member(tree, SERVICE, "history", "forecast", "data")
        rows = as_list(found, SERVICE)
        for row in [tree, *rows]:
            self._check(row)
        points = [
            Point(
                at_s=seconds(row.get("datetime"), SERVICE),
                value=number(row.get("carbonIntensity"), SERVICE),
                is_estimate=bool(row.get("isEstimated")) or synthetic,
            )
            for row in rows
        ]
        return points, synthetic

    def _ask(self, which: str) -> Any:
        params = {
            "disableCallerLookup": "true",  # never where the caller seems to be (FIELD G11)
            "emissionFactorType": self._basis,
            "temporalGranularity": "hourly",
            **self._where(),
        }
        if which == "forecast":
            params["horizonHours"] = str(self._horizon_h)
        try:
            # 404: the zone exists and has no recent data; 400: there is no such zone.
            reasons = {400: "zone", 404: "empty"}
            return self._http.get(f"/v4/carbon-intensity/{which}", params, reasons=reasons)
        except SignalUnavailable as error:
            if error.reason in {"auth", "forbidden"}:
                raise SignalUnavailable(
                    f"{error}. Asked for {which} of zone {self._zone!r}: the token must be valid "
                    "and its plan must hold this zone",
                    reason=error.reason,
                ) from None
            if error.reason == "zone":
                raise SignalUnavailable(
                    f"{error}. Asked for zone {self._zone!r}; /v4/zones lists those there are",
                    reason="zone",
                ) from None
            raise

    def _where(self) -> dict[str, str]:
        provider, colon, region = self._zone.partition(":")
        if colon:
            return {
                "dataCenterProvider": provider.lower(),
                "dataCenterRegion": region.lower(),
            }
        return {"zone": self._zone}

    def _check(self, row: dict[str, Any]) -> None:
        """Refuse an answer for another zone or of another basis than was asked for."""
        zone = row.get("zone")
        if zone is not None and ":" not in self._zone and zone != self._zone:
            raise self._error(f"answers for zone {zone!r:.40}", "zone")
        basis = row.get("emissionFactorType")
        if basis is not None and basis != self._basis:
            raise self._error(f"answers {basis!r:.40} values instead of {self._basis}", "kind")

    def _error(self, problem: str, reason: str) -> SignalUnavailable:
        return SignalUnavailable(f"{SERVICE}, zone {self._zone!r}: {problem}", reason=reason)
