"""``--plugins`` and ``--green-config`` on vLLM's command line.

vLLM has no such flags. It loads plugins from inside ``AsyncEngineArgs.add_cli_args`` and calls
``EngineArgs.add_cli_args`` next, once for each of its subcommands, so that call is intercepted
until one of these parsers starts to parse. The actions do the work, since ``from_cli_args`` drops
what it does not know; they also see ``--plugins=green`` and vLLM's YAML config files, which a
look at ``sys.argv`` would miss.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from green_core.activation import asked
from green_core.errors import GreenError

PLUGIN = "green"
MIDDLEWARE = "vllm_green.http.GreenMiddleware"


def offer_flags() -> None:
    """Add the flags to every parser that vLLM builds from now on, until one of them parses."""
    from vllm.engine.arg_utils import EngineArgs

    original = EngineArgs.__dict__["add_cli_args"]

    def add_cli_args(parser: Any) -> Any:
        parser = original.__func__(parser)
        add_flags(parser)
        parse = parser.parse_known_args

        def parse_known_args(*args: Any, **kwargs: Any) -> Any:
            EngineArgs.add_cli_args = original
            return parse(*args, **kwargs)

        parser.parse_known_args = parse_known_args
        return parser

    EngineArgs.add_cli_args = staticmethod(add_cli_args)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add both flags; where the environment asked already, prepare the HTTP front too."""
    group = parser.add_argument_group("green", "Carbon and energy awareness (greenserve).")
    group.add_argument(
        "--plugins",
        action=_Plugins,
        metavar="NAME[,NAME]",
        help="Plugins to switch on by name; 'green' turns greenserve on. Other installed "
        "plugins keep loading as ever.",
    )
    group.add_argument(
        "--green-config",
        action=_Config,
        metavar="FILE",
        help="greenserve's TOML configuration; naming one also turns greenserve on.",
    )
    if asked():
        default = list(parser.get_default("middleware") or [])
        if MIDDLEWARE not in default:
            parser.set_defaults(middleware=[*default, MIDDLEWARE])


class _Plugins(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        names = [name.strip() for name in str(values).split(",") if name.strip()]
        setattr(namespace, self.dest, names)
        allowed = os.environ.get("VLLM_PLUGINS")
        if allowed is not None:  # a whitelist, for platforms and endpoints too: extend it
            listed = [name for name in allowed.split(",") if name]
            os.environ["VLLM_PLUGINS"] = ",".join(dict.fromkeys([*listed, *names]))
        if PLUGIN in names:
            _switch_on(namespace, None)


class _Config(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        _switch_on(namespace, str(values))


def _switch_on(namespace: argparse.Namespace, path: str | None) -> None:
    from vllm_green.start import start

    try:
        start(path or getattr(namespace, "green_config", None))
    except GreenError as error:
        refuse(error)
    if hasattr(namespace, "middleware"):
        middleware = list(namespace.middleware or [])
        if MIDDLEWARE not in middleware:
            namespace.middleware = [*middleware, MIDDLEWARE]


def refuse(error: GreenError) -> NoReturn:
    """End a command line with one line that says what to do."""
    sys.stderr.write(f"green: {error}\n")
    raise SystemExit(2)
