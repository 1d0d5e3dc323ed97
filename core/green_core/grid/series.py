"""Reading a carbon file into a checked, ordered series. Standard library only.

CSV (with a header) and JSON, both also as ``.gz``. Times are ISO 8601 with an offset or ``Z``;
values are g/kWh. Every refusal is a ``ConfigError`` of one line that says where and what to do.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from green_core.errors import ConfigError

TIME_COLUMNS = (
    "ts_utc",
    "timestamp",
    "datetime",
    "time",
    "point_time",
    "from",
    "date",
)
VALUE_COLUMNS = (
    "ci_lca",
    "intensity_g_per_kwh",
    "carbon_intensity",
    "carbonintensity",
    "ci_direct",
    "intensity",
    "ci",
    "value",
)
# Keys under which services and exports put the list of points.
LIST_KEYS = ("data", "history", "forecast", "points")
GAP_WORDS = frozenset({"", "null", "none", "nan", "na", "n/a", "-"})
UNITS = frozenset({"g/kwh", "gco2/kwh", "gco2e/kwh", "gco2eq/kwh", "g_per_kwh"})
ADD_OFFSET = 'Add the offset, for example "2024-05-01T12:00Z" or "2024-05-01T14:00+02:00"'


class Point(msgspec.Struct, frozen=True):
    """A value that holds from ``at_s`` (epoch seconds) on.

    In a gap the last known value is carried: ``known_at_s`` is when that one was given, and
    ``is_gap`` is true.
    """

    at_s: float
    intensity_g_per_kwh: float
    known_at_s: float
    is_gap: bool = False


def read_series(path: str, *, time_column: str = "", value_column: str = "") -> tuple[Point, ...]:
    """Read the file into points in order of time, at least two of them with a value.

    Nulls, NaN and empty cells are gaps (FIELD G4): they carry the value before them, and are
    dropped where there is none. Rows may come in any order. A time that is given twice must
    have the same value both times.
    """
    found: dict[float, tuple[float | None, str]] = {}
    for where, row, time_key, value_key in _records(path, time_column, value_column):
        at_s = parse_time(row.get(time_key), f"{path}, {where}")
        value = parse_value(row.get(value_key), f"{path}, {where}")
        earlier = found.get(at_s)
        if earlier is None or earlier[0] is None:
            found[at_s] = (value, where)
        elif value is not None and value != earlier[0]:
            raise ConfigError(
                f"{path}, {where}",
                f"gives {value} g/kWh for a time that {earlier[1]} gives {earlier[0]} for",
                remedy="Keep one; twice the same hour is often local time written without offset",
            )
    points = tuple(_carried(found))
    if sum(not point.is_gap for point in points) < 2:
        raise ConfigError(
            path,
            f"holds {len(points)} usable point(s), at least 2 are needed",
            remedy="Give one row per time with a time and a value in g/kWh",
        )
    return points


def parse_time(text: Any, where: str) -> float:
    """Epoch seconds of an ISO 8601 time; one without an offset is refused (FIELD G8)."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except (AttributeError, ValueError) as error:
        raise ConfigError(
            where, f"{text!r} is not an ISO 8601 time", remedy='Write it like "2024-05-01T12:00Z"'
        ) from error
    if moment.tzinfo is None:
        raise ConfigError(where, f"the time {text!r} names no offset from UTC", remedy=ADD_OFFSET)
    return moment.timestamp()


def _carried(found: dict[float, tuple[float | None, str]]) -> Iterator[Point]:
    last: Point | None = None
    for at_s in sorted(found):
        value = found[at_s][0]
        if value is not None:
            last = Point(at_s, value, at_s)
            yield last
        elif last is not None:
            yield Point(at_s, last.intensity_g_per_kwh, last.known_at_s, is_gap=True)


