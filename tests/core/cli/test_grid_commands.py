"""``green intensity`` and ``green forecast`` against every live source, well and failing.

The services are doubles on the loopback. They serve ``VALUE`` now and ``AHEAD`` in a while, so a
value tells where it comes from.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from green_core.testing.carbon_api import CarbonApi, Question
from green_core.testing.carbon_gateways import serve_carbon_aware_sdk, serve_prometheus
from green_core.testing.carbon_services import serve_electricity_maps, serve_uk, serve_watttime

SECRET = "t0ken-n0t-t0-be-seen"
VALUE, AHEAD = 110.0, 240.0


class Case(NamedTuple):
    """A source: how to serve it, how to ask for it, what to expect."""

    serve: Callable[[CarbonApi], None]
    zone: str
    kind: str
    period_s: float
    config: str = ""
    own_forecast: bool = True
    stand_in: float = 238.0  # the yearly average of the zone, or the world's


def _edge_s() -> float:
    """When ``AHEAD`` begins: far enough off that no test runs into it."""
    return (time.time() // 3600 + 2) * 3600


def _curve(period_s: float) -> list[float]:
    """A day of values by period, as the services repeat it."""
    edge_s = _edge_s()
    times = [n * period_s for n in range(int(86_400 // period_s))]
    return [AHEAD if (at_s - edge_s) % 86_400 < 10 * 3600 else VALUE for at_s in times]


def _value_at(at_s: float) -> float:
    return VALUE if at_s < _edge_s() else AHEAD


CASES = {
    "uk": Case(lambda api: serve_uk(api, _curve(1800)), "GB", "average", 1800),
    "electricity_maps": Case(
        lambda api: serve_electricity_maps(api, _curve(3600), token=SECRET),
        "FR", "average", 3600, stand_in=56.0,
    ),
    "watttime": Case(
        lambda api: serve_watttime(api, _curve(300), username="me", password=SECRET),
        "CAISO_NORTH", "marginal", 300, config='username = "me"\n', stand_in=481.0,
    ),
    "carbon_aware_sdk": Case(
        lambda api: serve_carbon_aware_sdk(
            api, _value_at, forecast_at=_value_at, location="uksouth"
        ),
        "uksouth", "average", 3600, stand_in=481.0,
    ),
    "prometheus": Case(
        lambda api: serve_prometheus(api, _value_at),
        "GB", "average", 300, config='query = "ci"\n', own_forecast=False,
    ),
}  # fmt: skip
SOURCES = sorted(CASES)


@pytest.fixture(autouse=True)
def fresh_folders(tmp_path, monkeypatch):
    """No cache, lock or token of anybody else's."""
    for name in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("GREEN_CARBON_TOKEN", SECRET)


@pytest.fixture
def api() -> Iterator[CarbonApi]:
    with CarbonApi() as double:
        yield double


@pytest.fixture
def ask(green, api, tmp_path):
    """Run a command for a source of ``CASES``, which is served unless the test serves something
    itself; no answer ever holds the token.
    """
    served = []

    def call(command: str, source: str, *options: str, timeout_s: float = 5.0, serve=True):
        case = CASES[source]
        if serve and not served:
            case.serve(api)
            served.append(source)
        path = tmp_path / "green.toml"
        path.write_text(f"[carbon]\ntimeout_s = {timeout_s}\n{case.config}")
        place = ("--source", source, "--zone", case.zone, "--kind", case.kind, "--url", api.url)
        answer = green(command, "--config", path, *place, *options)
        assert SECRET not in answer.out + answer.err
        assert "Traceback" not in answer.err
        return answer

    return call


