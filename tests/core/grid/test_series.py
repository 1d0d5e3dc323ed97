"""Reading carbon files: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core import ConfigError
from green_core.grid.series import Point, parse_time, read_series

NOON = 1_714_564_800.0  # 2024-05-01T12:00Z
HOUR = 3600.0
ROWS = [("2024-05-01T12:00Z", 210.5), ("2024-05-01T13:00Z", 180.0)]


def write(tmp_path: Path, text: str, name: str = "ci.csv") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def csv_of(rows, head="time,value"):
    return "\n".join([head, *(f"{at},{value}" for at, value in rows)]) + "\n"


@pytest.mark.parametrize(
    "head", ["ts_utc,ci_lca", "datetime,carbon_intensity", "Timestamp,Intensity_g_per_kWh"]
)
def test_columns_are_found_by_name_in_any_case(tmp_path, head):
    points = read_series(write(tmp_path, csv_of(ROWS, head)))
    assert points == (Point(NOON, 210.5, NOON), Point(NOON + HOUR, 180.0, NOON + HOUR))


def test_named_columns_win_over_names_that_would_be_found(tmp_path):
    path = write(tmp_path, "time,value,my_t,my_v\n" + "".join(f",,{a},{v}\n" for a, v in ROWS))
    points = read_series(path, time_column="my_t", value_column="my_v")
    assert [p.intensity_g_per_kwh for p in points] == [210.5, 180.0]


@pytest.mark.parametrize("wrap", [lambda r: r, lambda r: {"zone": "DE", "history": r}])
def test_json_gives_the_same_series_as_csv(tmp_path, wrap):
    rows = [{"datetime": at, "carbonIntensity": value} for at, value in ROWS]
    from_json = read_series(write(tmp_path, json.dumps(wrap(rows)), "ci.json"))
    assert from_json == read_series(write(tmp_path, csv_of(ROWS)))


def test_gzipped_files_give_the_same_series(tmp_path):
    path = tmp_path / "ci.csv.gz"
    path.write_bytes(gzip.compress(csv_of(ROWS).encode()))
    assert read_series(str(path)) == read_series(write(tmp_path, csv_of(ROWS)))


def test_offsets_are_turned_into_utc_also_on_the_day_the_clock_goes_back(tmp_path):
    rows = [("2024-10-27T02:30+02:00", 100), ("2024-10-27T02:30+01:00", 200)]
    first, second = read_series(write(tmp_path, csv_of(rows)))
    assert second.at_s - first.at_s == HOUR


@pytest.mark.parametrize("gap", ["", "null", "NaN", "n/a", "-"])
def test_nulls_are_gaps_that_carry_the_value_before_them(tmp_path, gap):
    """FIELD G4."""
    rows = [
        ("2024-05-01T11:00Z", gap),
        *ROWS,
        ("2024-05-01T14:00Z", gap),
        ("2024-05-01T15:00Z", 90),
    ]
    points = read_series(write(tmp_path, csv_of(rows)))
    assert [(p.at_s - NOON, p.intensity_g_per_kwh, p.is_gap) for p in points] == [
        (0, 210.5, False),
        (HOUR, 180.0, False),
        (2 * HOUR, 180.0, True),
        (3 * HOUR, 90.0, False),
    ]
    assert points[2].known_at_s == NOON + HOUR


def test_json_nulls_and_missing_keys_are_gaps(tmp_path):
    """FIELD G4."""
    rows = [{"time": at, "value": value} for at, value in ROWS]
    rows[1:1] = [{"time": "2024-05-01T12:20Z", "value": None}, {"time": "2024-05-01T12:40Z"}]
    points = read_series(write(tmp_path, json.dumps(rows), "ci.json"))
    assert [p.is_gap for p in points] == [False, True, True, False]


@given(order=st.permutations(range(6)))
def test_the_order_of_rows_does_not_matter(tmp_path_factory, order):
    rows = [(f"2024-05-01T{hour:02}:00Z", 100 + hour) for hour in range(6)]
    path = tmp_path_factory.mktemp("order") / "ci.csv"
    path.write_text(csv_of([rows[i] for i in order]))
    assert [p.intensity_g_per_kwh for p in read_series(str(path))] == [100 + h for h in range(6)]


def test_a_time_given_twice_with_one_value_counts_once(tmp_path):
    assert len(read_series(write(tmp_path, csv_of([*ROWS, ROWS[0]])))) == 2


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([*ROWS, ("2024-05-01T14:00+02:00", 1)], "row 3.*row 1"),
        ([*ROWS, ("2024-05-01 14:00", 1)], "row 3.*no offset.*Add the offset"),  # FIELD G8
        ([*ROWS, ("1714564800", 1)], "ISO 8601"),
        ([*ROWS, ("yesterday", 1)], "row 3.*ISO 8601"),
        ([*ROWS, ("2024-05-01T14:00Z", -1)], "row 3.*at least 0"),
        ([*ROWS, ("2024-05-01T14:00Z", "inf")], "row 3.*finite"),
        ([*ROWS, ("2024-05-01T14:00Z", '"12,5"')], "row 3.*decimal point"),
        (ROWS[:1], "at least 2"),
        ([], "at least 2"),
        ([ROWS[0], ("2024-05-01T14:00Z", "")], "at least 2"),
    ],
)
def test_unusable_rows_are_refused_with_their_place_in_one_line(tmp_path, rows, says):
    with pytest.raises(ConfigError, match=says) as caught:
        read_series(write(tmp_path, csv_of(rows)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("ci.csv", "", "columns none"),
        ("ci.csv", "when,how_much\n", "when, how_much.*one of ts_utc.*carbon.time_column"),
        ("ci.csv", "time,how_much\n", "carbon_intensity.*carbon.value_column"),
        ("ci.txt", "time,value\n", "neither .csv nor .json"),
        ("ci.json", "{", "not valid JSON"),
        ("ci.json", "{}", "no list of points"),  # FIELD G7
        ("ci.json", '{"data": []}', "columns none"),  # FIELD G7
        ("ci.json", '{"data": [1, 2]}', "no list of points"),
        ("ci.json", '{"data": {"time": 1}}', "no list of points"),
        ("ci.json", '{"data": [], "meta": {"units": "lbs_co2_per_mwh"}}', "lbs_co2.*0.4535"),
        ("ci.json", '{"data": [], "meta": {"units": "percentile"}}', "percentile"),  # FIELD G10
        ("ci.csv.gz", "time,value\n", "is not gzip"),
    ],
)
def test_unusable_files_are_refused_with_what_was_found(tmp_path, name, text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        read_series(write(tmp_path, text, name))
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_folder_and_binary_data_are_config_errors(tmp_path):
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(b"time,value\n" * 50)[:-20])
    for path in (tmp_path / "none.csv", folder, binary, cut):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_series(str(path))


def test_a_naive_time_is_refused_everywhere():
    """FIELD G8."""
    with pytest.raises(ConfigError, match=r"carbon.replay_start.*no offset"):
        parse_time("2024-05-01T12:00", "carbon.replay_start")
