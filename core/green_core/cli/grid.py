"""What ``green intensity`` and ``green forecast`` share: options, the signal, its provenance."""

from __future__ import annotations

import argparse
import logging
import math
import sys
from contextlib import closing
from typing import Any, get_args

import msgspec

from green_core.cli.common import Commands, add_config, age, load_config, utc
from green_core.clock import SteadyClock
from green_core.config import BUILT_IN_SOURCES, LIVE_SOURCES, CarbonConfig, Resolved
from green_core.errors import ConfigError
from green_core.export.text import printable
from green_core.grid.build import build_signal
from green_core.grid.signal import CarbonSignal
from green_core.grid.static import look_up
from green_core.manager import GreenManager, discover
from green_core.values import GridView, SignalKind

# Keys that speak of one source; from a file that names another source they mean nothing here.
_OF_ONE_SOURCE = (
    "kind",
    "basis",
    "url",
    "query",
    "unit",
    "username",
    "token_file",
    "allow_synthetic",
    "path",
    "time_column",
    "value_column",
    "replay_start",
    "speed",
    "forecast",
)
_FORECAST = "; forecast: "  # where a view's source begins to speak of the forecast


class Reading(msgspec.Struct, frozen=True):
    """The signal at one moment. ``problem`` is the newest failure of a live source; else empty.

    ``others`` says which live sources could serve the zone, where no source was chosen.
    """

    view: GridView
    now_s: float
    carbon: CarbonConfig
    problem: str = ""
    others: str = ""

    @property
    def source(self) -> str:
        """Where the values come from, without a word on the forecast."""
        return self.view.source.partition(_FORECAST)[0]

    @property
    def method(self) -> str:
        """Where the forecast comes from; empty when there is none."""
        return self.view.source.partition(_FORECAST)[2] if self.view.forecast else ""


def add_parser(commands: Commands, name: str, *, help: str, more: str) -> argparse.ArgumentParser:
    """A subcommand with the options that choose a signal."""
    parser = commands.add_parser(
        name,
        help=help,
        description=more + " Flags win over the config; with --source, keys of the config's file "
        "that belong to its own source are left aside. The token of a service is read from "
        "GREEN_CARBON_TOKEN or from the file that carbon.token_file names.",
    )
    add_config(parser)
    parser.add_argument(
        "--source", metavar="NAME", help=f"one of {', '.join(BUILT_IN_SOURCES)}, or a plugin"
    )
    parser.add_argument("--zone", metavar="ZONE", help="grid zone or cloud region")
    parser.add_argument("--kind", choices=get_args(SignalKind), help="kind of intensity")
    parser.add_argument("--url", metavar="URL", help="base URL of the service")
    return parser


def read_signal(arguments: argparse.Namespace, *, hours: float = 0.0) -> Reading:
    """Open the signal that the options choose, and ask it once.

    ``hours`` is how far the forecast must reach, if farther than configured. Raises ``ConfigError``
    where the source cannot be used or refuses for good.
    """
    resolved = _resolve(arguments, hours)
    config, carbon = resolved.config, resolved.config.carbon

    def from_plugin(name: str) -> CarbonSignal | None:
        if name not in discover():
            return None
        signal: CarbonSignal = GreenManager(config).carbon_source()
        return signal

    # What a live signal logs is told by `problem`, once.
    logger = logging.getLogger("greenserve")
    if not logger.hasHandlers():
        logger.addHandler(logging.NullHandler())
    clock = SteadyClock()
    start_s = clock.now()
    signal = build_signal(carbon, anchor_s=start_s, now_s=start_s, factory=from_plugin, clock=clock)
    with closing(signal):
        now_s = max(clock.now(), start_s) if carbon.source in LIVE_SOURCES else start_s
        view = signal.view(now_s)
        problem = str(getattr(signal, "problem", ""))
    if not problem and view.quality != "fresh":
        problem = f"no answer from {carbon.source} within {carbon.timeout_s:g} s"
    others = "" if "carbon.source" in resolved.origins else live_sources(carbon.zone)
    return Reading(view, now_s, carbon, problem, others)


def tell_problem(reading: Reading) -> int:
    """Print what is wrong to stderr and answer the exit code: 1 unless the value is fresh."""
    if reading.problem:
        print(f"problem: {printable(' '.join(reading.problem.split()))}", file=sys.stderr)
    return 0 if reading.view.quality == "fresh" else 1


def live_sources(zone: str) -> str:
    """The live sources that could serve a zone, with what they need, in one phrase."""
    if not zone.strip():
        return ""
    names = ["electricity_maps (token)", "watttime (account; marginal)"]
    try:
        in_britain = look_up(zone).zone == "GB"
    except ConfigError:
        in_britain = False
    if in_britain:
        names.insert(0, "uk (no token)")
    return ", ".join(names)


def provenance(reading: Reading) -> list[tuple[str, str]]:
    """What is known of the values, as labels and text."""
    view = reading.view
    share = view.renewable_ratio
    age_s = reading.now_s - view.observed_at_s
    rows = [
        ("zone", view.zone or "none named"),
        ("source", reading.source),
        ("live", reading.others and f"none chosen; could be --source {reading.others}"),
        ("basis", view.basis),
        ("licence", view.licence),
        ("renewable", "" if share is None else f"{share:.0%}"),
        ("observed", f"{utc(view.observed_at_s)} ({age(age_s)} ago)"),
        ("quality", view.quality),
    ]
    return [(label, printable(text)) for label, text in rows if text]


def as_json(reading: Reading) -> dict[str, Any]:
    """The view with times in two forms. What never changes is valid for ever: null in JSON."""
    view = reading.view
    changes = math.isfinite(view.valid_until_s)
    return {
        **msgspec.to_builtins(view),
        "source": reading.source,
        "valid_until_s": view.valid_until_s if changes else None,
        "observed_at": utc(view.observed_at_s),
        "valid_until": utc(view.valid_until_s) if changes else None,
        "age_s": max(0.0, reading.now_s - view.observed_at_s),
        "forecast_method": reading.method,
        "problem": reading.problem,
        "live_sources": reading.others,
    }


def _resolve(arguments: argparse.Namespace, hours: float) -> Resolved:
    """The config with the flags laid over it."""
    resolved = load_config(arguments.config)
    configured = resolved.config.carbon
    overrides: dict[str, Any] = {}
    chosen = arguments.source or configured.source
    if chosen != configured.source and "carbon.source" in resolved.origins:
        for name in _OF_ONE_SOURCE:
            if resolved.origins.get(f"carbon.{name}", "").startswith("file "):
                overrides[f"carbon.{name}"] = getattr(CarbonConfig(), name)
    if arguments.source == "watttime" and "carbon.kind" not in resolved.origins:
        overrides["carbon.kind"] = "marginal"  # its main signal; the average one is opt-in
    for name in ("source", "zone", "kind", "url"):
        if getattr(arguments, name) is not None:
            overrides[f"carbon.{name}"] = getattr(arguments, name)
    if hours > configured.forecast_hours:
        overrides["carbon.forecast_hours"] = hours
    return load_config(arguments.config, overrides)
