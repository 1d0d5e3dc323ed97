"""``green intensity`` and ``green forecast``: what flags, config and a missing forecast do."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest
from grid_cases import CASES

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
