"""The API for Great Britain: shapes, regions, and what is forecast and what is settled."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.slots import checked
from green_core.grid.source import Slot
from green_core.grid.sources.uk import REGIONS, open_source
from green_core.testing.carbon_api import CarbonApi
from green_core.testing.carbon_services import serve_uk

RECORDED = Path(__file__).parent / "recorded"
NATIONAL = json.loads((RECORDED / "uk_national.json").read_text())
REGIONAL = json.loads((RECORDED / "uk_regional.json").read_text())
NOON_S = datetime(2018, 1, 20, 12, tzinfo=UTC).timestamp()
HALF_HOUR = 1800.0


@pytest.fixture
def api():
    with CarbonApi() as double:
        yield double


def fetch(api: CarbonApi, zone: str = "GB", now_s: float = NOON_S + 60.0, **carbon):
    config = CarbonConfig(source="uk", zone=zone, url=api.url, timeout_s=30.0, **carbon)
    source = open_source(config)
    try:
        return checked(source.fetch(now_s), config)
    finally:
        source.close()


def serve(api: CarbonApi, tree) -> None:
    """The same answer to every question about intensity."""
    api.route("/intensity/{from}/{to}", tree)
    api.route("/regional/intensity/{from}/{to}/{by}/{id}", tree)
    api.route("/regional/intensity/{from}/{to}/regionid/{id}", tree)


def test_the_documented_national_answer_is_read(api):
    serve(api, NATIONAL)
    snapshot = fetch(api)
    assert snapshot.history == (Slot(NOON_S, NOON_S + HALF_HOUR, 263.0),)
    # Not settled: the service's forecast, and said so.
    coming = Slot(NOON_S + HALF_HOUR, NOON_S + 2 * HALF_HOUR, 268.0, is_estimate=True)
    assert snapshot.forecast == (coming,)
    assert (snapshot.kind, snapshot.basis) == ("average", "direct")
    assert snapshot.licence == "CC BY 4.0"
    assert "NESO" in snapshot.source
    assert snapshot.renewable_ratio is None  # this double has no /generation


def test_the_documented_regional_answer_is_read(api):
    """FIELD G7: the region may come as a list of one or as an object."""
    for region in (REGIONAL["data"], REGIONAL["data"][0]):
        serve(api, {"data": region})
        snapshot = fetch(api, "GB-RG10")
        assert snapshot.history == (Slot(NOON_S, NOON_S + HALF_HOUR, 266.0, is_estimate=True),)
        assert snapshot.zone == "GB-RG10"
        # wind 6.8, solar 18.1, hydro 2.2; biomass is not counted
        assert snapshot.renewable_ratio == pytest.approx(0.271)


@pytest.mark.parametrize(
    ("zone", "named", "path"),
    [
        ("GB", "GB", "/intensity/2018-01-20T12:01Z/fw48h"),
        ("gb", "GB", "/intensity/2018-01-20T12:01Z/fw48h"),
        ("GB-1", "GB-1", "/regional/intensity/2018-01-20T12:01Z/fw48h/regionid/1"),
        ("gb-17", "GB-17", "/regional/intensity/2018-01-20T12:01Z/fw48h/regionid/17"),
        ("London", "GB-13", "/regional/intensity/2018-01-20T12:01Z/fw48h/regionid/13"),
        ("GB-london", "GB-13", "/regional/intensity/2018-01-20T12:01Z/fw48h/regionid/13"),
        ("gb-sw1a", "GB-SW1A", "/regional/intensity/2018-01-20T12:01Z/fw48h/postcode/SW1A"),
    ],
)
def test_each_zone_is_asked_for_under_its_own_path(api, zone, named, path):
    serve_uk(api, [100.0], now_s=lambda: NOON_S)
    assert fetch(api, zone).zone == named
    assert path in [question.path for question in api.requests]


@pytest.mark.parametrize("zone", ["GB-18", "GB-0", "DE", "Atlantis", "GB-", "aws:eu-west-2"])
def test_an_unknown_zone_is_refused_before_anything_is_sent(api, zone):
    """FIELD G3."""
    with pytest.raises(ConfigError) as caught:
        fetch(api, zone)
    assert caught.value.path == "carbon.zone"
    assert api.requests == []


def test_a_misspelt_region_gets_the_nearest_names():
    """FIELD G3."""
    with pytest.raises(ConfigError, match="Did you mean 'South Scotland'"):
        open_source(CarbonConfig(source="uk", zone="south scottland"))
    assert len(REGIONS) == 17


def test_a_zone_that_the_service_refuses_is_a_fault_of_the_zone(api):
    api.fail("400", says="Please enter a valid postcode")
    with pytest.raises(SignalUnavailable, match="valid postcode") as caught:
        fetch(api, "GB-ZZ1")
    assert caught.value.reason == "zone"


def test_a_null_is_a_gap_and_not_a_zero(api):
    """FIELD G4."""
    tree = copy.deepcopy(NATIONAL)
    tree["data"][0]["intensity"].update(actual=None, forecast=None)
    serve(api, tree)
    assert [slot.start_s for slot in fetch(api, now_s=NOON_S + HALF_HOUR).history] == [
        NOON_S + HALF_HOUR
    ]
    tree["data"][1]["intensity"] = None
    serve(api, tree)
    with pytest.raises(SignalUnavailable) as caught:
        fetch(api)
    assert caught.value.reason == "empty"


def test_one_object_instead_of_a_list_is_read(api):
    """FIELD G7."""
    serve(api, {"data": NATIONAL["data"][0]})
    assert fetch(api).history[0].intensity_g_per_kwh == 263.0


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"data": []}, "empty"),
        ({"data": None}, "empty"),
        ({"data": "none"}, "malformed"),
        ({"error": {"code": "x"}}, "malformed"),
        ([], "malformed"),
        ({"data": [{"from": "2018-01-20T12:00", "intensity": {"forecast": 1}}]}, "malformed"),
        ({"data": [{"from": None, "intensity": {"forecast": 1}}]}, "malformed"),
        ({"data": [{"from": "2018-01-20T12:00Z", "intensity": {"forecast": -1}}]}, "malformed"),
        ({"data": [{"from": "2018-01-20T12:00Z", "intensity": [1]}]}, "malformed"),
    ],
)
def test_another_shape_is_refused(api, tree, reason):
    """FIELD G7, G8."""
    serve(api, tree)
    with pytest.raises(SignalUnavailable) as caught:
        fetch(api)
    assert caught.value.reason == reason


@pytest.mark.parametrize("count", [1, 29, 31, 95])
def test_a_short_forecast_is_taken_as_it_is(api, count):
    """FIELD G7."""
    serve_uk(api, [100.0], now_s=lambda: NOON_S)
    whole = api.answer_to("/intensity/2018-01-20T12:00Z/fw48h")
    api.route("/intensity/{from}/fw48h", {"data": whole["data"][: count + 1]})
    assert len(fetch(api).forecast) == count


@pytest.mark.parametrize("day", [datetime(2026, 3, 29, 1, 10), datetime(2026, 10, 25, 1, 10)])
def test_a_change_of_clocks_leaves_no_gap_and_no_overlap(api, day):
    """FIELD G8: the service speaks UTC, and nothing here knows of British time."""
    now_s = day.replace(tzinfo=UTC).timestamp()
    serve_uk(api, [float(value) for value in range(96)], now_s=lambda: now_s)
    snapshot = fetch(api, now_s=now_s)
    slots = [*snapshot.history, *snapshot.forecast]
    assert all(slot.end_s - slot.start_s == HALF_HOUR for slot in slots)
    assert slots[-1].end_s - slots[0].start_s == len(slots) * HALF_HOUR
    assert slots[0].start_s <= now_s - 86_400.0 < slots[0].end_s


def test_the_present_is_an_estimate_until_it_is_settled(api):
    serve_uk(api, [100.0], now_s=lambda: NOON_S + 60.0, settled_until_s=NOON_S - 3600.0)
    history = fetch(api).history
    settled = [slot for slot in history if not slot.is_estimate]
    assert settled[-1].end_s == NOON_S - 3600.0
    assert history[-1].is_estimate


def test_the_renewable_share_counts_wind_sun_and_water(api):
    serve_uk(api, [100.0], now_s=lambda: NOON_S)
    assert fetch(api).renewable_ratio == pytest.approx(0.47)
    api.fail("500", only="generation")
    assert fetch(api).renewable_ratio is None


def test_an_answer_for_another_region_is_refused(api):
    serve(api, REGIONAL)
    assert fetch(api, "GB-3").zone == "GB-3"
    with pytest.raises(SignalUnavailable) as caught:
        fetch(api, "London")
    assert caught.value.reason == "zone"
    assert "region 3 instead of GB-13" in str(caught.value)