def parse_value(raw: Any, where: str) -> float | None:
    """The number in a cell, ``None`` for a gap.

    Raises ``ConfigError`` under ``where`` for what is neither (text, infinite, below 0).
    """
    if raw is None or (isinstance(raw, str) and raw.strip().lower() in GAP_WORDS):
        return None
    if isinstance(raw, bool):
        value = math.inf
    else:
        try:
            value = float(raw)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                where, f"{raw!r} is not a number", remedy="Write g/kWh with a decimal point"
            ) from error
    if math.isnan(value):
        return None
    if math.isinf(value) or value < 0:
        raise ConfigError(
            where,
            f"{raw!r} is not an intensity",
            remedy="Give a finite number of at least 0 in g/kWh, or leave the cell empty for a gap",
        )
    return value


def _records(
    path: str, time_column: str, value_column: str
) -> Iterator[tuple[str, dict[str, Any], str, str]]:
    """Rows with a word on where they stand and the two keys to read."""
    text = read_text(path)
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    if suffix == ".json":
        rows = _json_rows(path, text)
        names: list[str] = list(dict.fromkeys(key for row in rows[:100] for key in row))
        places: Iterator[str] = (f"point {n}" for n in range(1, len(rows) + 1))
    elif suffix == ".csv":
        reader = csv.DictReader(io.StringIO(text))
        names = [name for name in (reader.fieldnames or []) if name]
        rows = list(reader)
        # Blank lines are skipped by the reader, so count rows: "row 1" is the first below the head.
        places = (f"row {n}" for n in range(1, len(rows) + 1))
    else:
        raise ConfigError(
            "carbon.path",
            f"{path!r} is neither .csv nor .json (or either with .gz)",
            remedy="Convert the file or give it the right ending",
        )
    time_key = _column(path, names, time_column, TIME_COLUMNS, "carbon.time_column")
    value_key = _column(path, names, value_column, VALUE_COLUMNS, "carbon.value_column")
    for where, row in zip(places, rows, strict=True):
        yield where, row, time_key, value_key


def _column(path: str, names: list[str], wanted: str, accepted: Sequence[str], key: str) -> str:
    by_name = {name.strip().lower(): name for name in names}
    for name in [wanted] if wanted else accepted:
        if name.lower() in by_name:
            return by_name[name.lower()]
    looked_for = repr(wanted) if wanted else "one of " + ", ".join(accepted)
    raise ConfigError(
        key,
        f"{path} has the columns {', '.join(names) or 'none'}; looked for {looked_for}",
        remedy=f"Set {key} to the name of the column",
    )


def read_text(path: str) -> str:
    """The text of a UTF-8 file, unpacked where its name ends in ``.gz``.

    Raises ``ConfigError`` under ``carbon.path`` when it cannot be read.
    """
    try:
        raw = Path(path).read_bytes()
        if path.endswith(".gz"):
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except gzip.BadGzipFile as error:
        raise _unreadable(path, "is not gzip") from error
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from error
    except (EOFError, zlib.error) as error:
        raise _unreadable(path, "the gzip stream is cut short or damaged") from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, "it is not UTF-8 text") from error


def _unreadable(path: str, why: str) -> ConfigError:
    return ConfigError(
        "carbon.path",
        f"{path!r} cannot be read ({why})",
        remedy="Name a readable CSV or JSON file",
    )


def _json_rows(path: str, text: str) -> list[dict[str, Any]]:
    """The list of points in any of the shapes that services use (FIELD G7)."""
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(path, f"is not valid JSON ({error})", remedy="Mend the file") from error
    if isinstance(tree, dict):
        _check_units(path, tree)
        tree = next((tree[key] for key in LIST_KEYS if key in tree), None)
    if not isinstance(tree, list) or not all(isinstance(row, dict) for row in tree):
        raise ConfigError(
            path,
            "holds no list of points",
            remedy='Give [{"time": "2024-05-01T12:00Z", "value": 213.5}, ...], alone or under '
            + ", ".join(LIST_KEYS),
        )
    return tree


def _check_units(path: str, tree: dict[str, Any]) -> None:
    """Refuse values that say they are in another unit (FIELD G10)."""
    meta = tree.get("meta")
    units = meta.get("units") if isinstance(meta, dict) else tree.get("units")
    if units is not None and str(units).replace(" ", "").lower() not in UNITS:
        raise ConfigError(
            path,
            f"says its values are in {units!r}, expected g/kWh",
            remedy="Convert them (1 lb/MWh is 0.45359237 g/kWh) and correct the unit",
        )
