"""``green devices``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from green_core.cli.common import Commands, figure, print_json, print_table
from green_core.config import nearest
from green_core.energy.devices import DeviceModel, device_model
from green_core.energy.figures import figures, listed
from green_core.export.text import printable

_COLUMNS = ("power_limit_w", "idle_w", "idle_context_w", "peak_flops", "memory_bytes_per_s")


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "devices",
        help="show what is published about GPUs and CPUs, and the model made of it",
        description="List the devices that have published figures, or show one device: each "
        "figure with its method, source and year, and the constants of the energy model. What "
        "nobody has published is unknown, and shown as -.",
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help='as the driver reports it ("NVIDIA H100 PCIe")'
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        names = listed()
        if arguments.json:
            print_json([_as_json(name) for name in names])
        else:
            _print_all(names)
        return 0
    name: str = arguments.name
    if arguments.json:
        print_json(_as_json(name))
    else:
        _print_one(name)
    if figures(name) or name.strip().lower() == "cpu":
        return 0
    print(
        f"green: nothing is known of {printable(name)}. {nearest(name, list(listed()))}",
        file=sys.stderr,
    )
    return 1


def _as_json(name: str) -> dict[str, Any]:
    known = figures(name)
    return {
        "device": known[0].device if known else name,
        "figures": msgspec.to_builtins(known),
        "model": msgspec.to_builtins(device_model(name)),
    }


def _print_all(names: tuple[str, ...]) -> None:
    rows = []
    for name in names:
        shown = {each.quantity: each.shown for each in reversed(figures(name))}
        embodied = shown.get("embodied_g", "-")
        rows.append([name, *(shown.get(column, "-") for column in _COLUMNS), embodied])
    print_table(("device", "limit", "idle", "with context", "peak", "memory", "embodied"), rows)


def _print_one(name: str) -> None:
    known = figures(name)
    print(f"{printable(known[0].device if known else name)}\n")
    if known:
        print_table(
            ("figure", "value", "method", "year", "source"),
            [(e.label, e.shown, e.method, str(e.year), _words(e.source, e.note)) for e in known],
        )
        print()
    _print_model(device_model(name))


def _print_model(model: DeviceModel) -> None:
    error = model.uncertainty_ratio
    print(
        f"model     {figure(model.static_w)} W + {figure(model.flop_j * 1e12)} pJ/FLOP + "
        f"{figure(model.byte_j * 1e12)} pJ/byte"
    )
    print(
        f"method    {model.method}, "
        + ("fitted to measurements" if model.is_measured else "not measured")
    )
    print(f"error     {'unknown' if error is None else f'{error:.0%} at most'}")
    print(f"from      {printable(model.source)}, {model.year}")


def _words(source: str, note: str) -> str:
    return f"{source} ({note})" if note else source
