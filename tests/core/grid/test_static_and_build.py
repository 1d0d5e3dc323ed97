"""The static table and the builder."""

from __future__ import annotations

import csv
import math
from importlib import resources

import pytest

from green_core import ConfigError, GridState
from green_core.config import CarbonConfig
from green_core.grid.build import build_signal
from green_core.grid.constant import ConstantSignal
from green_core.grid.signal import CarbonSignal
from green_core.grid.static import aliases, look_up, static_signal, zones


def build(factory=None, **carbon):
    return build_signal(CarbonConfig(**carbon), anchor_s=0.0, now_s=0.0, factory=factory)


def marginal_signal() -> ConstantSignal:
    return ConstantSignal(
        500.0, kind="marginal", zone="X", source="test", state=GridState.DIRTY, observed_at_s=0.0
    )


def test_every_row_has_a_plausible_value_a_year_a_basis_and_a_source():
    for row in zones().values():
        assert 0 < row.intensity_g_per_kwh < 1200
        assert 2020 <= row.year <= 2030
        assert row.basis in {"lifecycle", "direct"}
        assert row.source in {"Ember", "EPA eGRID"}


@pytest.mark.parametrize(
    ("name", "key"), [("static_table.csv", "zone"), ("static_regions.csv", "alias")]
)
def test_no_name_stands_twice_in_a_table(name, key):
    text = resources.files("green_core.grid").joinpath(name).read_text(encoding="utf-8")
    names = [row[key].casefold() for row in csv.DictReader(text.splitlines())]
    assert len(names) == len(set(names))


def test_every_alias_leads_to_a_zone_and_hides_none():
    known = {zone.casefold() for zone in zones()}
    for alias, zone in aliases().items():
        assert zone in zones()
        assert alias.casefold() not in known


def test_the_table_is_wide_enough_to_be_useful():
    codes = list(zones())
    assert sum(code.startswith("US-") for code in codes) >= 15
    assert sum(len(code) == 2 for code in codes) >= 60
    assert sum(":" in alias for alias in aliases()) >= 60


@pytest.mark.parametrize(
    ("zone", "code"),
    [
        ("DE", "DE"),
        (" de ", "DE"),
        ("aws:eu-central-1", "DE"),
        ("AZURE:NorthEurope", "IE"),
        ("gcp:us-central1", "US-MROW"),
        ("CISO", "US-CAMX"),
        ("uk", "GB"),
    ],
)
def test_zones_regions_and_operators_are_found_in_any_case(zone, code):
    assert look_up(zone).zone == code


@pytest.mark.parametrize("zone", ["aws:eu-central-9", "us-camex", "Atlantis"])
def test_an_unknown_zone_is_an_error_with_the_nearest_names(zone):
    """FIELD G2, G3."""
    with pytest.raises(ConfigError, match=r"carbon.zone: no zone .* (Did you mean|Use an ISO)"):
        build(zone=zone)


def test_the_nearest_name_is_among_those_suggested():
    with pytest.raises(ConfigError, match="aws:eu-central-1"):
        look_up("aws:eu-central")


def test_a_default_start_works_and_says_that_no_place_was_chosen():
    """FIELD G2: the world's average is not a guess of a place, and is labelled."""
    view = build().view(1e9)
    assert (view.zone, view.is_estimate) == ("world", True)
    assert "no zone configured" in view.source


def test_a_yearly_average_is_an_estimate_with_its_provenance():
    view = build(zone="US-CAMX").view(1e9)
    assert view.is_estimate
    assert "EPA eGRID 2022" in view.source
    assert "direct" in view.source
    assert "no zone" not in view.source


def test_the_static_signal_never_changes():
    signal = static_signal(CarbonConfig(zone="PL"))
    assert signal.view(0.0) is signal.view(1e12)
    assert signal.intensity_at(0.0) == signal.view(0.0).intensity_g_per_kwh
    assert signal.next_change_s(0.0) == math.inf
    assert signal.view(0.0).state is GridState.DIRTY
    assert isinstance(signal, CarbonSignal)


def test_marginal_values_are_not_served_from_an_average_table():
    """FIELD G12."""
    with pytest.raises(ConfigError, match=r"carbon.kind.*average"):
        build(zone="DE", kind="marginal")


def test_a_source_of_another_kind_than_configured_is_refused():
    """FIELD G12."""
    with pytest.raises(ConfigError, match=r"carbon.kind.*serves marginal"):
        build(source="mine", factory=lambda name: marginal_signal())


def test_other_sources_come_from_the_factory_by_name():
    asked = []

    def factory(name):
        asked.append(name)
        return marginal_signal()

    assert build(source="mine", kind="marginal", factory=factory).view(0.0).zone == "X"
    assert asked == ["mine"]


@pytest.mark.parametrize("factory", [None, lambda name: None])
def test_an_unknown_source_is_refused_with_the_known_ones(factory):
    with pytest.raises(ConfigError, match=r"carbon.source: no carbon source 'statik'.*'static'"):
        build(source="statik", factory=factory)


def test_a_file_source_is_built_with_its_replay(tmp_path):
    file = tmp_path / "ci.csv"
    file.write_text("time,value\n2024-01-01T00:00Z,250\n2024-01-01T01:00Z,310\n")
    carbon = {"replay_start": "2024-01-01T00:00Z", "speed": 3600.0, "forecast": "none"}
    signal = build(source="file", path=str(file), **carbon)
    assert signal.view(1.0).intensity_g_per_kwh == 310.0
    assert signal.view(0.0).zone == "unknown"
