"""``green intensity``."""

from __future__ import annotations

import argparse

from green_core.cli.common import Commands, print_json, utc
from green_core.cli.grid import Reading, add_parser, as_json, provenance, read_signal, tell_problem


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_parser(
        commands,
        "intensity",
        help="show the carbon signal as policies see it now",
        more="Show the carbon intensity in use, its kind, source, age and quality, and the state "
        "against the thresholds. A replayed file is shown from its start. Exits with 1 when a "
        "live source fails and its last word is not fresh any more.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    reading = read_signal(arguments)
    if arguments.json:
        print_json(as_json(reading))
    else:
        _print(reading)
    return tell_problem(reading)


def _print(reading: Reading) -> None:
    view = reading.view
    estimate = " (estimate)" if view.is_estimate else ""
    print(f"{view.intensity_g_per_kwh:.1f} gCO2e/kWh, {view.kind}{estimate}: {view.state.value}")
    rows = provenance(reading)
    ahead = f"to {utc(view.forecast_end_s)}: {reading.method}" if view.forecast else "none"
    for label, text in [*rows, ("forecast", ahead)]:
        print(f"{label:<9}  {text}")
