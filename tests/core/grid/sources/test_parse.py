"""From somebody else's JSON to slots."""

from __future__ import annotations

import itertools
import locale
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.errors import SignalUnavailable
from green_core.grid.source import Slot
from green_core.grid.sources.parse import (
    Point,
    as_list,
    iso_minute,
    member,
    number,
    past_and_coming,
    seconds,
    slots_from_points,
    unless_missing,
)

HALF_HOUR = 1800.0


def reason(call, *args) -> str:
    with pytest.raises(SignalUnavailable) as caught:
        call(*args)
    return caught.value.reason


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("2018-01-20T12:00Z", 1516449600.0),
        ("2018-01-20T12:00:00.000Z", 1516449600.0),
        ("2018-01-20T13:00:00+01:00", 1516449600.0),
        ("2018-01-20T12:00:00.1234567+00:00", 1516449600.123456),
    ],
)
def test_times_with_an_offset_are_read_in_every_spelling_of_the_services(text, at_s):
    assert seconds(text, "service") == at_s


@pytest.mark.parametrize(
    "text",
    ["2018-01-20T12:00", "2018-01-20", "yesterday", "", None, 7, []],
)
def test_a_naive_or_broken_time_is_refused(text):
    """FIELD G8."""
    assert reason(seconds, text, "service") == "malformed"


def test_times_are_written_in_utc_to_the_minute():
    assert iso_minute(1516449659.0) == "2018-01-20T12:00Z"


@pytest.mark.parametrize("raw", [None, math.nan, "NaN"])
def test_null_and_nan_are_gaps(raw):
    """FIELD G4."""
    assert number(raw, "service") is None


@pytest.mark.parametrize(
    "raw", [True, False, -1, -0.5, math.inf, "1,5", "1_0", "x", [], {}, 10**400]
)
def test_what_is_no_number_of_at_least_zero_is_refused(raw):
    assert reason(number, raw, "service") == "malformed"


def test_numbers_are_read_without_regard_to_a_decimal_comma():
    """FIELD G6. What is written for services holds no fraction at all."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "pl_PL.UTF-8"):
            try:
                locale.setlocale(locale.LC_ALL, name)
                break
            except locale.Error:
                continue
        assert number("1.5", "service") == 1.5
        assert iso_minute(1516449600.0) == "2018-01-20T12:00Z"
    finally:
        locale.setlocale(locale.LC_ALL, before)


def test_one_object_stands_for_a_list_of_one():
    """FIELD G7."""
    assert as_list({"a": 1}, "service") == [{"a": 1}]
    assert as_list([{"a": 1}, None, {}], "service") == [{"a": 1}]


@pytest.mark.parametrize(
    ("found", "why"),
    [(None, "empty"), ([], "empty"), ({}, "empty"), ([None], "empty"), ([1], "malformed")],
)
def test_a_list_without_objects_is_refused_and_never_indexed(found, why):
    """FIELD G7."""
    assert reason(as_list, found, "service") == why


def test_a_member_is_found_under_any_of_its_names():
    assert member({"forecast": [1]}, "service", "history", "forecast") == [1]


@pytest.mark.parametrize(
    ("tree", "why"),
    [(None, "empty"), ({}, "empty"), ([], "malformed"), ({"x": 1}, "malformed"), ("", "malformed")],
)
def test_an_answer_without_the_member_is_refused(tree, why):
    """FIELD G7."""
    assert reason(member, tree, "service", "data") == why


def test_gaps_are_left_out_and_no_value_is_stretched_over_them():
    """FIELD G4."""
    points = [Point(0.0, 1.0), Point(1800.0, None), Point(3600.0, 3.0)]
    assert slots_from_points(points) == (Slot(0.0, 1800.0, 1.0), Slot(3600.0, 5400.0, 3.0))


def test_a_missing_point_is_a_gap_too():
    points = [Point(at * HALF_HOUR, 1.0) for at in (0, 1, 2, 5, 6)]
    assert [slot.end_s / HALF_HOUR for slot in slots_from_points(points)] == [1, 2, 3, 6, 7]


def test_of_two_points_for_one_time_the_later_that_is_no_gap_counts():
    points = [Point(0.0, 1.0), Point(0.0, 2.0), Point(0.0, None)]
    assert slots_from_points(points, fallback_s=60.0) == (Slot(0.0, 60.0, 2.0),)


@given(
    st.lists(
        st.builds(
            Point,
            st.integers(0, 50).map(float),
            st.none() | st.floats(0, 900),
            st.booleans(),
            st.none() | st.integers(0, 60).map(float),
        )
    ),
    st.lists(st.builds(Point, st.integers(0, 50).map(float), st.floats(0, 900))),
    st.integers(0, 60).map(float),
)
def test_history_and_forecast_never_overlap_and_meet_at_the_present(known, foreseen, now_s):
    parts = past_and_coming(slots_from_points(known), slots_from_points(foreseen), now_s)
    joined = [*parts[0], *parts[1]]
    assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(joined))
    assert all(slot.end_s > slot.start_s for slot in joined)
    assert all(slot.start_s <= now_s for slot in parts[0])
    assert all(slot.start_s > now_s for slot in parts[1])


def test_what_is_known_counts_before_what_was_foreseen():
    known = (Slot(0.0, 100.0, 1.0),)
    foreseen = (Slot(0.0, 100.0, 9.0), Slot(100.0, 200.0, 2.0), Slot(200.0, 300.0, 3.0))
    history, forecast = past_and_coming(known, foreseen, 150.0)
    assert history == (known[0], Slot(100.0, 200.0, 2.0, is_estimate=True))
    assert forecast == (Slot(200.0, 300.0, 3.0, is_estimate=True),)


@pytest.mark.parametrize("why", ["forbidden", "timeout", "server_error", "empty", "malformed"])
def test_a_part_that_cannot_be_had_is_no_failure(why):
    def ask() -> int:
        raise SignalUnavailable("x", reason=why)

    assert unless_missing(ask, 7) == 7


@pytest.mark.parametrize("why", ["unit", "kind", "synthetic"])
def test_a_part_of_another_kind_or_unit_is_a_failure_of_the_whole(why):
    """FIELD G9, G10, G12."""

    def ask() -> int:
        raise SignalUnavailable("x", reason=why)

    assert reason(unless_missing, ask, 7) == why


def test_a_wild_date_among_what_is_known_does_not_push_out_the_forecast():
    known = (Slot(0.0, 100.0, 1.0), Slot(9e9, 9e9 + 100.0, 2.0))
    foreseen = (Slot(100.0, 200.0, 3.0), Slot(200.0, 300.0, 4.0))
    history, forecast = past_and_coming(known, foreseen, 150.0)
    assert [slot.intensity_g_per_kwh for slot in history] == [1.0, 3.0]
    assert [slot.intensity_g_per_kwh for slot in forecast] == [4.0, 2.0]
