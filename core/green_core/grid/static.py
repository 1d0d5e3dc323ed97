"""Yearly averages by zone, from two tables that ship with the package.

``static_table.csv`` holds one row per zone with its year, its source (Ember for countries,
EPA eGRID for US subregions) and its basis (lifecycle, or direct combustion). Rows of different
basis are not comparable to the gram. ``static_regions.csv`` maps cloud regions and names of
grid operators to zones. A place is looked up, never guessed.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from functools import cache
from importlib import resources

import msgspec

from green_core.config import CarbonConfig, nearest
from green_core.errors import ConfigError
from green_core.grid.constant import ConstantSignal
from green_core.values import Basis

WORLD = "world"
LICENCES = {"Ember": "CC BY 4.0", "EPA eGRID": "public domain (US government)"}


class ZoneAverage(msgspec.Struct, frozen=True):
    """One row of the table: a yearly average in gCO2e/kWh and where it comes from."""

    zone: str
    name: str
    intensity_g_per_kwh: float
    basis: Basis
    year: int
    source: str

    @property
    def provenance(self) -> str:
        """Source, year and basis in one phrase."""
        return f"{self.source} {self.year} yearly average, {self.basis}"

    @property
    def known_at_s(self) -> float:
        """The end of the year that it averages, epoch seconds."""
        return datetime(self.year + 1, 1, 1, tzinfo=UTC).timestamp()

    @property
    def licence(self) -> str:
        """Under which terms the figure may be used."""
        return LICENCES.get(self.source, "")


@cache
def zones() -> dict[str, ZoneAverage]:
    """Every zone of the table by its code."""
    rows = (msgspec.convert(row, ZoneAverage, strict=False) for row in _rows("static_table.csv"))
    return {row.zone: row for row in rows}


@cache
def aliases() -> dict[str, str]:
    """Cloud regions (``aws:eu-central-1``) and operators' names (``CISO``) to zones."""
    return {row["alias"]: row["zone"] for row in _rows("static_regions.csv")}


def look_up(zone: str) -> ZoneAverage:
    """The row of a zone, cloud region or operator; letter case does not matter.

    Raises ``ConfigError`` with the nearest names when there is none (FIELD G2, G3).
    """
    wanted = zone.strip().casefold()
    table = zones()
    by_name = {code.casefold(): row for code, row in table.items()}
    by_name.update({alias.casefold(): table[code] for alias, code in aliases().items()})
    row = by_name.get(wanted)
    if row is None:
        raise ConfigError(
            "carbon.zone",
            f"no zone {zone!r} in the static table",
            remedy=_suggest(wanted, list(by_name)),
        )
    return row


def stand_in(zone: str) -> tuple[ZoneAverage, str]:
    """The average of a zone, else the world's, with the words that say so (FIELD G2)."""
    if not zone.strip():
        return zones()[WORLD], "world average, no zone configured; "
    try:
        return look_up(zone), ""
    except ConfigError:
        return zones()[WORLD], f"world average, the table has no zone {zone!r}; "


def static_signal(carbon: CarbonConfig) -> ConstantSignal:
    """The yearly average of the configured zone, flagged as an estimate of any given hour.

    With no zone configured it is the world's average under the zone name ``world``: a start
    that only measures must not fail, and the view says that no place was chosen.
    """
    if carbon.kind != "average":
        raise ConfigError(
            "carbon.kind",
            f"the static table holds average intensities, not {carbon.kind} ones",
            remedy='Set carbon.kind = "average", or choose a source that serves marginal values',
        )
    row, place = stand_in("") if not carbon.zone.strip() else (look_up(carbon.zone), "")
    return ConstantSignal(
        row.intensity_g_per_kwh,
        kind="average",
        zone=row.zone,
        source=f"static table: {place}{row.provenance}",
        state=carbon.state(row.intensity_g_per_kwh),
        observed_at_s=row.known_at_s,
        is_estimate=True,
        basis=row.basis,
        licence=row.licence,
    )


def _suggest(wanted: str, known: list[str]) -> str:
    """The nearest names; with none near, the forms that are understood."""
    remedy = nearest(wanted, known)
    if remedy.startswith("Did you mean"):
        return remedy
    return (
        'Use an ISO country code ("DE"), a US eGRID subregion ("US-CAMX") or a cloud region '
        '("aws:eu-central-1"); for any other place use carbon.source = "file"'
    )


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("green_core.grid").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
