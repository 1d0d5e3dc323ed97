"""``green doctor``."""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path

from green_core.cli.common import Commands, add_config, load_config, print_json
from green_core.cli.doctor_text import host_text, live_text
from green_core.cli.grid import read_signal
from green_core.doctor import probes
from green_core.doctor.facts import SignalFacts
from green_core.doctor.local import host_report
from green_core.doctor.report import HostReport, LiveReport, is_clean, live_report
from green_core.errors import ConfigError, GreenError

_KEYS = ("VLLM_API_KEY", "OPENAI_API_KEY")
_DESCRIPTION = """\
Says what is live, what is measured and where energy is lost for nothing.

With --live: a running server's engine, seams, meter, signal, policies and settings, and its energy
traps, from two looks some seconds apart. Without: this machine, the engines installed on it, the
meters that can be read, and the configuration that a server started here would use."""


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "doctor",
        help="look for energy traps and for parts that are not live",
        description=_DESCRIPTION,
        epilog="Exit codes: 0 nothing found, 1 problems or traps found, 2 an error.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config(parser)
    parser.add_argument("--live", metavar="URL", help="a server: http://127.0.0.1:8000")
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        help=f"file that holds the server's API key (default: {' or '.join(_KEYS)})",
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=_seconds,
        default=5.0,
        help="time between the two looks; 0: look once (default: 5)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--all", action="store_true", help="show settings with their defaults too")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    report: LiveReport | HostReport
    if arguments.live is not None:
        report = _live(arguments)
        text = live_text(report, every_setting=arguments.all)
    else:
        report = _here(arguments)
        text = host_text(report, every_setting=arguments.all)
    if arguments.json:
        print_json(report)
    else:
        print(text, end="")
    return 0 if is_clean(report) else 1


def _live(arguments: argparse.Namespace) -> LiveReport:
    from green_core.doctor.live import LiveServer  # brings an HTTP client

    server = LiveServer(arguments.live, key=_key(arguments.api_key_file))
    try:
        status, earlier = server.status(), None
        health = server.health()
        if arguments.seconds > 0:
            time.sleep(arguments.seconds)
            status, earlier = server.status(), status
    finally:
        server.close()
    return live_report(status, earlier, url=server.name, health=health)


def _here(arguments: argparse.Namespace) -> HostReport:
    resolved = load_config(arguments.config)
    signal, problem = None, ""
    try:
        signal = _signal(arguments)
    except GreenError as error:
        problem = str(error)
    return host_report(
        resolved,
        engines=probes.engines(),
        meters=probes.meters(config=resolved.file or None),
        signal=signal,
        signal_problem=problem,
    )


def _signal(arguments: argparse.Namespace) -> SignalFacts:
    """The configured signal, as ``green intensity`` without options of its own reads it."""
    configured = argparse.Namespace(
        config=arguments.config, source=None, zone=None, kind=None, url=None
    )
    reading = read_signal(configured)
    return SignalFacts(reading.view, problem=reading.problem)


def _key(file: str | None) -> str:
    """The API key, which is never shown; empty where there is none."""
    if file is None:
        origin = next((name for name in _KEYS if os.environ.get(name)), "")
        key = os.environ.get(origin, "")
    else:
        origin = f"--api-key-file {file}"
        try:
            key = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                origin, f"cannot be read ({error})", remedy="Give a readable file"
            ) from error
    if origin and not (key and key.isascii() and key.isprintable()):
        raise ConfigError(origin, "holds no API key", remedy="It should be one line of ASCII")
    return key


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds
