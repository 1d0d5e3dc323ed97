"""Yearly averages from files as Ember and Our World in Data publish them.

The headers are those of the publishers' files; the values are made up.
"""

from __future__ import annotations

import gzip
import math
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pytest

from green_core import ConfigError, GridState
from green_core.config import CarbonConfig
from green_core.grid.sources.yearly import yearly_signal

EMBER = """\
Area,ISO 3 code,Year,Area type,Category,Subcategory,Variable,Unit,Value
Germany,DEU,2023,Country or economy,Power sector emissions,CO2 intensity,CO2 intensity,gCO2/kWh,371
Germany,DEU,2024,Country or economy,Power sector emissions,CO2,CO2 intensity,gCO2/kWh,334.5
Germany,DEU,2025,Country or economy,Power sector emissions,CO2,CO2 intensity,gCO2/kWh,
Germany,DEU,2025,Country or economy,Electricity generation,Total,Total Generation,TWh,480.1
France,FRA,2024,Country or economy,Power sector emissions,CO2,CO2 intensity,gCO2/kWh,44.1
World,,2024,Region,Power sector emissions,CO2,CO2 intensity,gCO2/kWh,473.0
"""
EMBER_WIDE = """\
Area,ISO 3 code,Year,Area type,Electricity source,Generation (TWh),Emissions intensity (gCO2e/kWh)
Germany,DEU,2024,Country or economy,Total generation,480.1,334.5
Germany,DEU,2024,Country or economy,Coal,105.0,1020.0
Germany,DEU,2024,Country or economy,Demand,470.0,
"""
OWID = """\
Entity,Code,Year,Lifecycle carbon intensity of electricity - gCO2/kWh
Germany,DEU,2024,334.5
Germany,DEU,2023,371.2
World,OWID_WRL,2024,473.0
"""
OWID_SHORT = "entity,code,year,co2_intensity__gco2_kwh\nGermany,DEU,2024,334.5\n"
OWID_DATA = "country,year,iso_code,population,carbon_intensity_elec\nGermany,2024,DEU,84,334.5\n"
OWN = "zone,name,intensity_g_per_kwh,basis,year,source\nDE,Germany,334.5,direct,2024,Agency\n"
PLAIN = "Country,Code,Year,grams\nGermany,DEU,2024,334.5\n"


@pytest.fixture
def signal(tmp_path: Path):
    def read(text: str, **carbon):
        path = tmp_path / "averages.csv"
        path.write_text(text, encoding="utf-8")
        return yearly_signal(CarbonConfig(source="yearly", path=str(path), **carbon))

    return read


@pytest.mark.parametrize(
    ("text", "publisher", "basis"),
    [
        (EMBER, "Ember 2024", "lifecycle"),
        (EMBER_WIDE, "Ember 2024", "lifecycle"),
        (OWID, "Ember via Our World in Data 2024", "lifecycle"),
        (OWID_SHORT, "Ember via Our World in Data 2024", "lifecycle"),
        (OWID_DATA, "Ember via Our World in Data 2024", "lifecycle"),
        (OWN, "Agency 2024", "direct"),
    ],
)
@pytest.mark.parametrize("zone", ["DE", "de", "aws:eu-central-1"])
def test_every_known_layout_gives_the_newest_average_with_its_provenance(
    signal, text, publisher, basis, zone
):
    view = signal(text, zone=zone).view(0.0)
    assert view.intensity_g_per_kwh == 334.5
    assert view.source == f"averages.csv: {publisher} yearly average, {basis}"
    assert (view.zone, view.kind, view.basis, view.is_estimate) == ("DE", "average", basis, True)
    assert view.state is GridState.DIRTY
    assert view.observed_at_s == datetime(2025, 1, 1, tzinfo=UTC).timestamp()
    assert math.isinf(view.valid_until_s)
    assert view.licence == ("" if text is OWN else "CC BY 4.0")


def test_a_code_or_name_as_the_file_has_it_is_found(signal):
    for zone in ("DEU", "deu", "Germany", "germany"):
        assert signal(OWID, zone=zone).view(0.0).zone == "DEU"
    assert signal(EMBER, zone="fra").view(0.0).intensity_g_per_kwh == 44.1


def test_a_year_without_a_value_is_a_gap_and_no_zero(signal):
    """FIELD G4."""
    assert signal(EMBER, zone="DE").view(0.0).intensity_g_per_kwh == 334.5


def test_without_a_zone_it_is_the_worlds_average_and_says_so(signal):
    """FIELD G2."""
    view = signal(EMBER).view(0.0)
    assert (view.intensity_g_per_kwh, view.zone) == (473.0, "world")
    assert "no zone configured" in view.source
    with pytest.raises(ConfigError, match="no average of the world"):
        signal(OWID_SHORT)


def test_an_unknown_zone_is_refused_with_the_nearest_names(signal):
    """FIELD G3."""
    with pytest.raises(ConfigError, match=r"carbon\.zone: no average.*'Germani'.*'Germany'"):
        signal(EMBER, zone="Germani")
    with pytest.raises(ConfigError, match=r"no average.*'XX'.*as the file has it"):
        signal(EMBER, zone="XX")


def test_a_file_cut_down_to_another_country_does_not_serve_a_region(signal):
    """A subregion of a country is not the country (FIELD G2)."""
    text = OWID_SHORT + "United States,USA,2024,370\n"
    with pytest.raises(ConfigError, match=r"carbon\.zone"):
        signal(text, zone="US-CAMX")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (EMBER.replace("gCO2/kWh,334.5", "ktCO2/TWh,334.5"), "'ktCO2/TWh', expected gCO2/kWh"),
        (OWID.replace("gCO2/kWh", "kgCO2/MWh"), "kgco2/mwh"),
        (OWID.replace(" - gCO2/kWh", ""), "does not tell its unit"),
    ],
)
def test_another_unit_and_an_untold_one_are_refused(signal, text, told):
    """FIELD G10."""
    with pytest.raises(ConfigError, match=told):
        signal(text, zone="DE")


def test_a_column_of_your_own_is_taken_at_your_word(signal):
    view = signal(PLAIN, zone="DE", value_column="Grams").view(0.0)
    assert (view.intensity_g_per_kwh, view.basis, view.licence) == (334.5, "unknown", "")
    assert view.source == "averages.csv: 2024 yearly average, unknown basis"
    assert signal(PLAIN, zone="DE", value_column="grams", basis="direct").view(0).basis == "direct"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PLAIN, r"carbon\.value_column.*Country, Code, Year, grams"),
        ("Date,Value\n2024-01-01,3\n", "looked for a year and a zone"),
        ("", "columns none"),
        (OWID.replace("\n", ",Carbon intensity - gCO2/kWh\n", 1), "several columns"),
        (OWID.replace("DEU,2024,", "DEU,MMXXIV,"), "'MMXXIV' is not a year"),
        (OWID.replace("2024,334.5", '2024,"334,5"'), "'334,5' is not a number"),
        (OWID.replace("334.5", "-1"), "not an intensity"),
        (OWID + "Germany,DEU,2024,335\n", "row 4: gives 335 g/kWh for a zone and year"),
        (OWN.replace("direct", "dirct"), "'dirct' is not a basis"),
    ],
)
def test_a_table_that_cannot_be_used_says_where_and_why(signal, text, told):
    with pytest.raises(ConfigError, match=told):
        signal(text, zone="DE")


def test_a_fault_in_another_countrys_row_does_not_stop_the_start(signal):
    assert signal(OWID + "Atlantis,ATL,2024,n.a.!\n", zone="DE").view(0).zone == "DE"


def test_marginal_values_are_not_to_be_had_from_averages(signal):
    """FIELD G12."""
    with pytest.raises(ConfigError, match=r"carbon\.kind"):
        signal(OWID, zone="DE", kind="marginal")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.csv.*No such file"):
        yearly_signal(CarbonConfig(source="yearly", path=str(tmp_path / "none.csv"), zone="DE"))


def test_a_packed_file_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "ember.csv.gz"
    path.write_bytes(gzip.compress(("\ufeff" + EMBER).encode()))
    view = yearly_signal(CarbonConfig(source="yearly", path=str(path), zone="DE")).view(0.0)
    assert view.source.startswith("ember.csv.gz: Ember 2024")


def test_the_packages_own_table_can_be_given_as_a_file(tmp_path):
    text = resources.files("green_core.grid").joinpath("static_table.csv").read_text()
    path = tmp_path / "table.csv"
    path.write_text(text)
    carbon = CarbonConfig(source="yearly", path=str(path))
    for zone, basis in (("GB", "lifecycle"), ("US-CAMX", "direct"), ("", "lifecycle")):
        view = yearly_signal(CarbonConfig(source="yearly", path=carbon.path, zone=zone)).view(0.0)
        assert view.basis == basis
