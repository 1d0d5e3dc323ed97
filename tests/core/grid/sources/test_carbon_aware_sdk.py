"""The Carbon Aware SDK's Web API against a double and recorded answers.

``carbon_aware_sdk_bylocation.json``: the answer shown in the SDK's issue 570 (2024-10-01), cut to
three values. ``carbon_aware_sdk_forecast.json``: the example in the SDK's own web API document,
with the key names of its source at commit e6de58d (2025-05), cut to two points.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.slots import checked
from green_core.grid.sources.carbon_aware_sdk import open_source
from green_core.testing.carbon_api import CarbonApi, Reply
from green_core.testing.carbon_gateways import serve_carbon_aware_sdk

RECORDED = Path(__file__).parent / "recorded"
HOUR_S = 3600.0


@pytest.fixture
def api():
    with CarbonApi() as double:
        yield double


@pytest.fixture
def fetch(api):
    sources = []

    def ask(now_s: float | None = None, **carbon):
        settings = {"zone": "westeurope", "timeout_s": 5.0, "url": api.url, **carbon}
        config = CarbonConfig(source="carbon_aware_sdk", **settings)
        sources.append(open_source(config))
        return checked(sources[-1].fetch(time.time() if now_s is None else now_s), config)

    yield ask
    for source in sources:
        source.close()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def refused(fetch, reason: str, *words: str, **carbon) -> None:
    with pytest.raises(SignalUnavailable) as caught:
        fetch(**carbon)
    assert caught.value.reason == reason, caught.value
    for word in words:
        assert word in str(caught.value)


def rows(*ratings, start="2024-09-30T05:00:00+00:00", step_s=HOUR_S):
    return [
        {
            "location": "japanwest",
            "time": datetime.fromtimestamp(at(start) + n * step_s, UTC).isoformat(),
            "rating": rating,
        }
        for n, rating in enumerate(ratings)
    ]


def test_a_recorded_history_is_read(api, fetch):
    api.route(
        "/emissions/bylocation", json.loads((RECORDED / f"{NAME}_bylocation.json").read_text())
    )
    snapshot = fetch(at("2024-09-30T07:30:00+00:00"), zone="japanwest", kind="marginal")
    assert [slot.intensity_g_per_kwh for slot in snapshot.history] == [337.0, 355.0, 384.0]
    assert snapshot.history[-1].start_s == at("2024-09-30T07:00:00+00:00")
    assert snapshot.history[-1].end_s == at("2024-09-30T08:00:00+00:00")
    assert (snapshot.kind, snapshot.basis, snapshot.zone) == ("marginal", "unknown", "japanwest")
    assert snapshot.source == "Carbon Aware SDK (japanwest)"
    assert snapshot.renewable_ratio is None


def test_a_recorded_forecast_is_read(api, fetch):
    api.route("/emissions/bylocation", rows(500, start="2022-07-19T13:00:00+00:00"))
    api.route(
        "/emissions/forecasts/current",
        json.loads((RECORDED / f"{NAME}_forecast.json").read_text()),
    )
    snapshot = fetch(at("2022-07-19T13:37:49+00:00"), zone="northeurope")
    assert [slot.start_s for slot in snapshot.forecast] == [
        at("2022-07-19T14:00:00+00:00"),
        at("2022-07-20T04:25:00+00:00"),
    ]
    assert snapshot.forecast[0].end_s - snapshot.forecast[0].start_s == 600.0
    assert all(slot.is_estimate for slot in snapshot.forecast)


NAME = "carbon_aware_sdk"


def test_the_past_day_is_asked_for_the_configured_place(api, fetch):
    """FIELD G11."""
    serve_carbon_aware_sdk(api, lambda at_s: 210.5, forecast_at=lambda at_s: 190.5)
    now_s = time.time()
    snapshot = fetch(now_s)
    history, forecast = api.requests
    assert (history.path, forecast.path) == (
        "/emissions/bylocation",
        "/emissions/forecasts/current",
    )
    assert history.params["location"] == forecast.params["location"] == "westeurope"
    assert at(history.params["toTime"]) - at(history.params["time"]) == 86_400
    assert "authorization" not in history.headers
    assert snapshot.history[-1].start_s <= now_s < snapshot.history[-1].end_s
    assert now_s < snapshot.forecast[0].start_s
    assert len(snapshot.forecast) >= 22


def test_the_basis_is_the_configured_one(api, fetch):
    serve_carbon_aware_sdk(api, lambda at_s: 210.5)
    assert fetch(basis="direct").basis == "direct"


def test_a_token_is_sent_where_there_is_one(api, fetch, monkeypatch):
    serve_carbon_aware_sdk(api, lambda at_s: 210.5)
    monkeypatch.setenv("GREEN_CARBON_TOKEN", "s3cret")
    fetch()
    assert api.requests[0].headers["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("gap", [None, float("nan"), "NaN"])
def test_ratings_that_are_missing_are_gaps(api, fetch, gap):
    """FIELD G4."""
    api.route("/emissions/bylocation", rows(300, gap, 320))
    snapshot = fetch(at("2024-09-30T07:30:00+00:00"))
    assert [slot.intensity_g_per_kwh for slot in snapshot.history] == [300.0, 320.0]
    assert snapshot.history[0].end_s == at("2024-09-30T06:00:00+00:00")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"title": "ArgumentException", "detail": "ForecastDataSource is not configured"}),
        (404, {"title": "Not Found"}),
        (501, {"title": "NotImplementedException"}),
        (200, []),
        (200, [{"forecastData": []}]),
        (200, [{"location": "westeurope", "forecastData": None}]),
        (200, {}),
        (200, "soon"),
    ],
)
def test_a_missing_forecast_is_no_failure(api, fetch, status, body):
    """FIELD G7."""
    serve_carbon_aware_sdk(api, lambda at_s: 210.5)
    api.route("/emissions/forecasts/current", Reply(status, body))
    snapshot = fetch()
    assert snapshot.forecast == ()
    assert snapshot.history


def test_test_data_of_the_sdk_is_refused_unless_asked_for(api, fetch):
    """FIELD G9. The values are those of the examples in the SDK's documents."""
    answer = rows(65, 73, 4, start="2022-08-30T12:45:11+00:00", step_s=8 * HOUR_S)
    for row in answer:
        row["duration"] = "08:00:00"
    api.route("/emissions/bylocation", answer)
    now_s = at("2022-08-31T06:00:00+00:00")
    refused(fetch, "synthetic", "test data", "allow_synthetic", now_s=now_s)
    snapshot = fetch(now_s, allow_synthetic=True)
    assert snapshot.history[-1].intensity_g_per_kwh == 4.0


