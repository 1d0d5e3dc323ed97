"""Every source of this family against every way in which its service can fail (FIELD G1-G12)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.slots import checked
from green_core.grid.sources import open_source
from green_core.testing.carbon_api import CarbonApi
from green_core.testing.carbon_services import serve_all

NOW_S = 1_790_000_100.0  # 2026-09-21 14:15
SETTINGS = {
    "uk": {"zone": "GB"},
    "uk region": {"zone": "GB-13"},
    "electricity_maps": {"zone": "DE"},
    "electricity_maps region": {"zone": "aws:eu-central-1"},
    "watttime": {"zone": "CAISO_NORTH", "kind": "marginal", "username": "user"},
    "watttime average": {"zone": "CAISO_NORTH", "kind": "average", "username": "user"},
}
FIRST = {"uk": "intensity", "electricity_maps": "latest", "watttime": "historical"}
FORECAST = {"uk": "fw48h", "electricity_maps": "forecast", "watttime": "forecast"}


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setenv("GREEN_CARBON_TOKEN", "secret")
    with CarbonApi() as double:
        serve_all(double, now_s=lambda: NOW_S)
        yield double


@pytest.fixture(params=SETTINGS)
def source(request, api):
    yield from opened(request.param, api)


def config_of(case: str, url: str, **carbon) -> CarbonConfig:
    name = case.split(maxsplit=1)[0]
    return CarbonConfig(source=name, url=url, **{"timeout_s": 30.0, **SETTINGS[case], **carbon})


def opened(case: str, api: CarbonApi, **carbon):
    config = config_of(case, api.url, **carbon)
    found = open_source(config)
    found.config = config
    yield found
    found.close()


def refusal(source) -> SignalUnavailable:
    with pytest.raises(SignalUnavailable) as caught:
        source.fetch(NOW_S)
    assert "secret" not in str(caught.value)
    return caught.value


def test_the_present_the_past_and_the_coming_day_are_known(source):
    snapshot = checked(source.fetch(NOW_S), source.config)
    present = snapshot.history[-1]
    assert present.start_s <= NOW_S < present.end_s
    assert snapshot.history[0].start_s <= NOW_S - 86_400.0 + source.period_s
    # Hour 14 of the curve that serve_all() documents, not of its neighbours.
    assert present.intensity_g_per_kwh == pytest.approx(84.09, abs=0.01)
    if source.config.kind == "average" and source.name == "watttime":
        assert snapshot.forecast == ()
    else:
        assert snapshot.forecast[0].start_s == present.end_s
        assert snapshot.forecast[-1].end_s >= NOW_S + 86_400.0
        assert all(slot.is_estimate for slot in snapshot.forecast)
    assert snapshot.fetched_at_s == NOW_S
    assert snapshot.licence
    assert snapshot.zone == source.config.zone


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("403", "forbidden"),
        ("429", "rate_limited"),
        ("500", "server_error"),
        ("refuse", "network"),
        ("truncated", "malformed"),
        ("cut_json", "malformed"),
        ("html", "malformed"),
        ("empty_object", "empty"),
        ("null", "empty"),
        ("huge", "malformed"),
        ("401", "auth"),
    ],
)
def test_each_failure_has_its_reason_and_leaves_the_source_usable(api, source, failure, reason):
    """FIELD G1, G5, G7."""
    before = source.fetch(NOW_S)
    api.fail(failure, retry_after="30")
    error = refusal(source)
    assert error.reason == reason
    if failure == "429":
        assert error.retry_after_s == 30.0
    api.recover()
    assert source.fetch(NOW_S) == before


@pytest.mark.parametrize("failure", ["hang", "drip"])
@pytest.mark.parametrize("case", ["uk", "electricity_maps", "watttime"])
def test_a_service_that_hangs_is_a_time_out(api, case, failure):
    for source in opened(case, api, timeout_s=0.2):
        api.fail(failure)
        assert refusal(source).reason == "timeout"


@pytest.mark.parametrize("failure", ["403", "404", "500", "html", "empty_object", "null", "429"])
def test_a_forecast_that_cannot_be_had_is_no_failure(api, source, failure):
    api.fail(failure, only=FORECAST[source.name])
    snapshot = checked(source.fetch(NOW_S), source.config)
    assert snapshot.forecast == () or source.name == "uk"
    assert snapshot.history[-1].end_s > NOW_S


@pytest.mark.parametrize("choice", ["persistence", "none"])
@pytest.mark.parametrize("case", ["uk", "electricity_maps", "watttime"])
def test_a_forecast_that_is_not_wanted_is_not_asked_for(api, case, choice):
    for source in opened(case, api, forecast=choice):
        source.fetch(NOW_S)
    assert not any(FORECAST[source.name] in question.path for question in api.requests)


@pytest.mark.parametrize(
    ("case", "carbon", "key"),
    [
        ("uk", {"kind": "marginal"}, "carbon.kind"),
        ("uk", {"basis": "lifecycle"}, "carbon.basis"),
        ("electricity_maps", {"kind": "marginal"}, "carbon.kind"),
        ("watttime", {"basis": "lifecycle"}, "carbon.basis"),
        ("uk", {"zone": " "}, "carbon.zone"),
        ("electricity_maps", {"zone": ""}, "carbon.zone"),
        ("watttime", {"zone": ""}, "carbon.zone"),
        ("watttime", {"username": ""}, "carbon.username"),
        ("uk", {"url": "not a url"}, "carbon.url"),
    ],
)
def test_what_a_source_does_not_serve_is_refused_before_anything_is_sent(api, case, carbon, key):
    """FIELD G2, G11, G12."""
    with pytest.raises(ConfigError) as caught:
        open_source(config_of(case, **{"url": api.url, **carbon}))
    assert caught.value.path == key
    assert api.requests == []


@pytest.mark.parametrize("case", ["electricity_maps", "watttime"])
def test_without_a_token_nothing_is_sent(api, case, monkeypatch):
    monkeypatch.delenv("GREEN_CARBON_TOKEN")
    for source in opened(case, api):
        error = refusal(source)
        assert error.reason == "auth"
        assert "GREEN_CARBON_TOKEN" in str(error)
    assert api.requests == []


KEYS = ["data", "meta", "history", "forecast", "intensity", "actual", "from", "to", "generationmix"]
KEYS += ["fuel", "perc", "units", "carbonIntensity", "datetime", "zone", "point_time", "value"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**20)
    | st.floats(allow_nan=True)
    | st.sampled_from(["", "2026-09-21T14:00Z", "2026-09-21T14:00", "wind", "lbs_co2_per_mwh"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("case", SETTINGS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=JSON)
def test_no_json_whatever_makes_anything_but_a_signal_failure(case, tree, api_of_any):
    """FIELD G4, G7."""
    api_of_any.tree = tree
    source = open_source(config_of(case, api_of_any.url))
    try:
        checked(source.fetch(NOW_S), config_of(case, api_of_any.url))
    except SignalUnavailable:
        pass
    finally:
        source.close()


@pytest.fixture
def api_of_any(monkeypatch):
    """Answers ``tree`` to everything but a login."""
    monkeypatch.setenv("GREEN_CARBON_TOKEN", "secret")
    with CarbonApi() as double:
        for depth in range(1, 8):
            double.route("/{x}" * depth, lambda _question: double.tree)
        double.route("/login", {"token": "abc"})
        yield double
