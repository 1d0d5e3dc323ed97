"""greenserve for vLLM: ``vllm serve MODEL --plugins green [--green-config green.toml]``.

vLLM calls :func:`register` in every process that it starts, asked or not. Unless asked, nothing
is patched and no thread starts; only while a command line is being parsed are the two flags
added. Importing this package imports the standard library alone.
"""

from __future__ import annotations

import sys

__all__ = ["enable", "register"]


def register() -> None:
    """Entry point ``vllm.general_plugins``: idempotent, runs in each vLLM process."""
    on_command_line = _parser_is_being_built()
    from green_core.activation import asked
    from green_core.errors import GreenError

    try:
        if asked():
            from vllm_green.start import start

            start()
    except GreenError as error:
        if not on_command_line:
            raise
        from vllm_green.cli import refuse

        refuse(error)
    if on_command_line:
        from vllm_green.cli import offer_flags

        offer_flags()


def enable(config: str | None = None) -> None:
    """Ask for green in a program that uses ``vllm.LLM`` or ``AsyncLLM`` (before building it).

    Raises ``ConfigError`` for a configuration that cannot be used.
    """
    from vllm_green.start import start

    start(config)


def _parser_is_being_built() -> bool:
    """vLLM loads plugins from inside ``add_cli_args``; only then are flags of any use."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_code.co_name == "add_cli_args":
            return True
        frame = frame.f_back
    return False
