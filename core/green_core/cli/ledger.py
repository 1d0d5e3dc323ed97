"""``green ledger``."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from typing import TextIO

from green_core.cli.common import Commands, add_ledger, add_span, print_json, print_table
from green_core.errors import LedgerUnavailable
from green_core.export.ledger import FORMATS, Balance, balance, read_requests


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("ledger", help="export and audit the record of requests")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    export = actions.add_parser(
        "export",
        help="write requests as CSV or JSON lines",
        description="Write one row a request, oldest first. CSV puts an apostrophe in front of "
        "text that a spreadsheet would run as a formula; JSON lines keep text as it was recorded.",
    )
    add_ledger(export)
    export.add_argument("--format", choices=sorted(FORMATS), default="csv", help="default: csv")
    export.add_argument("--output", metavar="FILE", help="write here instead of stdout")
    add_span(export)
    export.set_defaults(run=_export)
    check = actions.add_parser(
        "check",
        help="check that requests plus idle add up to what was metered",
        description="Audit every engine process in the ledger: the energy of its requests plus "
        "idle against the energy its meter counted. Exits with 1 if the books do not balance.",
    )
    add_ledger(check)
    check.add_argument("--json", action="store_true", help="print JSON instead of a table")
    check.set_defaults(run=_check)


def _export(arguments: argparse.Namespace) -> int:
    rows = read_requests(
        arguments.ledger, since_s=arguments.since, until_s=arguments.until, tenant=arguments.tenant
    )
    with _output(arguments.output) as stream:
        FORMATS[arguments.format](rows, stream)
    return 0


def _output(path: str | None) -> TextIO | nullcontext[TextIO]:
    if path is None:
        return nullcontext(sys.stdout)
    try:
        return open(path, "w", encoding="utf-8", newline="")
    except OSError as error:
        raise LedgerUnavailable(
            f"{path}: cannot be written ({error.strerror}). Give another --output"
        ) from error


def _check(arguments: argparse.Namespace) -> int:
    books = balance(arguments.ledger)
    faults = sum(not book.balanced for book in books)
    if arguments.json:
        print_json([_as_json(book) for book in books])
    else:
        print_table(
            ("process", "engine", "metered J", "requests J", "idle J", "difference J", "books"),
            [_row(book) for book in books],
        )
        print(f"\n{len(books)} engine process(es), {faults} out of balance")
    return 1 if faults else 0


def _verdict(book: Balance) -> str:
    if not book.balanced:
        return "OUT OF BALANCE"
    return "balanced" if book.closed else "open"


def _row(book: Balance) -> tuple[str, ...]:
    joules = (book.metered_j, book.requests_j, book.idle_j, book.difference_j)
    name = f"{book.engine}:{book.engine_index}"
    return (book.instance_id, name, *(f"{value:.3f}" for value in joules), _verdict(book))


def _as_json(book: Balance) -> dict[str, object]:
    return {
        "instance_id": book.instance_id,
        "engine": book.engine,
        "engine_index": book.engine_index,
        "model": book.model,
        "closed": book.closed,
        "balanced": book.balanced,
        "metered_j": book.metered_j,
        "requests_j": book.requests_j,
        "idle_j": book.idle_j,
        "difference_j": book.difference_j,
    }
