"""``green intensity``."""

from __future__ import annotations

import argparse
import math
import time

import msgspec

from green_core.cli.common import Commands, add_config, load_config, print_json, print_table, utc
from green_core.export.text import printable
from green_core.grid.build import build_signal
from green_core.grid.signal import CarbonSignal
from green_core.manager import GreenManager, discover
from green_core.values import GridView


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "intensity",
        help="show the carbon signal as policies see it now",
        description="Show the carbon intensity in use, its kind, source and age, the state against "
        "the thresholds, and the forecast. A replayed file is shown from its start.",
    )
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    config = load_config(arguments.config).config
    now_s = time.time()

    def from_plugin(name: str) -> CarbonSignal | None:
        if name not in discover():
            return None
        signal: CarbonSignal = GreenManager(config).carbon_source()
        return signal

    signal = build_signal(config.carbon, anchor_s=now_s, now_s=now_s, factory=from_plugin)
    try:
        view = signal.view(now_s)
    finally:
        signal.close()
    if arguments.json:
        print_json(_as_json(view))
    else:
        _print(view, now_s)
    return 0


def _as_json(view: GridView) -> dict[str, object]:
    # A signal that never changes is valid for ever, which JSON can only say with null.
    changes = math.isfinite(view.valid_until_s)
    return {
        **msgspec.to_builtins(view),
        "valid_until_s": view.valid_until_s if changes else None,
        "observed_at": utc(view.observed_at_s),
        "valid_until": utc(view.valid_until_s) if changes else None,
    }


def _print(view: GridView, now_s: float) -> None:
    estimate = " (estimate)" if view.is_estimate else ""
    print(f"{view.intensity_g_per_kwh:.1f} gCO2e/kWh, {view.kind}{estimate}: {view.state.value}")
    print(f"zone      {printable(view.zone) or 'none named'}")
    print(f"source    {printable(view.source)}")
    print(f"observed  {utc(view.observed_at_s)} ({_age(now_s - view.observed_at_s)} ago)")
    if not view.forecast:
        print("forecast  none")
        return
    print(f"forecast  to {utc(view.forecast_end_s)}\n")
    print_table(
        ("from (UTC)", "gCO2e/kWh"),
        [(utc(p.start_s), f"{p.intensity_g_per_kwh:.1f}") for p in view.forecast],
    )


def _age(seconds: float) -> str:
    """A length of time in the largest unit of which it holds at least two."""
    for unit, length_s in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
