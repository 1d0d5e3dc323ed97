"""``green config``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from green_core import config as configuration
from green_core import preflight
from green_core.cli.common import Commands, add_config, assignment, load_config
from green_core.switch import is_off


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("config", help="inspect the configuration")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="validate and print the effective values",
        description="Resolve the configuration as a server started here would, and print every "
        "effective value with its origin: file, environment, profile or default.",
    )
    add_config(check)
    check.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    resolved = load_config(arguments.config)
    preflight.check(resolved.config)
    lines = list(_values(resolved))
    width = max(len(line) for line, _ in lines)
    for line, origin in lines:
        print(f"{line.ljust(width)}  # {origin}")
    if resolved.file and is_off(resolved.file):
        print("# policies are switched off ('green on' brings them back)")
    return 0


def _values(resolved: configuration.Resolved) -> Iterator[tuple[str, str]]:
    """Each effective value as ``key = value`` and its origin."""
    for key, value, origin in configuration.settings(resolved):
        yield assignment(key, value), origin
