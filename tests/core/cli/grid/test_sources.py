"""``green intensity`` and ``green forecast`` against every live source, well and failing."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from grid_cases import AHEAD, CASES, SECRET, SOURCES, VALUE, age, curve, edge_s, value_at

from green_core.testing.carbon_api import Question
from green_core.testing.carbon_gateways import serve_carbon_aware_sdk
from green_core.testing.carbon_services import serve_electricity_maps, serve_uk

# --- all is well --------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_shows_value_kind_place_and_age(ask, source):
    case = CASES[source]
    answer = ask("intensity", source, "--json")
    assert (answer.code, answer.err) == (0, "")
    view = json.loads(answer.out)
    assert view["intensity_g_per_kwh"] == pytest.approx(VALUE)
    assert (view["kind"], view["zone"], view["state"]) == (case.kind, case.zone, "clean")
    assert (view["quality"], view["problem"]) == ("fresh", "")
    assert 0 <= view["age_s"] < case.period_s + 60
    assert view["licence"]
    assert view["source"]
    assert "forecast" not in view["source"]
    assert view["forecast_method"]
    assert view["basis"] in ("lifecycle", "direct", "unknown")
    text = ask("intensity", source).out
    first, *rows = text.splitlines()
    assert first.startswith(f"{VALUE:.1f} gCO2e/kWh, {case.kind}")
    assert first.endswith(": clean")
    labels = {row.split()[0] for row in rows}
    assert {"zone", "source", "basis", "licence", "observed", "quality", "forecast"} <= labels


@pytest.mark.parametrize("source", SOURCES)
def test_a_repeated_call_is_answered_without_asking_the_service(ask, api, source):
    """FIELD G1."""
    ask("intensity", source)
    count = len(api.requests)
    assert count
    for command in ("intensity", "forecast", "intensity"):
        assert ask(command, source).code == 0
    assert len(api.requests) == count


@pytest.mark.parametrize("source", SOURCES)
def test_the_forecast_is_the_sources_own_or_says_that_it_is_persistence(ask, source):
    case = CASES[source]
    answer = ask("forecast", source, "--json")
    assert (answer.code, answer.err) == (0, "")
    tree = json.loads(answer.out)
    points = tree["forecast"]
    if case.own_forecast:
        assert tree["forecast_method"] == "the service's own"
        edge = datetime.fromtimestamp(edge_s(), UTC)
        (point,) = [p for p in points if datetime.fromisoformat(p["start"]) == edge]
        assert (point["intensity_g_per_kwh"], point["state"]) == (pytest.approx(AHEAD), "medium")
    else:
        assert tree["forecast_method"] == "the same hour one day earlier"
        assert {point["intensity_g_per_kwh"] for point in points} == {VALUE}
    starts = [datetime.fromisoformat(point["start"]) for point in points]
    ends = [datetime.fromisoformat(point["end"]) for point in points]
    assert starts == sorted(starts)
    assert starts[1:] == ends[:-1]
    assert starts[0].utcoffset().total_seconds() == 0
    assert (ends[-1] - starts[0]).total_seconds() >= 20 * 3600
    text = ask("forecast", source).out
    assert tree["forecast_method"] in text.splitlines()[0]
    assert f"{points[0]['start']}  {points[0]['end']}" in text


# --- failures -----------------------------------------------------------------------------

FAILURES = ["429", "500", "503", "hang", "truncated", "cut_json", "html", "empty_object", "null"]


@pytest.mark.parametrize("failure", [*FAILURES, "refuse"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_service_that_fails_gives_the_yearly_average_a_problem_and_exit_1(
    ask, api, source, failure
):
    CASES[source].serve(api)
    api.fail(failure, retry_after="120")
    timeout_s = 0.3 if failure == "hang" else 5.0
    answer = ask("intensity", source, "--json", timeout_s=timeout_s)
    assert answer.code == 1
    (line,) = answer.err.splitlines()
    assert line.startswith("problem: ")
    view = json.loads(answer.out)
    assert (view["quality"], view["is_estimate"]) == ("fallback", True)
    assert (view["intensity_g_per_kwh"], view["kind"]) == (CASES[source].stand_in, "average")
    assert "static table" in view["source"]
    assert view["problem"]
    assert view["age_s"] > 300 * 86_400


@pytest.mark.parametrize(("failure", "word"), [("401", "token"), ("403", "403")])
@pytest.mark.parametrize("source", SOURCES)
def test_a_refusal_for_good_is_one_line_and_exit_2(ask, api, source, failure, word):
    """FIELD G5."""
    CASES[source].serve(api)
    api.fail(failure, says=f"{SECRET} may not read {CASES[source].zone}")
    for command in ("intensity", "forecast"):
        answer = ask(command, source)
        assert (answer.code, answer.out) == (2, "")
        (line,) = answer.err.splitlines()
        assert line.startswith("green: carbon.")
        assert word in line


@pytest.mark.parametrize("source", SOURCES)
def test_a_service_that_asks_for_patience_is_left_alone(ask, api, source):
    """FIELD G1."""
    CASES[source].serve(api)
    api.fail("429", retry_after="600")
    for _ in range(3):
        assert ask("intensity", source).code == 1
    assert len(api.requests) == 1


@pytest.mark.parametrize("failure", ["500", "html", "null"])
@pytest.mark.parametrize("source", SOURCES)
def test_the_last_word_serves_with_its_age_and_then_as_stale(ask, api, tmp_path, source, failure):
    assert ask("intensity", source).code == 0
    api.fail(failure)
    age(tmp_path, CASES[source].period_s * 1.2)
    answer = ask("intensity", source, "--json")
    view = json.loads(answer.out)
    assert (answer.code, view["quality"]) == (0, "fresh")
    assert answer.err.startswith("problem: ")
    age(tmp_path, 3 * 3600)
    answer = ask("intensity", source, "--json")
    view = json.loads(answer.out)
    assert (answer.code, view["quality"], view["kind"]) == (1, "stale", CASES[source].kind)
    assert view["age_s"] > 3 * 3600
    assert answer.err.startswith("problem: ")
    api.recover()
    age(tmp_path, 3600)
    answer = ask("intensity", source, "--json")
    view = json.loads(answer.out)
    assert (answer.code, answer.err, view["quality"]) == (0, "", "fresh")
    assert view["intensity_g_per_kwh"] == pytest.approx(VALUE)


def test_made_up_values_of_a_sandbox_are_refused(ask, api):
    """FIELD G9."""
    serve_electricity_maps(api, curve(3600), sandbox=True)
    answer = ask("intensity", "electricity_maps", serve=False)
    assert (answer.code, answer.out) == (2, "")
    assert "carbon.allow_synthetic" in answer.err


def test_a_percentile_is_never_taken_for_an_intensity(ask, api):
    """FIELD G10."""
    CASES["watttime"].serve(api)
    api.route(
        "/v3/historical", lambda q: api.answer(Question("/v3/signal-index", q.params, q.headers))
    )
    answer = ask("intensity", "watttime", serve=False)
    assert (answer.code, answer.out) == (2, "")
    assert "percentile" in answer.err


@pytest.mark.parametrize("as_list", [True, False])
def test_a_list_and_an_object_are_both_read(green, api, as_list):
    """FIELD G7."""
    serve_uk(api, curve(1800), regional_list=as_list)
    answer = green("intensity", "--source", "uk", "--zone", "GB-13", "--url", api.url, "--json")
    assert json.loads(answer.out)["intensity_g_per_kwh"] == pytest.approx(VALUE)


def test_a_short_forecast_is_shown_as_far_as_it_goes(ask, api):
    """FIELD G7."""
    serve_carbon_aware_sdk(api, value_at, forecast_at=value_at, forecast_hours=4)
    points = json.loads(ask("forecast", "carbon_aware_sdk", "--json", serve=False).out)["forecast"]
    assert 3 <= len(points) <= 4  # four hours, of which one has begun
    assert points[-1]["intensity_g_per_kwh"] == AHEAD


def test_without_a_forecast_in_the_plan_it_is_persistence_and_says_so(ask, api):
    serve_electricity_maps(api, curve(3600), token=SECRET, forecast=False)
    answer = ask("forecast", "electricity_maps", serve=False)
    assert answer.code == 0
    assert answer.out.splitlines()[0].endswith("the same hour one day earlier")
