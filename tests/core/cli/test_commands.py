"""Guarantees of the ``green`` command."""

import contextlib
import csv
import io
import json
import sqlite3
import subprocess
import sys

import pytest

from green_core.export.text import greenserve_version


def assert_one_line_error(answer, *words):
    assert answer.code == 2
    assert answer.out == ""
    (line,) = answer.err.splitlines()
    for word in words:
        assert word in line


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "green.toml"
        path.write_text(text)
        return path

    return write


# --- config ---------------------------------------------------------------------------------


def test_every_effective_value_is_shown_with_its_origin(green, config, monkeypatch):
    path = config('profile = "balanced"\n[carbon]\nzone = "DE"\n')
    monkeypatch.setenv("GREEN_SLO_ITL_MS", "40")
    answer = green("config", "check", "--config", path)
    assert answer.code == 0
    shown = dict(line.split("  # ") for line in answer.out.splitlines())
    shown = {key.strip(): origin for key, origin in shown.items()}
    assert shown['carbon.zone = "DE"'] == f"file {path}"
    assert shown["slo.itl_ms = 40.0"] == "environment"
    assert shown['policies.batch = "slo"'] == "profile balanced"
    assert shown["carbon.high_threshold = 300.0"] == "default"
    assert shown["energy.static_w = unset"] == "default"


def test_a_bad_config_is_one_line_and_exit_2(green, config):
    path = config("[carbon]\nhigh_treshold = 1\n")
    assert_one_line_error(
        green("config", "check", "--config", path), "carbon.high_treshold", "high_threshold"
    )


@pytest.mark.parametrize("command", [("config", "check"), ("intensity",)])
def test_a_missing_file_is_one_line_that_names_what_named_it(green, tmp_path, monkeypatch, command):
    missing = tmp_path / "gren.toml"
    assert_one_line_error(green(*command, "--config", missing), str(missing), "--config")
    monkeypatch.setenv("GREEN_CONFIG", str(missing))
    assert_one_line_error(green(*command), str(missing), "GREEN_CONFIG")


def test_a_broken_file_is_one_line_too(green, config):
    assert_one_line_error(green("config", "check", "--config", config("a = [\n\n")), "TOML")


def test_the_check_says_when_policies_are_switched_off(green, config):
    path = config("")
    green("off", "--config", path)
    assert "switched off" in green("config", "check", "--config", path).out


# --- off and on -----------------------------------------------------------------------------


def test_off_and_on_follow_the_config_in_the_environment(green, config, monkeypatch):
    path = config("")
    monkeypatch.setenv("GREEN_CONFIG", str(path))
    assert green("off").out == f"policies are off ({path}.off)\n"
    assert green("off").out == f"policies are off already ({path}.off)\n"
    assert green("on").out == f"policies are on ({path}.off)\n"
    assert green("on").out == f"policies are on already ({path}.off)\n"


def test_off_works_with_a_config_that_is_broken(green, config):
    """In an emergency the switch must not depend on anything else."""
    assert green("off", "--config", config("not toml")).code == 0


def test_off_works_by_the_run_folder(green, tmp_path):
    assert green("off", "--run-dir", tmp_path).code == 0
    assert (tmp_path / "off").exists()


def test_a_mistyped_place_does_not_look_switched(green, tmp_path):
    assert_one_line_error(green("off", "--config", tmp_path / "gren.toml"), "no such config")
    assert_one_line_error(green("off", "--run-dir", tmp_path / "rnu"), "no such folder")
    assert_one_line_error(green("off"), "--config")


# --- intensity ------------------------------------------------------------------------------

FILE_SIGNAL = """\
[carbon]
source = "file"
path = "{csv}"
zone = "DE"
forecast = "recorded"
replay_start = "2026-01-01T00:00:00Z"
"""


@pytest.fixture
def file_signal(config, tmp_path):
    data = tmp_path / "signal.csv"
    hours = "".join(f"2026-01-01T{h:02}:00:00Z,{100 + h * 50}\n" for h in range(24))
    data.write_text("time,intensity_g_per_kwh\n" + hours)
    return config(FILE_SIGNAL.format(csv=data))


def test_the_signal_is_shown_with_kind_state_and_how_far_the_forecast_reaches(green, file_signal):
    answer = green("intensity", "--config", file_signal)
    assert (answer.code, answer.err) == (0, "")
    first = answer.out.splitlines()[0]
    assert first.startswith("100.0 gCO2e/kWh, average")
    assert first.endswith(": clean")
    assert "zone       DE" in answer.out
    assert "the file's own future (perfect knowledge)" in answer.out


