"""``green version``."""

from __future__ import annotations

import argparse

from green_core.cli.common import Commands
from green_core.export.text import greenserve_version


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("version", help="print the version of greenserve")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    print(f"greenserve {greenserve_version()}")
    return 0
