"""``green off`` and ``green on``."""

from __future__ import annotations

import argparse
import os

from green_core.cli.common import Commands
from green_core.config import ENV_CONFIG
from green_core.errors import ConfigError
from green_core.switch import set_off, switch_file

ENV_RUN_DIR = "GREEN_RUN_DIR"
_DESCRIPTION = """\
The one switch: 'off' returns a running server to the engine's stock behaviour, 'on' brings the
configured policies back. Measuring goes on either way. The server follows within two seconds.

The switch is a file of its own, so your config stays as it is: FILE.off beside the config in
use, or 'off' in the server's run folder when it has no config or its folder is read-only."""


def register(commands: Commands) -> None:
    """Add both subcommands."""
    for name, off, text in (
        ("off", True, "return a running server to the engine's stock behaviour"),
        ("on", False, "bring the configured policies back"),
    ):
        parser = commands.add_parser(
            name,
            help=text,
            description=_DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        place = parser.add_mutually_exclusive_group()
        place.add_argument(
            "--config",
            metavar="FILE",
            help="the config that the server was started with (default: GREEN_CONFIG)",
        )
        place.add_argument(
            "--run-dir",
            metavar="DIR",
            help="the server's run folder (default: GREEN_RUN_DIR, if there is no config)",
        )
        parser.set_defaults(run=_run, off=off)


def _run(arguments: argparse.Namespace) -> int:
    config, run_dir = arguments.config, arguments.run_dir
    if config is None and run_dir is None:
        config, run_dir = os.environ.get(ENV_CONFIG), os.environ.get(ENV_RUN_DIR)
    # A mistyped path would switch nothing and look as if it had.
    if config and not os.path.isfile(config):
        raise ConfigError(config, "no such config file", remedy="Give the one the server uses")
    if not config and run_dir and not os.path.isdir(run_dir):
        raise ConfigError(run_dir, "no such folder", remedy="Give the server's run folder")
    changed = set_off(config, arguments.off, run_dir=run_dir)
    state = "off" if arguments.off else "on"
    file = switch_file(config, run_dir=run_dir)
    print(f"policies are {state if changed else f'{state} already'} ({file})")
    return 0
