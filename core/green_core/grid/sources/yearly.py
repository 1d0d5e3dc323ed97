"""Yearly averages from a file of the user's: what Ember and Our World in Data publish.

Layouts that are known by their columns (checked 2026-11; both publish under CC BY 4.0):

* Ember, Yearly Electricity Data, long: ``Area``, ``ISO 3 code`` (``Country code`` until 2024),
  ``Year``, ``Variable``, ``Unit``, ``Value``; the rows whose variable is ``CO2 intensity``.
* Ember, one row per area, year and source (since July 2026): ``Electricity source`` and
  ``Emissions intensity (gCO2e/kWh)``; the rows of ``Total generation``.
* Our World in Data, chart download: ``Entity``, ``Code``, ``Year`` and a column that names its
  unit (``Lifecycle carbon intensity of electricity - gCO2/kWh``), or the short name
  ``co2_intensity__gco2_kwh``; energy data set: ``country``, ``iso_code``, ``year``,
  ``carbon_intensity_elec`` (g/kWh by its code book).
* The table that ships with this package: ``zone``, ``name``, ``intensity_g_per_kwh``, ``basis``,
  ``year``, ``source``.

Any other table works once ``carbon.value_column`` names its column of g/kWh.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from green_core.config import CarbonConfig, nearest
from green_core.errors import ConfigError
from green_core.grid.constant import ConstantSignal
from green_core.grid.series import UNITS, parse_value, read_text
from green_core.grid.static import LICENCES, WORLD, look_up
from green_core.values import Basis

_NAMES = ("area", "entity", "name", "country", "country or region")
_CODES = ("iso 3 code", "iso3 code", "country code", "code", "iso_code", "zone")
_LIFECYCLE_BY_NAME = ("co2_intensity__gco2_kwh", "carbon_intensity_elec")
_OWN = "intensity_g_per_kwh"
# "Carbon intensity of electricity - gCO2/kWh", "Emissions intensity (gCO2e/kWh)"
_INTENSITY = re.compile(r"(?:lifecycle )?(?:carbon|co2|emissions) intensity\b[^-(]*(.*)")


class _Row(msgspec.Struct, frozen=True):
    """A row of intensities: the zone it is about, its cells, and where it stands."""

    code: str
    name: str
    cells: dict[str, str]
    where: str

    @property
    def labels(self) -> tuple[str, str]:
        return self.code.casefold(), self.name.casefold()


class _Average(msgspec.Struct, frozen=True):
    """The average of one year, g/kWh."""

    year: int
    intensity_g_per_kwh: float
    row: _Row


class _Columns(msgspec.Struct, frozen=True):
    """Where a table keeps what is needed; ``only`` are the rows wanted: column and value."""

    name: str | None
    code: str | None
    year: str
    value: str
    unit: str | None
    only: tuple[str, str] | None
    basis: Basis
    publisher: str


def yearly_signal(carbon: CarbonConfig) -> ConstantSignal:
    """The newest yearly average of ``carbon.zone`` in ``carbon.path``.

    It is an estimate of any given hour. With no zone configured it is the world's, and the view
    says so. Raises ``ConfigError`` when the file, its units or the zone cannot be used.
    """
    if carbon.kind != "average":
        raise ConfigError(
            "carbon.kind",
            f"a file of yearly averages holds average intensities, not {carbon.kind} ones",
            remedy='Set carbon.kind = "average", or choose a source that serves marginal values',
        )
    wanted, zone = _wanted(carbon.zone)
    reader = csv.DictReader(io.StringIO(read_text(carbon.path)))
    columns = _find(carbon, [name for name in (reader.fieldnames or []) if name])
    rows = list(_rows(carbon.path, reader, columns))
    newest = _newest(rows, columns, wanted)
    if newest is None:
        known = sorted({label for row in rows for label in (row.code, row.name) if label})
        raise ConfigError(
            "carbon.zone",
            f"no average for zone {carbon.zone!r} in {carbon.path}"
            if carbon.zone.strip()
            else f"is empty, and {carbon.path} holds no average of the world",
            remedy=_suggest(wanted, known),
        )
    basis, publisher = _provenance(newest.row, columns)
    counted = basis if basis != "unknown" else "unknown basis"
    place = "" if carbon.zone.strip() else "world average, no zone configured; "
    return ConstantSignal(
        newest.intensity_g_per_kwh,
        kind="average",
        zone=zone or newest.row.code or newest.row.name,
        source=f"{Path(carbon.path).name}: {place}{publisher}{newest.year} yearly average, "
        f"{counted}",
        state=carbon.state(newest.intensity_g_per_kwh),
        observed_at_s=datetime(newest.year + 1, 1, 1, tzinfo=UTC).timestamp(),
        is_estimate=True,
        basis=basis,
        licence=LICENCES.get(publisher.partition(" via ")[0].strip(), ""),
    )


def _wanted(zone: str) -> tuple[list[str], str]:
    """What to look for in the file, best first, and the zone's own code where we know it.

    Our table knows by which name a country goes, and in which one a cloud region lies.
    """
    if not zone.strip():
        return [WORLD], WORLD
    wanted = [zone.strip().casefold()]
    with suppress(ConfigError):
        row = look_up(zone)
        return [*wanted, row.zone.casefold(), row.name.casefold()], row.zone
    return wanted, ""


def _newest(rows: list[_Row], columns: _Columns, wanted: list[str]) -> _Average | None:
    """The newest year with a value; empty cells are gaps, not zeros (FIELD G4)."""
    for label in wanted:
        newest: _Average | None = None
        for row in rows:
            average = _parse(row, columns) if label in row.labels else None
            if average is None or (newest is not None and average.year < newest.year):
                continue
            if newest is not None and average.year == newest.year:
                _refuse_contradiction(newest, average)
            newest = average
        if newest is not None:
            return newest
    return None


def _refuse_contradiction(one: _Average, other: _Average) -> None:
    if one.intensity_g_per_kwh != other.intensity_g_per_kwh:
        raise ConfigError(
            other.row.where,
            f"gives {other.intensity_g_per_kwh:g} g/kWh for a zone and year that "
            f"{one.row.where} gives {one.intensity_g_per_kwh:g} for",
            remedy="Keep one of the two rows",
        )


def _rows(path: str, reader: Iterable[dict[str, str]], columns: _Columns) -> Iterator[_Row]:
    """The rows that hold carbon intensities, of all zones."""

    def cell(cells: dict[str, str], column: str | None) -> str:
        return (cells.get(column) or "").strip() if column else ""

    for number, cells in enumerate(reader, start=1):
        if columns.only is None or cell(cells, columns.only[0]).casefold() == columns.only[1]:
            yield _Row(
                code=cell(cells, columns.code),
                name=cell(cells, columns.name),
                cells=cells,
                where=f"{path}, row {number}",
            )


def _parse(row: _Row, columns: _Columns) -> _Average | None:
    if columns.unit is not None:
        _check_unit(row.cells.get(columns.unit) or "", row.where)
    intensity = parse_value(row.cells.get(columns.value), row.where)
    if intensity is None:
        return None
    return _Average(_year(row.cells.get(columns.year), row.where), intensity, row)


def _provenance(row: _Row, columns: _Columns) -> tuple[Basis, str]:
    """Basis and publisher; our own table names both in each row."""
    if columns.value.strip().casefold() != _OWN:
        return columns.basis, columns.publisher
    source = (row.cells.get("source") or "").strip()
    basis = (row.cells.get("basis") or "").strip()
    return (_basis(basis, row.where) if basis else "unknown"), source and source + " "


def _find(carbon: CarbonConfig, header: list[str]) -> _Columns:
    """Recognise the layout by its columns."""
    by_name = {name.strip().casefold(): name for name in header}
    name, code = _first(by_name, _NAMES), _first(by_name, _CODES)
    if "year" not in by_name or (name is None and code is None):
        raise ConfigError(
            carbon.path,
            f"has the columns {', '.join(header) or 'none'}; looked for a year and a zone",
            remedy="Give a CSV with the columns Year, and Code or Entity, as Ember and Our World "
            "in Data publish it",
        )
    value, unit, only = "", None, None
    basis: Basis = "lifecycle"
    publisher = "Ember " if "area" in by_name else "Ember via Our World in Data "
    if carbon.value_column:
        value = by_name.get(carbon.value_column.strip().casefold(), "")
        basis = "unknown" if carbon.basis == "any" else carbon.basis
        publisher = ""
    elif {"variable", "unit", "value"} <= by_name.keys():
        value, unit = by_name["value"], by_name["unit"]
        only = (by_name["variable"], "co2 intensity")
    elif _OWN in by_name:
        value, basis, publisher = by_name[_OWN], "unknown", ""
    else:
        value = _by_header(carbon.path, by_name)
        if "electricity source" in by_name:
            only = (by_name["electricity source"], "total generation")
    if not value:
        raise ConfigError(
            "carbon.value_column",
            f"{carbon.path} has the columns {', '.join(header)}; none is a known carbon intensity",
            remedy="Set carbon.value_column to the name of the column that holds g/kWh",
        )
    return _Columns(name, code, by_name["year"], value, unit, only, basis, publisher)


def _by_header(path: str, by_name: dict[str, str]) -> str:
    """The one column of intensities, whose unit its name must tell; empty when there is none."""
    for known in _LIFECYCLE_BY_NAME:
        if known in by_name:
            return by_name[known]
    found = [(name, match[1]) for name in by_name if (match := _INTENSITY.fullmatch(name))]
    if not found:
        return ""
    if len(found) > 1:
        raise ConfigError(
            "carbon.value_column",
            f"{path} has several columns of intensities: "
            + ", ".join(by_name[name] for name, _ in found),
            remedy="Set carbon.value_column to the one to use",
        )
    name, unit = found[0]
    _check_unit(unit.strip(" -()"), f"{path}, column {by_name[name]!r}")
    return by_name[name]


def _check_unit(unit: str, where: str) -> None:
    """Refuse another unit than g/kWh, and a unit that is not told (FIELD G10)."""
    if unit.replace(" ", "").replace("₂", "2").casefold() not in UNITS:
        raise ConfigError(
            where,
            f"is in {unit!r}, expected gCO2/kWh" if unit else "does not tell its unit",
            remedy="Convert the values to g/kWh, and name the column in carbon.value_column",
        )


def _year(text: str | None, where: str) -> int:
    try:
        year = int((text or "").strip())
    except ValueError:
        year = 0
    if not 1900 <= year <= 2200:
        raise ConfigError(where, f"{text!r} is not a year", remedy='Write it like "2025"')
    return year


def _basis(text: str, where: str) -> Basis:
    if text in ("lifecycle", "direct", "unknown"):
        return text  # type: ignore[return-value]
    raise ConfigError(
        where, f"{text!r} is not a basis", remedy="Write lifecycle, direct or unknown"
    )


def _first(by_name: dict[str, str], accepted: Sequence[str]) -> str | None:
    return next((by_name[name] for name in accepted if name in by_name), None)


def _suggest(wanted: list[str], known: list[str]) -> str:
    """The nearest labels of the file, or how labels look in it."""
    folded = {label.casefold(): label for label in known}
    for label in wanted:
        remedy = nearest(label, list(folded))
        if remedy.startswith("Did you mean"):
            for lower, written in folded.items():
                remedy = remedy.replace(f"'{lower}'", f"'{written}'")
            return remedy
    some = ", ".join(known[:3]) or "nothing"
    return f"Write a code or name as the file has it ({some}, ...)"
