"""WattTime, API v3: marginal (MOER) and average (AOER) emission rates of a grid region.

https://docs.watttime.org. Values come in pounds of CO2 per MWh, every five minutes. The index of
``/v3/signal-index`` is a percentile among recent values and no intensity at all: what a number
means is decided by ``meta.units`` alone (FIELD G10). A login lasts 30 minutes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any

import httpx
import msgspec

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.source import Slot, Snapshot
from green_core.grid.sources.http import Http, needed_token
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

URL = "https://api.watttime.org"
SERVICE = "WattTime"
PERIOD_S = 300.0
DAY_S = 86_400.0
LOGIN_S = 1500.0  # a token lives 1800 s
HORIZON_H = 72
SIGNALS = {"marginal": "co2_moer", "average": "co2_aoer"}
# A pound is 453.59237 g, a MWh 1000 kWh.
G_PER_KWH = {"lbs_co2_per_mwh": 0.45359237}
_GIVE_PASSWORD = "Give the password of the account in carbon.username"


class _Series(msgspec.Struct, frozen=True):
    slots: tuple[Slot, ...]
    model: str = ""


def open_source(carbon: CarbonConfig) -> WattTimeSource:
    """WattTime for ``carbon``; ``ConfigError`` where it cannot serve that."""
    return WattTimeSource(carbon)


class WattTimeSource:
    """Zone: a WattTime region (``CAISO_NORTH``). ``carbon.username`` and its password log in.

    Raises ``ConfigError`` without a zone or a user name.
    """

    name = "watttime"
    period_s = PERIOD_S

    def __init__(self, carbon: CarbonConfig) -> None:
        require_offer(carbon, kinds=["marginal", "average"], bases=["direct"])
        self._zone = require_zone(carbon, "CAISO_NORTH")
        if not carbon.username:
            raise ConfigError(
                "carbon.username",
                'is empty while carbon.source is "watttime"',
                remedy=f"Name the account. {_GIVE_PASSWORD}",
            )
        self._kind = carbon.kind
        self._signal = SIGNALS[carbon.kind]
        self._wants_forecast = carbon.forecast in {"auto", "source"}
        self._horizon_h = min(HORIZON_H, math.ceil(carbon.forecast_hours))
        url = carbon.url or URL
        self._login = Http(carbon, url, service=f"{SERVICE} login", auth=_Password(carbon))
        self._bearer = _Bearer()
        self._http = Http(carbon, url, service=SERVICE, auth=self._bearer)

    def fetch(self, now_s: float) -> Snapshot:
        """The last day; the forecast where there is one for this signal and plan."""
        known = self._known(now_s)
        foreseen = _Series(())
        if self._wants_forecast:
            ask = {"horizon_hours": str(self._horizon_h)}
            foreseen = unless_missing(lambda: self._series("forecast", ask), foreseen)
        history, forecast = past_and_coming(known.slots, foreseen.slots, now_s)
        if not history:
            raise self._error("has no value for the present", "empty")
        model = known.model or foreseen.model
        return Snapshot(
            source=f"WattTime v3 {self._signal}" + (f", model {model}" if model else ""),
            zone=self._zone,
            kind=self._kind,
            basis="direct",
            licence="WattTime terms of your plan",
            fetched_at_s=now_s,
            history=history,
            forecast=forecast,
        )

    def close(self) -> None:
        """Close the connections."""
        self._login.close()
        self._http.close()

    def _known(self, now_s: float) -> _Series:
        """The last day. A plan without it may still ask for the index, which then has to say
        that it is an intensity.
        """
        span = {"start": iso_minute(now_s - DAY_S), "end": iso_minute(now_s)}
        try:
            return self._series("historical", span)
        except SignalUnavailable as error:
            if error.reason != "forbidden":
                raise
            try:
                return self._series("signal-index", {})
            except SignalUnavailable as second:
                if second.reason == "unit":
                    raise
                raise error from None

    def _series(self, endpoint: str, ask: dict[str, str]) -> _Series:
        tree = self._ask(f"/v3/{endpoint}", ask)
        found = member(tree, SERVICE, "meta")
        meta = found if isinstance(found, dict) else {}
        units = meta.get("units")
        factor = G_PER_KWH.get(units) if isinstance(units, str) else None
        if factor is None:
            raise self._error(
                f"/v3/{endpoint} answers in {units!r:.60}, expected "
                f"{' or '.join(G_PER_KWH)}. A percentile is no intensity and is not converted; "
                "a plan with /v3/historical is needed",
                "unit",
            )
        for key, wanted, reason in (
            ("signal_type", self._signal, "kind"),
            ("region", self._zone, "zone"),
        ):
            if meta.get(key, wanted) != wanted:
                raise self._error(f"answers {key} {meta[key]!r:.60} instead of {wanted}", reason)
        points = [
            Point(
                at_s=seconds(row.get("point_time"), SERVICE),
                value=None if value is None else value * factor,
                is_estimate=bool(row.get("imputed_data_used")),
            )
            for row in as_list(member(tree, SERVICE, "data"), SERVICE)
            for value in [number(row.get("value"), SERVICE)]
        ]
        period_s = number(meta.get("data_point_period_seconds"), SERVICE)
        slots = slots_from_points(points, period_s=period_s, fallback_s=PERIOD_S)
        return _Series(slots, _model(meta.get("model")))

    def _ask(self, path: str, ask: dict[str, str]) -> Any:
        """One question, with one more login when the token is no longer taken."""
        params = {"region": self._zone, "signal_type": self._signal, **ask}
        reasons = {400: "zone", 404: "zone"}
        fresh = self._log_in()
        try:
            try:
                return self._http.get(path, params, reasons=reasons)
            except SignalUnavailable as error:
                if error.reason != "auth" or fresh:
                    raise
            self._bearer.token = ""
            self._log_in()
            return self._http.get(path, params, reasons=reasons)
        except SignalUnavailable as error:
            if not error.is_permanent:
                raise
            raise SignalUnavailable(
                f"{error}. Asked for {self._signal} of region {self._zone!r}; /v3/my-access lists "
                "what the account's plan holds",
                reason=error.reason,
            ) from None

    def _log_in(self) -> bool:
        """Get a token unless there is one that will live; answers whether it is new."""
        if self._bearer.token and time.monotonic() < self._bearer.until_s:
            return False
        where = f"{SERVICE} login"
        found = member(self._login.get("/login", reasons={403: "auth"}), where, "token")
        if not (
            isinstance(found, str) and found.isascii() and found.isprintable() and found.strip()
        ):
            raise SignalUnavailable(f"{where}: the token is no text", reason="malformed")
        self._bearer.token, self._bearer.until_s = found.strip(), time.monotonic() + LOGIN_S
        return True

    def _error(self, problem: str, reason: str) -> SignalUnavailable:
        return SignalUnavailable(f"{SERVICE}, region {self._zone!r}: {problem}", reason=reason)


class _Password(httpx.Auth):
    """Basic authentication with a password that is read anew for each login."""

    def __init__(self, carbon: CarbonConfig) -> None:
        self._carbon = carbon

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header, once."""
        password = needed_token(self._carbon, _GIVE_PASSWORD)
        yield from httpx.BasicAuth(self._carbon.username, password).auth_flow(request)


class _Bearer(httpx.Auth):
    """The token of the last login, until ``until_s`` (monotonic clock)."""

    def __init__(self) -> None:
        self.token = ""
        self.until_s = 0.0

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header, once."""
        request.headers["authorization"] = f"Bearer {self.token}"
        yield request


def _model(found: Any) -> str:
    """The model's date, which is its version."""
    date = found.get("date") if isinstance(found, dict) else found
    return date if isinstance(date, str) and date.isprintable() else ""