def test_a_files_own_future_is_a_forecast_that_says_so(green, file_signal):
    answer = green("forecast", "--config", file_signal, "--hours", "2")
    assert (answer.code, answer.err) == (0, "")
    assert "perfect knowledge" in answer.out.splitlines()[0]
    assert [line.split()[2:] for line in answer.out.splitlines()[-2:]] == [
        ["150.0", "clean"],
        ["200.0", "medium"],
    ]


def test_hours_of_a_replay_are_hours_of_its_data(green, file_signal):
    file_signal.write_text(file_signal.read_text() + "speed = 60.0\n")
    answer = green("forecast", "--config", file_signal, "--hours", "3", "--json")
    points = json.loads(answer.out)["forecast"]
    assert [point["intensity_g_per_kwh"] for point in points] == [150.0, 200.0, 250.0]


def test_the_signal_as_json_carries_units(green, file_signal):
    view = json.loads(green("intensity", "--json", "--config", file_signal).out)
    assert view["intensity_g_per_kwh"] == 100.0
    assert (view["kind"], view["zone"], view["state"]) == ("average", "DE", "clean")
    assert view["observed_at"].endswith("Z")
    assert view["forecast"][0]["intensity_g_per_kwh"] >= 100.0


def test_a_signal_that_never_changes_is_json_too(green, config):
    answer = green("intensity", "--json", "--config", config('[carbon]\nzone = "DE"\n'))
    assert answer.code == 0, answer.err
    view = json.loads(answer.out)
    assert (view["zone"], view["valid_until_s"], view["valid_until"]) == ("DE", None, None)


def test_an_unknown_source_is_one_line(green, config):
    path = config('[carbon]\nsource = "statik"\n')
    assert_one_line_error(green("intensity", "--config", path), "carbon.source", "static")


# --- ledger ---------------------------------------------------------------------------------


def test_the_export_is_csv_that_can_be_read_back(green, fill):
    answer = green("ledger", "export", "--ledger", fill({"tenant": "=1+1"}, {"tenant": "b"}))
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert [row["tenant"] for row in rows] == ["'=1+1", "b"]
    assert float(rows[0]["energy_kwh"]) == 0.001
    assert rows[0]["finished_time"] == "2026-01-01T00:00:02.500Z"


def test_the_export_is_json_lines_when_asked(green, fill, tmp_path):
    output = tmp_path / "out.jsonl"
    ledger = fill({"tenant": "a"}, {"tenant": "b"})
    answer = green(
        "ledger", "export", "--ledger", ledger, "--format", "jsonl", "--output", output
    )  # fmt: skip
    assert (answer.code, answer.out) == (0, "")
    assert [json.loads(line)["tenant"] for line in output.read_text().splitlines()] == ["a", "b"]


def test_the_export_keeps_to_span_and_tenant(green, fill):
    ledger = fill({}, {"finished_s": 1_767_312_000.0}, {"tenant": "b"})
    options = ("--format", "jsonl", "--tenant", "acme", "--until", "2026-01-02T01:00:00+01:00")
    (line,) = green("ledger", "export", "--ledger", ledger, *options).out.splitlines()
    assert json.loads(line)["request_id"] == "request-0"


def test_a_time_without_an_offset_is_refused(green, fill):
    """FIELD G8."""
    for text in ("2026-01-01T00:00:00", "2026-01-01", "yesterday"):
        answer = green("ledger", "export", "--ledger", fill({}), "--since", text)
        assert answer.code == 2
        assert "--since" in answer.err


def test_books_that_balance_are_exit_0(green, fill):
    answer = green("ledger", "check", "--ledger", fill({}, {}))
    assert answer.code == 0
    assert "balanced" in answer.out
    assert "0 out of balance" in answer.out


def test_books_that_do_not_balance_are_exit_1(green, fill):
    ledger = fill({}, missing_j=50.0)
    answer = green("ledger", "check", "--ledger", ledger)
    assert answer.code == 1
    assert "OUT OF BALANCE" in answer.out
    (book,) = json.loads(green("ledger", "check", "--json", "--ledger", ledger).out)
    assert book["difference_j"] == pytest.approx(50.0)
    assert book["balanced"] is False


