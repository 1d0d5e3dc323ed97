"""The ledger's requests as CSV and as JSON lines."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from green_core.export.ledger import schema
from green_core.export.text import csv_cell
from green_core.values import JOULES_PER_KWH

DERIVED_COLUMNS = ("arrival_time", "finished_time", "energy_kwh", "carbon_g")
COLUMNS = DERIVED_COLUMNS + schema.REQUEST_COLUMNS


def write_jsonl(rows: Iterable[Mapping[str, Any]], stream: TextIO) -> int:
    """One JSON object a line, text exactly as it was recorded. Answers the number of rows."""
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007
        stream.write(msgspec.json.encode(_with_derived(row)).decode() + "\n")
    return count


def write_csv(rows: Iterable[Mapping[str, Any]], stream: TextIO) -> int:
    """A header and one line a row. Answers the number of rows.

    All text is quoted, and text that a spreadsheet would run as a formula gets an apostrophe in
    front (tenants and request ids are chosen by clients).
    """
    writer = csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007
        full = _with_derived(row)
        writer.writerow([_cell(full[name]) for name in COLUMNS])
    return count


FORMATS: Mapping[str, Callable[[Iterable[Mapping[str, Any]], TextIO], int]] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
}


def utc_text(epoch_s: float) -> str:
    """An instant as ISO 8601 in UTC, to the millisecond."""
    text = datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _with_derived(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "arrival_time": utc_text(row["arrival_s"]),
        "finished_time": utc_text(row["finished_s"]),
        "energy_kwh": row["energy_j"] / JOULES_PER_KWH,
        "carbon_g": row["operational_g"] + row["embodied_g"],
        **row,
    }


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return csv_cell(value) if isinstance(value, str) else value
