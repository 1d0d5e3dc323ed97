"""``green report``."""

from __future__ import annotations

import argparse

import msgspec

from green_core.cli.common import (
    Commands,
    add_ledger,
    add_span,
    figure,
    print_json,
    print_table,
)
from green_core.export.ledger import GROUPS, IdleTotals, Totals, idle_totals, totals
from green_core.values import JOULES_PER_KWH

_NOTES = """\
kWh is energy at the device; facility overhead (PUE) is in gCO2e, not in kWh.
Location-based gCO2e, embodied share included where configured. Rows of different methods
(measured, estimated) or kinds of intensity (average, marginal) are not comparable: not added up."""


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "report",
        help="sum up energy and carbon from the ledger",
        description="Requests, tokens, energy and carbon by tenant, urgency or model. Idle energy "
        "belongs to nobody and stands apart.",
    )
    add_ledger(parser)
    parser.add_argument("--by", choices=GROUPS, default="tenant", help="default: tenant")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_span(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    since_s, until_s = arguments.since, arguments.until
    rows = totals(
        arguments.ledger,
        by=arguments.by,
        since_s=since_s,
        until_s=until_s,
        tenant=arguments.tenant,
    )
    # Idle time is the server's, so a single tenant's report does not carry it.
    idle = (
        []
        if arguments.tenant is not None
        else idle_totals(arguments.ledger, since_s=since_s, until_s=until_s)
    )
    if arguments.json:
        print_json({"by": arguments.by, "groups": [_as_json(r) for r in rows], "idle": idle})
    else:
        _print(arguments.by, rows, idle)
    return 0


def _joules_per_request(row: Totals) -> float:
    return row.energy_j / row.requests


def _as_json(row: Totals) -> dict[str, object]:
    return {
        **msgspec.structs.asdict(row),
        "energy_kwh": row.energy_j / JOULES_PER_KWH,
        "carbon_g": row.carbon_g,
        "joules_per_request": _joules_per_request(row),
    }


def _print(by: str, rows: list[Totals], idle: list[IdleTotals]) -> None:
    if not rows and not idle:
        print("no requests in this span")
        return
    header = (by, "requests", "tokens in", "cached", "out", "kWh", "gCO2e", "J/request")
    print_table((*header, "method", "intensity"), [_row(row) for row in rows])
    print()
    for interval in idle:
        share = interval.idle_j / interval.metered_j if interval.metered_j else 0.0
        print(
            f"idle, no request: {figure(interval.idle_j / JOULES_PER_KWH)} kWh, {share:.1%} of the "
            f"{figure(interval.metered_j / JOULES_PER_KWH)} kWh counted, "
            f"{figure(interval.idle_g)} gCO2e ({interval.method})"
        )
    unsettled = sum(row.unsettled for row in rows)
    if unsettled:
        print(f"{unsettled} request(s) ended before the meter had seen their last step")
    print(_NOTES)


def _row(row: Totals) -> tuple[str, ...]:
    return (
        row.group,
        str(row.requests),
        str(row.prompt_tokens),
        str(row.cached_tokens),
        str(row.output_tokens),
        figure(row.energy_j / JOULES_PER_KWH),
        figure(row.carbon_g),
        figure(_joules_per_request(row)),
        row.method,
        row.kind if row.basis == "unknown" else f"{row.kind}/{row.basis}",
    )
