"""The ``green`` command.

Answers go to stdout. An error is one line on stderr and exit code 2; a check that found a fault
exits with 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from green_core.cli import (
    config,
    devices,
    doctor,
    forecast,
    intensity,
    ledger,
    report,
    switch,
    version,
)
from green_core.errors import GreenError
from green_core.export.text import printable

_COMMANDS = (config, doctor, switch, intensity, forecast, devices, report, ledger, version)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="green",
        description="Carbon- and energy-aware LLM serving: configuration, grid signal and books.",
        epilog="Times are ISO 8601 with an offset (2026-01-31T00:00:00Z); output is in UTC. "
        "Exit codes: 0 done, 1 a check found a fault, 2 an error.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.register(commands)
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command and answer its exit code (argparse itself exits with 2 on bad usage)."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except GreenError as error:
        print("green: " + printable(" ".join(str(error).split())), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Keep the interpreter from flushing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run())
