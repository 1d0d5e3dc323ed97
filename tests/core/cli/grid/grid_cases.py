"""Live sources as doubles on the loopback.

They serve ``VALUE`` now and ``AHEAD`` in a while, so a value tells where it comes from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from green_core.testing.carbon_api import CarbonApi
from green_core.testing.carbon_gateways import serve_carbon_aware_sdk, serve_prometheus
from green_core.testing.carbon_services import serve_electricity_maps, serve_uk, serve_watttime

SECRET = "t0ken-n0t-t0-be-seen"
VALUE, AHEAD = 110.0, 240.0


class Case(NamedTuple):
    """A source: how to serve it, how to ask for it, what to expect."""

    serve: Callable[[CarbonApi], None]
    zone: str
    kind: str
    period_s: float
    config: str = ""
    own_forecast: bool = True
    stand_in: float = 238.0  # the yearly average of the zone, or the world's


def edge_s() -> float:
    """When ``AHEAD`` begins: far enough off that no test runs into it."""
    return (time.time() // 3600 + 2) * 3600


def curve(period_s: float) -> list[float]:
    """A day of values by period, as the services repeat it."""
    begins_s = edge_s()
    times = [n * period_s for n in range(int(86_400 // period_s))]
    return [AHEAD if (at_s - begins_s) % 86_400 < 10 * 3600 else VALUE for at_s in times]


def value_at(at_s: float) -> float:
    return VALUE if at_s < edge_s() else AHEAD


CASES = {
    "uk": Case(lambda api: serve_uk(api, curve(1800)), "GB", "average", 1800),
    "electricity_maps": Case(
        lambda api: serve_electricity_maps(api, curve(3600), token=SECRET),
        "FR", "average", 3600, stand_in=56.0,
    ),
    "watttime": Case(
        lambda api: serve_watttime(api, curve(300), username="me", password=SECRET),
        "CAISO_NORTH", "marginal", 300, config='username = "me"\n', stand_in=481.0,
    ),
    "carbon_aware_sdk": Case(
        lambda api: serve_carbon_aware_sdk(
            api, value_at, forecast_at=value_at, location="uksouth"
        ),
        "uksouth", "average", 3600, stand_in=481.0,
    ),
    "prometheus": Case(
        lambda api: serve_prometheus(api, value_at),
        "GB", "average", 300, config='query = "ci"\n', own_forecast=False,
    ),
}  # fmt: skip
SOURCES = sorted(CASES)


def age(tmp_path: Path, by_s: float) -> None:
    """Make what is cached older."""
    for path in (tmp_path / "XDG_CACHE_HOME").rglob("carbon-*.json"):
        tree = json.loads(path.read_text())
        for key in ("fetched_at_s", "at_s", "next_at_s"):
            if key in tree:
                tree[key] -= by_s
        for slot in [*tree.get("history", []), *tree.get("forecast", [])]:
            slot["start_s"] -= by_s
            slot["end_s"] -= by_s
        path.write_text(json.dumps(tree))