def age(tmp_path: Path, by_s: float) -> None:
    """Make what is cached older."""
    for path in (tmp_path / "XDG_CACHE_HOME").rglob("carbon-*.json"):
        tree = json.loads(path.read_text())
        for key in ("fetched_at_s", "at_s", "next_at_s"):
            if key in tree:
                tree[key] -= by_s
        for slot in [*tree.get("history", []), *tree.get("forecast", [])]:
            slot["start_s"] -= by_s
            slot["end_s"] -= by_s
        path.write_text(json.dumps(tree))


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
        edge = datetime.fromtimestamp(_edge_s(), UTC)
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
    serve_electricity_maps(api, _curve(3600), sandbox=True)
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
    serve_uk(api, _curve(1800), regional_list=as_list)
    answer = green("intensity", "--source", "uk", "--zone", "GB-13", "--url", api.url, "--json")
    assert json.loads(answer.out)["intensity_g_per_kwh"] == pytest.approx(VALUE)


def test_a_short_forecast_is_shown_as_far_as_it_goes(ask, api):
    """FIELD G7."""
    serve_carbon_aware_sdk(api, _value_at, forecast_at=_value_at, forecast_hours=4)
    points = json.loads(ask("forecast", "carbon_aware_sdk", "--json", serve=False).out)["forecast"]
    assert 3 <= len(points) <= 4  # four hours, of which one has begun
    assert points[-1]["intensity_g_per_kwh"] == AHEAD


def test_without_a_forecast_in_the_plan_it_is_persistence_and_says_so(ask, api):
    serve_electricity_maps(api, _curve(3600), token=SECRET, forecast=False)
    answer = ask("forecast", "electricity_maps", serve=False)
    assert answer.code == 0
    assert answer.out.splitlines()[0].endswith("the same hour one day earlier")


# --- options ------------------------------------------------------------------------------


def test_a_source_needs_no_config_file(green, api):
    CASES["uk"].serve(api)
    answer = green("intensity", "--source", "uk", "--zone", "GB", "--url", api.url)
    assert answer.code == 0
    assert "zone       GB" in answer.out


def test_watttime_is_asked_for_its_marginal_signal_unless_told_otherwise(green, api, monkeypatch):
    CASES["watttime"].serve(api)
    monkeypatch.setenv("GREEN_CARBON_USERNAME", "me")
    place = ("--source", "watttime", "--zone", "CAISO_NORTH", "--url", api.url, "--json")
    assert json.loads(green("intensity", *place).out)["kind"] == "marginal"


def test_flags_win_over_the_config(green, api, tmp_path):
    CASES["uk"].serve(api)
    path = tmp_path / "green.toml"
    path.write_text('[carbon]\nsource = "uk"\nzone = "nowhere"\nurl = "http://127.0.0.1:9"\n')
    answer = green("intensity", "--config", path, "--zone", "GB", "--url", api.url, "--json")
    assert json.loads(answer.out)["zone"] == "GB"


def test_another_source_is_not_sent_what_the_config_keeps_for_its_own(green, api, tmp_path):
    """A token file of one service must not go to another."""
    CASES["prometheus"].serve(api)
    token = tmp_path / "token"
    token.write_text("f0r-the-other-one")
    path = tmp_path / "green.toml"
    path.write_text(
        f'[carbon]\nsource = "watttime"\nzone = "GB"\nkind = "marginal"\nusername = "me"\n'
        f'query = "not mine"\ntoken_file = "{token}"\nurl = "http://127.0.0.1:9"\n'
    )
    options = ("--config", path, "--source", "carbon_aware_sdk", "--url", api.url)
    CASES["carbon_aware_sdk"].serve(api)
    answer = green("intensity", *options, "--json")
    assert json.loads(answer.out)["kind"] == "average"
    assert all("f0r-the" not in str(question.headers) for question in api.requests)


def test_variables_still_set_what_no_flag_sets(green, api, monkeypatch):
    CASES["prometheus"].serve(api)
    monkeypatch.setenv("GREEN_CARBON_QUERY", "my_query")
    assert green("intensity", "--source", "prometheus", "--zone", "GB", "--url", api.url).code == 0
    assert api.requests[0].params["query"] == "my_query"