@pytest.mark.parametrize(
    ("ratings", "start"),
    [
        ((65, 73, 4), "2024-09-30T05:00:00+00:00"),  # a clean grid, on the minute
        ((65.2, 73, 4), "2024-09-30T05:00:11+00:00"),  # no whole numbers
        ((65, 173, 4), "2024-09-30T05:00:11+00:00"),  # beyond what the generator draws
    ],
)
def test_a_clean_grid_is_not_taken_for_test_data(api, fetch, ratings, start):
    api.route("/emissions/bylocation", rows(*ratings, start=start))
    assert len(fetch(at("2024-09-30T09:00:00+00:00")).history) == 3


@pytest.mark.parametrize(
    ("answer", "reason", "word"),
    [
        ([], "empty", "no values"),
        ({}, "empty", "no values"),
        (None, "empty", "no values"),
        (rows(None, None), "empty", "no value"),
        (["x"], "malformed", "list of objects"),
        ([{"location": "x", "time": "2024-09-30T05:00:00Z"}], "malformed", "'rating'"),
        ([{"rating": 3}], "malformed", "'time'"),
        (rows("high"), "malformed", "'high'"),
        (rows(-4), "malformed", "-4"),
        ([{**rows(3)[0], "duration": "an hour"}], "malformed", "'an hour'"),
        ([{**rows(3)[0], "duration": 3600}], "malformed", "duration"),
        ([{**rows(3)[0], "time": "2024-09-30T05:00:00"}], "malformed", "offset"),
        ([*rows(3), {**rows(3)[0], "location": "Oslo"}], "zone", "Oslo, japanwest"),
    ],
)
def test_any_other_shape_is_refused_and_never_guessed(api, fetch, answer, reason, word):
    """FIELD G7, G8."""
    api.route("/emissions/bylocation", answer)
    refused(fetch, reason, word, now_s=at("2024-09-30T05:30:00+00:00"))


def test_one_object_in_place_of_a_list_is_read(api, fetch):
    """FIELD G7."""
    api.route("/emissions/bylocation", rows(337)[0])
    assert len(fetch(at("2024-09-30T05:30:00+00:00")).history) == 1


@pytest.mark.parametrize(
    ("duration", "length_s"),
    [("00:05:00", 300), ("1.00:00:00", 86_400), ("00:30:00.5", 1800.5), ("00:00:00", 3600)],
)
def test_a_dotnet_time_span_is_read(api, fetch, duration, length_s):
    """An unknown duration is sent as zero; then the usual spacing counts."""
    api.route("/emissions/bylocation", [{**rows(337)[0], "duration": duration}])
    (slot,) = fetch(at("2024-09-30T05:01:00+00:00")).history
    assert slot.end_s - slot.start_s == length_s


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("401", "auth"),
        ("403", "forbidden"),
        ("404", "zone"),
        ("429", "rate_limited"),
        ("500", "server_error"),
        ("truncated", "malformed"),
        ("cut_json", "malformed"),
        ("html", "malformed"),
        ("empty_object", "empty"),
        ("null", "empty"),
        ("refuse", "network"),
    ],
)
def test_every_failure_of_the_service_has_its_reason(api, fetch, failure, reason):
    serve_carbon_aware_sdk(api, lambda at_s: 210.5)
    api.fail(failure)
    refused(fetch, reason, "Carbon Aware SDK")


def test_no_data_in_the_span_is_empty(api, fetch):
    """The SDK answers 204 then."""
    api.route("/emissions/bylocation", Reply(204, b""))
    refused(fetch, "empty", "without a value")


@pytest.mark.parametrize("key", ["url", "zone"])
def test_an_address_and_a_place_must_be_configured(key):
    """FIELD G2."""
    settings = {"url": "http://127.0.0.1:8080", "zone": "westeurope", key: " "}
    with pytest.raises(ConfigError, match=rf"carbon\.{key}: is empty.*example"):
        open_source(CarbonConfig(source="carbon_aware_sdk", **settings))
