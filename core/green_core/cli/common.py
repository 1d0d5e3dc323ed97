"""Arguments and output that several subcommands share."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from green_core import config as configuration
from green_core.errors import ConfigError
from green_core.export.text import printable

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the green.toml to read (default: the one that GREEN_CONFIG names, else none)",
    )


def load_config(
    path: str | None, overrides: Mapping[str, Any] | None = None
) -> configuration.Resolved:
    """Resolve ``--config``, or what ``GREEN_CONFIG`` names; a missing file names those two.

    ``overrides`` are flags that set a key, by its dotted path.
    """
    named = path or os.environ.get(configuration.ENV_CONFIG)
    if named and not os.path.exists(named):
        raise ConfigError(
            named,
            "no such config file",
            remedy="Check --config (a server's: --green-config)" if path else "Check GREEN_CONFIG",
        )
    return configuration.load(path, overrides=overrides)


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """``--ledger``."""
    parser.add_argument(
        "--ledger", metavar="FILE", required=True, help="the SQLite file that ledger.path names"
    )


def add_span(parser: argparse.ArgumentParser) -> None:
    """``--since``, ``--until`` and ``--tenant``."""
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=instant,
        help="only what ended at or after TIME (ISO 8601 with an offset)",
    )
    parser.add_argument(
        "--until", metavar="TIME", type=instant, help="only what ended before TIME (likewise)"
    )
    parser.add_argument("--tenant", metavar="NAME", help="only this tenant")


def instant(text: str) -> float:
    """Epoch seconds of an ISO 8601 time; one without an offset is refused (FIELD G8)."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an ISO 8601 time such as 2026-01-31T00:00:00Z"
        ) from None
    if parsed.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no offset, so it could be meant in any time zone; "
            "add Z for UTC or an offset such as +01:00"
        )
    return parsed.timestamp()


def utc(epoch_s: float) -> str:
    """An instant in UTC, to the second."""
    text = datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")


def age(seconds: float) -> str:
    """A length of time in the largest unit of which it holds at least two."""
    for unit, length_s in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def figure(value: float) -> str:
    """Four significant digits without an exponent, so that a single request's share shows."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def assignment(key: str, value: Any) -> str:
    """A setting as its file has it. Control characters are escaped."""
    # JSON's scalars and lists are written as TOML writes them.
    return f"{key} = {'unset' if value is None else json.dumps(value)}"


def print_json(value: Any) -> None:
    """Print ``value`` as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns; the first is aligned left, the others right."""
    lines = [list(header), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