def test_a_zone_alone_stays_with_the_static_table_and_names_the_live_sources(green):
    answer = green("intensity", "--zone", "aws:eu-west-2")
    assert (answer.code, answer.err) == (0, "")
    assert "static table: Ember" in answer.out
    (line,) = [line for line in answer.out.splitlines() if line.startswith("live ")]
    for name in ("uk (no token)", "electricity_maps (token)", "watttime (account; marginal)"):
        assert name in line
    tree = json.loads(green("intensity", "--zone", "DE", "--json").out)
    assert "uk" not in tree["live_sources"].split()
    assert "live " not in green("intensity", "--zone", "DE", "--source", "static").out


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--source", "uk"), "carbon.zone"),
        (("--source", "ukk", "--zone", "GB"), "'uk'"),
        (("--source", "prometheus", "--zone", "GB"), "carbon."),
        (("--source", "uk", "--zone", "GB", "--url", "ftp://x"), "carbon.url"),
        (("--source", "carbon_aware_sdk", "--zone", "GB"), "carbon.url"),
        (("--source", "yearly", "--zone", "GB"), "carbon.path"),
        (("--zone", "Atlantis"), "carbon.zone"),
        (("--zone", "GB", "--kind", "marginal"), "carbon.kind"),
    ],
)
@pytest.mark.parametrize("command", ["intensity", "forecast"])
def test_a_setting_that_cannot_work_is_one_line_and_exit_2(green, command, options, word):
    answer = green(command, *options)
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert word in line


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "inf", "many"])
def test_a_forecast_of_no_hours_is_a_usage_error(green, hours):
    answer = green("forecast", "--zone", "GB", "--hours", hours)
    assert answer.code == 2
    assert "number of hours above 0" in answer.err


def test_json_and_a_plot_at_once_are_a_usage_error(green):
    assert green("forecast", "--zone", "GB", "--json", "--plot").code == 2


# --- the forecast -------------------------------------------------------------------------


@pytest.mark.parametrize("options", [("--zone", "GB"), ("--zone", "GB", "--json")])
def test_without_a_forecast_it_says_why_and_exits_1(green, options):
    answer = green("forecast", *options)
    assert answer.code == 1
    assert "no forecast: a yearly average tells nothing" in answer.err
    assert "--source uk" in answer.err
    if "--json" in options:
        assert json.loads(answer.out)["forecast"] == []
    else:
        assert answer.out == ""


def test_a_forecast_of_a_service_that_was_never_heard_is_none(ask, api):
    CASES["uk"].serve(api)
    api.fail("500")
    answer = ask("forecast", "uk")
    assert (answer.code, answer.out) == (1, "")
    problem, none = answer.err.splitlines()
    assert problem.startswith("problem: ")
    assert none.startswith("no forecast: uk is not heard")


def test_fewer_hours_are_cut_from_what_is_known_and_more_are_asked_for(ask, api):
    ask("forecast", "uk")
    count = len(api.requests)
    points = json.loads(ask("forecast", "uk", "--hours", "2", "--json").out)["forecast"]
    assert len(points) == 4
    assert len(api.requests) == count
    points = json.loads(ask("forecast", "uk", "--hours", "36", "--json").out)["forecast"]
    assert len(points) == 72
    assert len(api.requests) > count


needs_plotext = pytest.mark.skipif(
    importlib.util.find_spec("plotext") is None, reason="plotext is not installed (extra: plot)"
)


@needs_plotext
def test_the_plot_is_drawn_without_colours_and_within_the_terminal(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    answer = ask("forecast", "uk", "--plot")
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    _, _, picture = answer.out.partition("\n\n")
    assert "gCO2e/kWh by day and time (UTC)" in picture
    assert "┤" in picture
    assert max(map(len, picture.splitlines())) <= 60


@needs_plotext
def test_a_terminal_that_cannot_show_the_plot_is_told(ask, monkeypatch):
    class Narrow:
        encoding = "ascii"

    monkeypatch.setattr("green_core.cli.forecast.sys.stdout", Narrow(), raising=False)
    answer = ask("forecast", "uk", "--plot")
    assert answer.code == 2
    assert "encoding" in answer.err


def test_a_missing_plot_library_is_named_with_its_extra(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotext", None)
    answer = ask("forecast", "uk", "--plot")
    assert (answer.code, answer.out) == (2, "")
    assert "pip install 'greenserve[plot]'" in answer.err
