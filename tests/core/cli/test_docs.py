"""The document of the command names every subcommand and option."""

import argparse
from pathlib import Path

from green_core.cli import build_parser

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def leaves(parser, path):
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not nested:
        yield path, parser
    for action in nested:
        for name, child in action.choices.items():
            yield from leaves(child, f"{path} {name}")


def test_every_subcommand_and_option_is_documented():
    for path, parser in leaves(build_parser(), "green"):
        assert f"`{path}" in TEXT, path
        section = next(s for s in TEXT.split("\n## ") if f"`{path}" in s.partition("\n")[0])
        for action in parser._actions:
            option = action.option_strings[-1] if action.option_strings else ""
            assert option in ("", "--help") or option in section, (path, option)