@pytest.mark.parametrize("command", [("report",), ("ledger", "export"), ("ledger", "check")])
def test_a_missing_ledger_is_one_line(green, tmp_path, command):
    assert_one_line_error(green(*command, "--ledger", tmp_path / "none.db"), "no such file")


# --- report ---------------------------------------------------------------------------------


def test_the_report_sums_by_tenant_and_keeps_idle_apart(green, fill):
    ledger = fill({}, {}, {"tenant": "globex"}, idle_j=1_200.0)
    answer = green("report", "--ledger", ledger)
    lines = [line.split() for line in answer.out.splitlines()]
    assert lines[1][:5] == ["acme", "2", "200", "80", "40"]
    assert lines[1][5:8] == ["0.002000", "1.000", "3600"]
    assert lines[1][8:] == ["measured:nvml-counter", "average/lifecycle"]
    assert lines[2][0] == "globex"
    assert "idle, no request: 0.0003333 kWh, 10.0% of the 0.003333 kWh counted" in answer.out
    (idle,) = json.loads(green("report", "--json", "--ledger", ledger).out)["idle"]
    with contextlib.closing(sqlite3.connect(ledger)) as database:
        row = database.execute("SELECT operational_g, embodied_g FROM intervals").fetchone()
    assert idle["idle_g"] == pytest.approx(sum(row) * 0.1)
    assert idle["idle_g"] > 0


def test_the_report_shows_a_single_small_request(green, fill):
    ledger = fill({"energy_j": 0.7472, "operational_g": 9.489e-05, "embodied_g": 0.0})
    out = green("report", "--ledger", ledger).out
    assert out.splitlines()[1].split()[5:8] == ["0.0000002076", "0.00009489", "0.7472"]


def test_the_report_does_not_add_up_methods(green, fill):
    """FIELD E13."""
    ledger = fill({}, {"method": "estimated"})
    report = json.loads(green("report", "--json", "--ledger", ledger).out)
    assert [(group["method"], group["requests"]) for group in report["groups"]] == [
        ("estimated", 1),
        ("measured:nvml-counter", 1),
    ]


@pytest.mark.parametrize(("by", "group"), [("urgency", "standard"), ("model", "org/model-8b")])
def test_the_report_groups_as_asked(green, fill, by, group):
    report = json.loads(green("report", "--json", "--by", by, "--ledger", fill({}, {})).out)
    (row,) = report["groups"]
    assert (row["group"], row["requests"]) == (group, 2)
    assert row["energy_kwh"] == pytest.approx(0.002)
    assert row["carbon_g"] == pytest.approx(1.0)
    assert row["joules_per_request"] == 3_600.0
    assert report["idle"][0]["idle_j"] == 1_200.0


def test_one_tenants_report_does_not_carry_the_servers_idle(green, fill):
    report = json.loads(green("report", "--json", "--tenant", "acme", "--ledger", fill({})).out)
    assert report["idle"] == []


def test_the_report_says_what_is_not_settled(green, fill):
    assert "1 request(s) ended before" in green("report", "--ledger", fill({"settled": False})).out


def test_a_tenant_cannot_command_the_terminal(green, fill):
    out = green("report", "--ledger", fill({"tenant": "\x1b[31mred\r\n\u202e"})).out
    assert "\x1b" not in out
    assert "\\x1b[31mred\\r\\n\\u202e" in out


def test_an_empty_span_says_so(green, fill):
    answer = green("report", "--ledger", fill({}), "--since", "2030-01-01T00:00:00Z")
    assert answer.out == "no requests in this span\n"


# --- the command itself ---------------------------------------------------------------------


def test_the_version_is_that_of_the_distribution(green):
    assert green("version").out == f"greenserve {greenserve_version()}\n"


def test_a_reader_that_stops_early_is_no_error(fill):
    ledger = fill(*[{} for _ in range(3_000)])
    code = "from green_core.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "ledger", "export", "--ledger", ledger],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


def test_no_command_and_unknown_commands_are_exit_2(green):
    assert green().code == 2
    assert green("frobnicate").code == 2


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("config", "check"),
        ("off",),
        ("on",),
        ("intensity",),
        ("forecast",),
        ("ledger", "export"),
        ("ledger", "check"),
        ("report",),
        ("version",),
    ],
)
def test_every_command_has_help(green, command):
    answer = green(*command, "--help")
    assert answer.code == 0
    assert "usage: green" in answer.out
