"""A PromQL query against a double and recorded answers.

``prometheus_vector.json``: the envelope is that of Prometheus's HTTP API documentation, the labels
are those in the integration test of the Green Web Foundation's grid-intensity exporter.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.slots import checked
from green_core.grid.sources.prometheus import STEP_S, UNITS, open_source
from green_core.testing.carbon_api import CarbonApi, Reply
from green_core.testing.carbon_gateways import EXPORTER_LABELS, serve_prometheus

RECORDED = json.loads((Path(__file__).parent / "recorded" / "prometheus_vector.json").read_text())
NOW_S = 1_717_232_400.123
QUERY = "max(grid_intensity_carbon_average)"


@pytest.fixture
def api():
    with CarbonApi() as double:
        yield double


@pytest.fixture
def fetch(api):
    sources = []

    def ask(now_s: float = NOW_S, **carbon):
        settings = {"url": api.url, "query": QUERY, "timeout_s": 5.0, **carbon}
        config = CarbonConfig(source="prometheus", **settings)
        sources.append(open_source(config))
        return checked(sources[-1].fetch(now_s), config)

    yield ask
    for source in sources:
        source.close()


def refused(fetch, reason: str, *words: str, **carbon) -> str:
    with pytest.raises(SignalUnavailable) as caught:
        fetch(**carbon)
    assert caught.value.reason == reason, caught.value
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


def labelled(**labels: str) -> list[dict[str, str]]:
    return [{**EXPORTER_LABELS, **labels}]


def scalar(value: str):
    return {"status": "success", "data": {"resultType": "scalar", "result": [NOW_S, value]}}


def test_a_recorded_answer_is_read(api, fetch):
    api.route("/api/v1/query", RECORDED)
    empty = {"status": "success", "data": {"resultType": "matrix", "result": []}}
    api.route("/api/v1/query_range", empty)
    snapshot = fetch()
    (slot,) = snapshot.history
    assert (slot.intensity_g_per_kwh, slot.is_estimate) == (265.38, True)
    assert (slot.start_s, slot.end_s) == (NOW_S, NOW_S + STEP_S)
    assert snapshot.source == f"Prometheus {QUERY} (location GBR, provider Ember)"
    assert (snapshot.zone, snapshot.kind, snapshot.basis) == ("GBR", "average", "unknown")


def test_the_present_and_the_past_day_are_asked_for(api, fetch):
    now_s = time.time()
    serve_prometheus(api, lambda at_s: 100.0 + (at_s // 3600) % 24)
    snapshot = fetch(now_s, zone="GB", basis="lifecycle")
    assert [question.path for question in api.requests] == ["/api/v1/query", "/api/v1/query_range"]
    assert all(question.params["query"] == QUERY for question in api.requests)
    assert len(snapshot.history) in (289, 290)
    assert now_s - 86_400 - STEP_S < snapshot.history[0].start_s <= now_s - 86_400
    assert snapshot.history[-1].start_s == now_s
    for slot in snapshot.history:
        assert slot.intensity_g_per_kwh == 100.0 + (slot.start_s // 3600) % 24
    assert (snapshot.zone, snapshot.basis, snapshot.forecast) == ("GB", "lifecycle", ())


def test_the_past_of_another_series_is_not_taken_for_this_ones(api, fetch):
    """An exporter of another place may have matched the query yesterday."""
    serve_prometheus(api, lambda at_s: 200.0)
    api.route("/api/v1/query", RECORDED)
    assert len(fetch().history) == 1


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_becomes_g_per_kwh(api, fetch, unit):
    expected = {"g/kWh": 2, "kg/kWh": 2000, "kg/MWh": 2, "t/MWh": 2000, "lb/MWh": 0.90718474}
    serve_prometheus(api, lambda at_s: 2.0, series=[{}])
    values = [slot.intensity_g_per_kwh for slot in fetch(unit=unit).history]
    assert values == pytest.approx([expected[unit]] * len(values))


def test_a_scalar_serves_as_well(api, fetch):
    serve_prometheus(api, lambda at_s: 210.0, series=[{}])
    api.route("/api/v1/query", scalar("210"))
    assert fetch().history[-1].intensity_g_per_kwh == 210.0


def test_no_series_is_empty_and_says_what_to_look_at(api, fetch):
    serve_prometheus(api, lambda at_s: 210.0, series=[])
    refused(fetch, "empty", QUERY, "scraped")


def test_several_series_are_refused_with_their_labels(api, fetch):
    series = [{**EXPORTER_LABELS, "location": f"L{n}"} for n in range(7)]
    serve_prometheus(api, lambda at_s: 210.0, series=series)
    text = refused(fetch, "query", "7 series", 'location="L0"', 'location="L4"', "and 2 more")
    assert "L5" not in text


def test_gaps_are_left_out_and_a_present_gap_is_empty(api, fetch):
    """FIELD G4. A stale series reads NaN."""
    serve_prometheus(api, lambda at_s: None if at_s < NOW_S - 3600 else 210.0)
    assert len(fetch().history) <= 13
    serve_prometheus(api, lambda at_s: None)
    refused(fetch, "empty", "NaN")


def test_warnings_are_kept(api, fetch):
    serve_prometheus(api, lambda at_s: 210.0, warnings=["store a is\ndown"])
    assert fetch().source.endswith("; warns: store a is down")


@pytest.mark.parametrize(
    ("labels", "carbon"),
    [
        ({"__name__": "grid_intensity_carbon_marginal"}, {}),
        ({"kind": "marginal"}, {}),
        ({"emissions_type": "average"}, {"kind": "marginal", "query": "x"}),
        ({"__name__": "ci"}, {"query": "max(grid_intensity_carbon_marginal)"}),
    ],
)
def test_a_series_of_the_other_kind_is_refused(api, fetch, labels, carbon):
    """FIELD G12."""
    serve_prometheus(api, lambda at_s: 210.0, series=labelled(**labels))
    refused(fetch, "kind", "carbon.kind", **carbon)


def test_a_marginal_series_serves_where_it_is_asked_for(api, fetch):
    serve_prometheus(
        api, lambda at_s: 410.0, series=labelled(__name__="grid_intensity_carbon_marginal")
    )
    assert fetch(kind="marginal", query="grid_intensity_carbon_marginal").kind == "marginal"


def test_a_query_that_names_both_kinds_is_left_to_the_config(api, fetch):
    serve_prometheus(api, lambda at_s: 210.0, series=[{}])
    query = "ci_average unless on() ci_marginal"
    assert fetch(query=query).kind == "average"
    assert fetch(query=query, kind="marginal").kind == "marginal"


def test_a_percentile_is_refused(api, fetch):
    """FIELD G10."""
    name = "grid_intensity_carbon_relative"
    serve_prometheus(api, lambda at_s: 55.0, series=labelled(__name__=name, units="percent"))
    refused(fetch, "unit", "percentile", query="grid_intensity_carbon_relative")
    serve_prometheus(api, lambda at_s: 55.0, series=labelled(units="percent"))
    refused(fetch, "unit", "'percent'", "Known units")


@pytest.mark.parametrize(
    ("told", "unit"),
    [("lbs/MWh", "lb/MWh"), ("kgCO2eq per kWh", "kg/kWh"), ("tCO₂/MWh", "t/MWh")],
)
def test_a_label_of_another_unit_is_refused_with_the_right_one(api, fetch, told, unit):
    """FIELD G10."""
    serve_prometheus(api, lambda at_s: 2.0, series=labelled(units=told))
    refused(fetch, "unit", f'Set carbon.unit = "{unit}"')
    assert fetch(unit=unit).history


def test_units_of_the_same_size_do_not_contradict(api, fetch):
    serve_prometheus(api, lambda at_s: 210.0, series=labelled(units="kg CO2/MWh"))
    assert fetch().history[-1].intensity_g_per_kwh == 210.0


def test_a_value_beyond_any_grid_is_a_wrong_unit(api, fetch):
    """FIELD G10."""
    serve_prometheus(api, lambda at_s: 265.0, series=[{}])
    refused(fetch, "unit", "265 kg/kWh", "carbon.unit", unit="kg/kWh")


def answer(kind="vector", result=(), status="success", **more):
    return {"status": status, "data": {"resultType": kind, "result": list(result)}, **more}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "as its API does"),
        (None, "as its API does"),
        ([], "as its API does"),
        ({"status": "success"}, "type None"),
        ({"status": "success", "data": []}, "type None"),
        (answer("string", [NOW_S, "high"]), "type 'string'"),
        (answer("vector", ["x"]), "without labels"),
        (answer("vector", [{"metric": {}}]), "as a sample"),
        (answer("vector", [{"metric": {}, "value": [NOW_S]}]), "as a sample"),
        (answer("vector", [{"metric": {}, "value": [NOW_S, "low"]}]), "'low'"),
        (answer("vector", [{"metric": {}, "value": [NOW_S, "-3"]}]), "'-3'"),
        (answer("vector", [{"metric": {}, "value": [NOW_S, "+Inf"]}]), "'+Inf'"),
        (answer("vector", [{"metric": [], "value": [NOW_S, "3"]}]), "without labels"),
        (answer(status="error", error="no store"), "'no store'"),
    ],
)
def test_any_other_shape_is_refused_and_never_guessed(api, fetch, body, word):
    """FIELD G7."""
    api.route("/api/v1/query", body)
    refused(fetch, "malformed", word)


def test_a_query_that_does_not_parse_is_told_in_prometheus_own_words(api, fetch):
    says = {"status": "error", "errorType": "bad_data", "error": "parse error: unclosed left paren"}
    api.route("/api/v1/query", Reply(400, says))
    refused(fetch, "query", "unclosed left paren", query="max(")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("401", "auth"),
        ("403", "forbidden"),
        ("429", "rate_limited"),
        ("500", "server_error"),
        ("503", "server_error"),
        ("truncated", "malformed"),
        ("cut_json", "malformed"),
        ("html", "malformed"),
        ("empty_object", "malformed"),
        ("null", "malformed"),
        ("refuse", "network"),
    ],
)
@pytest.mark.parametrize("only", ["query", "query_range"])
def test_every_failure_of_the_service_has_its_reason(api, fetch, failure, reason, only):
    serve_prometheus(api, lambda at_s: 210.0)
    api.fail(failure, only=only)
    refused(fetch, reason, "Prometheus")


def test_a_token_is_sent_where_there_is_one_and_never_told(api, fetch, tmp_path):
    serve_prometheus(api, lambda at_s: 210.0)
    fetch()
    assert "authorization" not in api.requests[0].headers
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    fetch(token_file=str(file))
    assert api.requests[-1].headers["authorization"] == "Bearer s3cret"
    api.fail("401", says="bad token s3cret")
    assert "s3cret" not in refused(fetch, "auth", token_file=str(file))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"url": ""}, r"carbon\.url: is empty"),
        ({"query": " "}, r"carbon\.query: is empty.*example"),
        ({"unit": "g/MWh"}, r"carbon\.unit: 'g/MWh'.*g/kWh, kg/kWh, kg/MWh, t/MWh, lb/MWh"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_at_once(settings, told):
    carbon = {"url": "http://127.0.0.1:9090", "query": QUERY, **settings}
    with pytest.raises(ConfigError, match=told):
        open_source(CarbonConfig(source="prometheus", **carbon))
