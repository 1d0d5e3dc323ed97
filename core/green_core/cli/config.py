"""``green config``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from green_core import config as configuration
from green_core import preflight
from green_core.cli.common import Commands, add_config, load_config
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
    for table, content in msgspec.structs.asdict(resolved.config).items():
        if not isinstance(content, msgspec.Struct):
            yield _line(table, content, resolved)
            continue
        for key, value in msgspec.structs.asdict(content).items():
            yield _line(f"{table}.{key}", value, resolved)


def _line(key: str, value: Any, resolved: configuration.Resolved) -> tuple[str, str]:
    # JSON's scalars and lists are written as TOML writes them, and it escapes control characters.
    text = "unset" if value is None else json.dumps(value)
    return f"{key} = {text}", resolved.origins.get(key, "default")
