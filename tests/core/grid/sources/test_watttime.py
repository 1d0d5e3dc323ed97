"""WattTime: login, units, and that a percentile is never an intensity."""

from __future__ import annotations

import base64
import copy
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from green_core.config import CarbonConfig
from green_core.errors import SignalUnavailable
from green_core.grid.slots import checked
from green_core.grid.source import Slot
from green_core.grid.sources import watttime
from green_core.grid.sources.watttime import open_source
from green_core.testing.carbon_api import CarbonApi, Reply
from green_core.testing.carbon_services import serve_watttime

RECORDED = Path(__file__).parent / "recorded"
HISTORICAL = json.loads((RECORDED / "watttime_historical.json").read_text())
INDEX = json.loads((RECORDED / "watttime_index.json").read_text())
START_S = datetime(2022, 7, 15, tzinfo=UTC).timestamp()
NOW_S = START_S + 400.0
LB = 0.45359237


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setenv("GREEN_CARBON_TOKEN", "pssword")
    with CarbonApi() as double:
        yield double


@pytest.fixture
def source(api):
    found = open_source(config(api))
    yield found
    found.close()


def config(api: CarbonApi, **carbon) -> CarbonConfig:
    fields = {"kind": "marginal", "zone": "CAISO_NORTH", "username": "user", "timeout_s": 30.0}
    return CarbonConfig(source="watttime", url=api.url, **{**fields, **carbon})


def fetch(api: CarbonApi, now_s: float = NOW_S, **carbon):
    asked = config(api, **carbon)
    source = open_source(asked)
    try:
        return checked(source.fetch(now_s), asked)
    finally:
        source.close()


def refusal(api: CarbonApi, **carbon) -> SignalUnavailable:
    with pytest.raises(SignalUnavailable) as caught:
        fetch(api, **carbon)
    return caught.value


def serve(api: CarbonApi, tree, *, endpoint: str = "historical") -> None:
    api.route("/login", {"token": "abc"})
    api.route(f"/v3/{endpoint}", tree)


def logins(api: CarbonApi) -> int:
    return sum(question.path == "/login" for question in api.requests)


def changed(**meta):
    tree = copy.deepcopy(HISTORICAL)
    tree["meta"].update(meta)
    return tree


def test_the_documented_answer_is_read(api):
    serve(api, HISTORICAL)
    snapshot = fetch(api)
    assert snapshot.history == (
        Slot(START_S, START_S + 300.0, 870.0 * LB, is_estimate=True),  # imputed
        Slot(START_S + 300.0, START_S + 600.0, 860.0 * LB),
    )
    assert (snapshot.kind, snapshot.basis) == ("marginal", "direct")
    assert snapshot.source == "WattTime v3 co2_moer, model 2023-03-01"


@pytest.mark.parametrize(("kind", "signal"), [("marginal", "co2_moer"), ("average", "co2_aoer")])
def test_the_signal_follows_the_kind_and_the_region_is_always_sent(api, kind, signal):
    """FIELD G11, G12."""
    serve_watttime(api, [100.0], now_s=lambda: NOW_S)
    snapshot = fetch(api, kind=kind, forecast_hours=5.5)
    assert snapshot.kind == kind
    assert snapshot.history[-1].intensity_g_per_kwh == pytest.approx(100.0)
    asked = [question for question in api.requests if question.path != "/login"]
    assert {question.params["signal_type"] for question in asked} == {signal}
    assert {question.params["region"] for question in asked} == {"CAISO_NORTH"}
    assert asked[-1].params["horizon_hours"] == "6"
    assert (snapshot.forecast == ()) == (kind == "average")


def test_an_answer_of_another_signal_or_region_is_refused(api):
    """FIELD G11, G12."""
    serve(api, HISTORICAL)
    assert refusal(api, kind="average").reason == "kind"
    assert refusal(api, zone="PJM_NJ").reason == "zone"


@pytest.mark.parametrize("units", ["percentile", "lbs_co2_per_kwh", "", None, 7, ["x"]])
def test_a_number_in_another_unit_is_refused_and_never_converted(api, units):
    """FIELD G10."""
    serve(api, changed(units=units))
    error = refusal(api)
    assert error.reason == "unit"
    assert repr(units) in str(error)


def test_a_plan_with_the_percentile_index_alone_is_refused_as_such(api):
    """FIELD G10."""
    serve_watttime(api, [100.0], now_s=lambda: NOW_S, regions=["PJM_NJ"])
    error = refusal(api)
    assert error.reason == "unit"
    assert "percentile" in str(error)
    api.route("/v3/signal-index", INDEX)
    assert refusal(api).reason == "unit"


def test_a_percentile_in_the_forecast_is_a_failure_of_the_whole(api):
    """FIELD G10."""
    serve(api, HISTORICAL)
    api.route("/v3/forecast", changed(units="percentile"))
    assert refusal(api).reason == "unit"


def test_a_region_outside_the_plan_is_told_with_its_name(api):
    """FIELD G5."""
    serve(api, Reply(403, {"message": "You do not have access to region PJM_NJ"}))
    error = refusal(api, zone="PJM_NJ")
    assert error.reason == "forbidden"
    assert "'PJM_NJ'" in str(error)
    assert "plan" in str(error)


