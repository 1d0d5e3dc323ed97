"""Electricity Maps: shapes, zones and plans, sandbox tokens."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from green_core.config import CarbonConfig
from green_core.errors import SignalUnavailable
from green_core.grid.slots import checked
from green_core.grid.source import Slot
from green_core.grid.sources.electricity_maps import open_source
from green_core.testing.carbon_api import CarbonApi, Reply
from green_core.testing.carbon_services import serve_electricity_maps

RECORDED = Path(__file__).parent / "recorded"
LATEST = json.loads((RECORDED / "electricity_maps_latest.json").read_text())
PAST = json.loads((RECORDED / "electricity_maps_past.json").read_text())
NOW_S = datetime(2026, 9, 21, 14, 15, tzinfo=UTC).timestamp()
LATEST_S = datetime(2025, 3, 29, 18, tzinfo=UTC).timestamp()
HOUR = 3600.0
PATH = "/v4/carbon-intensity/"


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setenv("GREEN_CARBON_TOKEN", "right")
    with CarbonApi() as double:
        yield double


def fetch(api: CarbonApi, zone: str = "DE", now_s: float = NOW_S, **carbon):
    config = CarbonConfig(
        source="electricity_maps", zone=zone, url=api.url, timeout_s=30.0, **carbon
    )
    source = open_source(config)
    try:
        return checked(source.fetch(now_s), config)
    finally:
        source.close()


def refusal(api: CarbonApi, *args, **carbon) -> SignalUnavailable:
    with pytest.raises(SignalUnavailable) as caught:
        fetch(api, *args, **carbon)
    return caught.value


def test_the_recorded_answers_are_read(api):
    api.route(PATH + "latest", LATEST)
    snapshot = fetch(api, "US-CAR-DUK", LATEST_S + 60.0)
    assert snapshot.history == (Slot(LATEST_S, LATEST_S + HOUR, 144.0, is_estimate=True),)
    assert (snapshot.kind, snapshot.basis) == ("average", "lifecycle")
    api.route(PATH + "history", PAST)
    first_s = datetime(2023, 7, 13, tzinfo=UTC).timestamp()
    assert fetch(api, "US-CAR-DUK", LATEST_S + 60.0).history[:2] == (
        Slot(first_s, first_s + HOUR, 369.0),
        Slot(first_s + HOUR, first_s + 2 * HOUR, 365.0),
    )


@pytest.mark.parametrize("basis", ["any", "lifecycle", "direct"])
def test_a_zone_is_always_sent_and_the_caller_is_never_located(api, basis):
    """FIELD G11."""
    serve_electricity_maps(api, [100.0], now_s=lambda: NOW_S)
    served = fetch(api, basis=basis).basis
    assert served == ("direct" if basis == "direct" else "lifecycle")
    assert [question.path.removeprefix(PATH) for question in api.requests] == [
        "latest",
        "history",
        "forecast",
    ]
    for question in api.requests:
        assert question.headers["auth-token"] == "right"
        assert question.params["zone"] == "DE"
        assert question.params["disableCallerLookup"] == "true"
        assert question.params["emissionFactorType"] == served


def test_a_cloud_region_is_sent_as_provider_and_region(api):
    serve_electricity_maps(api, [100.0], now_s=lambda: NOW_S)
    assert fetch(api, "AWS:eu-central-1").zone == "AWS:eu-central-1"
    for question in api.requests:
        assert question.params["dataCenterProvider"] == "aws"
        assert question.params["dataCenterRegion"] == "eu-central-1"
        assert question.params["disableCallerLookup"] == "true"
        assert "zone" not in question.params


@pytest.mark.parametrize(("hours", "sent"), [(1, "6"), (6, "6"), (7, "24"), (24, "24"), (99, "72")])
def test_the_horizon_is_one_that_the_service_knows(api, hours, sent):
    serve_electricity_maps(api, [100.0], now_s=lambda: NOW_S)
    fetch(api, forecast_hours=float(hours))
    assert api.requests[-1].params["horizonHours"] == sent


def test_an_answer_for_another_zone_is_refused(api):
    """FIELD G11."""
    api.route(PATH + "latest", LATEST)
    error = refusal(api, "DE")
    assert error.reason == "zone"
    assert "US-CAR-DUK" in str(error)


def test_an_answer_of_another_basis_is_refused(api):
    """FIELD G12."""
    api.route(PATH + "latest", LATEST)
    assert refusal(api, "US-CAR-DUK", basis="direct").reason == "kind"


@pytest.mark.parametrize(
    ("given", "zone", "reason"), [("wrong", "DE", "auth"), ("right", "IN-NO", "forbidden")]
)
def test_a_refusal_says_which_zone_and_that_it_is_the_plan(api, monkeypatch, given, zone, reason):
    """FIELD G5."""
    monkeypatch.setenv("GREEN_CARBON_TOKEN", given)
    serve_electricity_maps(api, [100.0], now_s=lambda: NOW_S, token="right", zones=["DE"])
    error = refusal(api, zone)
    assert error.reason == reason
    assert f"{zone!r}" in str(error)
    assert "plan" in str(error)
    assert "wrong" not in str(error)


def test_an_unknown_zone_is_told_with_where_to_look(api):
    """FIELD G3."""
    api.route(PATH + "latest", Reply(400, {"message": "Zone 'XX' does not exist."}))
    error = refusal(api, "XX")
    assert error.reason == "zone"
    assert "'XX'" in str(error)
    assert "/v4/zones" in str(error)


def test_a_zone_without_recent_data_is_a_passing_failure(api):
    api.route(PATH + "latest", Reply(404, {"error": 'No recent data for zone "DE"'}))
    error = refusal(api)
    assert error.reason == "empty"
    assert not error.is_permanent


@pytest.mark.parametrize("allowed", [False, True])
def test_a_sandbox_is_refused_unless_asked_for(api, allowed):
    """FIELD G9."""
    serve_electricity_maps(api, [100.0], now_s=lambda: NOW_S, sandbox=True)
    if allowed:
        snapshot = fetch(api, allow_synthetic=True)
        assert "made-up" in snapshot.source
        assert all(slot.is_estimate for slot in snapshot.history)
        return
    error = refusal(api)
    assert error.reason == "synthetic"
    assert "carbon.allow_synthetic" in str(error)


def test_a_sandbox_sign_in_the_forecast_alone_is_seen(api):
    """FIELD G9."""
    serve_electricity_maps(api, [100.0], now_s=lambda: NOW_S)
    api.route(PATH + "forecast", {"zone": "DE", "_disclaimer": "SANDBOX MODE", "forecast": []})
    assert refusal(api).reason == "synthetic"


def test_a_plan_without_history_or_forecast_serves_the_present(api):
    serve_electricity_maps(api, [100.0], now_s=lambda: NOW_S, forecast=False)
    api.fail("403", only="history")
    snapshot = fetch(api)
    assert len(snapshot.history) == 1
    assert snapshot.forecast == ()


def test_nulls_in_the_history_are_gaps(api):
    """FIELD G4."""
    serve_electricity_maps(api, [100.0, None, 300.0], now_s=lambda: NOW_S)
    history = fetch(api).history
    assert {slot.intensity_g_per_kwh for slot in history} == {100.0, 300.0}
    assert all(slot.end_s - slot.start_s == HOUR for slot in history)


def test_without_any_value_there_is_none(api):
    """FIELD G4."""
    serve_electricity_maps(api, [None], now_s=lambda: NOW_S)
    assert refusal(api).reason == "empty"


def test_a_null_at_present_is_filled_by_the_forecast_and_flagged(api):
    row = {"zone": "DE", "datetime": "2026-09-21T14:00:00.000Z", "carbonIntensity": None}
    api.route(PATH + "latest", row)
    api.route(PATH + "forecast", {"zone": "DE", "forecast": [{**row, "carbonIntensity": 7}]})
    assert fetch(api).history == (Slot(NOW_S - 900.0, NOW_S + 2700.0, 7.0, is_estimate=True),)


@pytest.mark.parametrize("count", [0, 1, 29, 31])
def test_a_short_forecast_is_taken_as_it_is(api, count):
    """FIELD G7."""
    serve_electricity_maps(api, [100.0], now_s=lambda: NOW_S)
    start_s = NOW_S - 900.0 + HOUR
    points = [
        {"carbonIntensity": 5.0, "datetime": datetime.fromtimestamp(at_s, UTC).isoformat()}
        for at_s in (start_s + n * HOUR for n in range(count))
    ]
    api.route(PATH + "forecast", {"zone": "DE", "forecast": points})
    assert len(fetch(api).forecast) == count


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"datetime": "2026-09-21T14:00:00"}, "malformed"),  # FIELD G8
        ({"datetime": None}, "malformed"),
        ({"carbonIntensity": "100 g"}, "malformed"),
        ({"carbonIntensity": -3}, "malformed"),
        ({"carbonIntensity": True}, "malformed"),
        ({"carbonIntensity": None}, "empty"),
    ],
)
def test_a_field_that_makes_no_sense_is_refused(api, changes, reason):
    api.route(PATH + "latest", {**LATEST, **changes})
    assert refusal(api, "US-CAR-DUK", LATEST_S).reason == reason


def test_local_times_over_a_change_of_clocks_are_read_by_their_offset(api):
    """FIELD G8: the hour that happens twice is two hours."""
    rows = [
        {"datetime": text, "carbonIntensity": value}
        for text, value in (
            ("2026-10-25T01:00:00+02:00", 1),
            ("2026-10-25T02:00:00+02:00", 2),
            ("2026-10-25T02:00:00+01:00", 3),
            ("2026-10-25T03:00:00+01:00", 4),
        )
    ]
    api.route(PATH + "latest", {"data": rows})
    now_s = datetime(2026, 10, 25, 2, 30, tzinfo=UTC).timestamp()
    history = fetch(api, now_s=now_s).history
    assert [slot.intensity_g_per_kwh for slot in history] == [1.0, 2.0, 3.0, 4.0]
    assert all(slot.end_s - slot.start_s == HOUR for slot in history)