def test_an_unknown_region_is_a_fault_of_the_zone(api):
    """FIELD G3."""
    serve(api, Reply(400, {"message": "invalid region"}))
    error = refusal(api, zone="NOWHERE")
    assert error.reason == "zone"
    assert "'NOWHERE'" in str(error)


# --- login ----------------------------------------------------------------------------------


def test_one_login_serves_many_questions(api, source):
    serve_watttime(api, [100.0], now_s=lambda: NOW_S, username="user", password="pssword")
    for _ in range(3):
        source.fetch(NOW_S)
    assert logins(api) == 1
    header = api.requests[0].headers["authorization"]
    assert base64.b64decode(header.removeprefix("Basic ")) == b"user:pssword"


def test_a_token_that_the_service_forgot_is_renewed_once(api, source):
    clock = [NOW_S]
    serve_watttime(api, [100.0], now_s=lambda: clock[0])
    source.fetch(NOW_S)
    clock[0] += 1800.0  # by the service's clock it has expired, by ours it has not
    assert source.fetch(clock[0]).history
    assert logins(api) == 2


def test_a_token_is_renewed_before_it_expires(api, source, monkeypatch):
    serve_watttime(api, [100.0], now_s=lambda: NOW_S)
    source.fetch(NOW_S)
    later_s = watttime.time.monotonic() + watttime.LOGIN_S
    monkeypatch.setattr(watttime.time, "monotonic", lambda: later_s)
    source.fetch(NOW_S)
    assert logins(api) == 2
    assert not any(question.path == "/v3/historical" for question in api.requests[:1])


def test_a_service_that_takes_no_token_is_not_asked_for_ever(api, source):
    serve(api, Reply(401, {"error": "no"}))
    for most in (2, 4):
        with pytest.raises(SignalUnavailable) as caught:
            source.fetch(NOW_S)
        assert caught.value.reason == "auth"
        assert logins(api) <= most


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("401", "auth"),
        ("403", "auth"),
        ("429", "rate_limited"),
        ("500", "server_error"),
        ("html", "malformed"),
        ("empty_object", "empty"),
        ("null", "empty"),
    ],
)
def test_a_login_that_fails_says_that_it_was_the_login(api, failure, reason):
    serve_watttime(api, [100.0], now_s=lambda: NOW_S)
    api.fail(failure, only="login")
    error = refusal(api)
    assert error.reason == reason
    assert "login" in str(error)
    assert "pssword" not in str(error)


def test_a_password_that_is_echoed_is_in_no_error(api):
    api.route("/login", Reply(401, {"error": "wrong: user/pssword"}))
    error = str(refusal(api))
    assert "wrong: user/..." in error
    assert "pssword" not in error


@pytest.mark.parametrize("token", [None, 7, "", "a\nb", "schlüssel", ["x"]])
def test_a_login_without_a_usable_token_is_refused(api, token):
    api.route("/login", {"token": token})
    assert refusal(api).reason == "malformed"


def test_a_bearer_token_that_is_echoed_is_in_no_error(api):
    api.route("/login", {"token": "bearer-of-the-day"})
    api.route("/v3/historical", lambda q: Reply(500, {"error": q.headers["authorization"]}))
    assert "bearer-of-the-day" not in str(refusal(api))


# --- shapes ---------------------------------------------------------------------------------


def test_nulls_are_gaps(api):
    """FIELD G4."""
    serve_watttime(api, [100.0, None], now_s=lambda: NOW_S)
    history = fetch(api).history
    assert {slot.end_s - slot.start_s for slot in history} == {300.0}
    assert {round(slot.intensity_g_per_kwh) for slot in history} == {100}


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"data": [], "meta": HISTORICAL["meta"]}, "empty"),
        ({"meta": HISTORICAL["meta"]}, "malformed"),
        ({"data": HISTORICAL["data"]}, "malformed"),
        ({"data": HISTORICAL["data"], "meta": []}, "unit"),
        ({"data": [{"point_time": "2022-07-15T00:00:00", "value": 1}]}, "malformed"),
        ([], "malformed"),
    ],
)
def test_another_shape_is_refused(api, tree, reason):
    """FIELD G7, G8."""
    serve(api, tree)
    assert refusal(api).reason == reason


def test_a_naive_time_is_refused(api):
    """FIELD G8."""
    tree = copy.deepcopy(HISTORICAL)
    tree["data"][0]["point_time"] = "2022-07-15T00:00:00"
    serve(api, tree)
    assert refusal(api).reason == "malformed"


def test_one_object_instead_of_a_list_is_read(api):
    """FIELD G7."""
    serve(api, {**HISTORICAL, "data": HISTORICAL["data"][1]})
    assert fetch(api).history == (Slot(START_S + 300.0, START_S + 600.0, 860.0 * LB),)


def test_blanks_about_a_bearer_token_do_no_harm(api):
    """They made a header that cannot be sent, and the error quoted it."""
    serve(api, HISTORICAL)
    api.route("/login", {"token": " bearer-key "})
    fetch(api)
    assert api.requests[-1].headers["authorization"] == "Bearer bearer-key"
