"""What a live source said, as steps in time."""

import math
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from green_core.config import CarbonConfig
from green_core.errors import SignalUnavailable
from green_core.grid.slots import KEEP_S, checked, merged, overlay
from green_core.grid.source import Slot, Snapshot
from green_core.grid.timeline import Timeline

HOUR = 3600.0
T0 = 1_800_000_000.0  # a whole hour
NOTHING = (Slot(T0, T0 + HOUR, 1.0),)


def hours(first, *values, is_estimate=False):
    return tuple(
        Slot(T0 + (first + n) * HOUR, T0 + (first + n + 1) * HOUR, float(value), is_estimate)
        for n, value in enumerate(values)
        if value is not None
    )


def snapshot(history=(), forecast=(), fetched_at_s=T0, **changes):
    fields = {
        "source": "service",
        "zone": "GB",
        "kind": "average",
        "basis": "lifecycle",
        "licence": "CC0",
        "fetched_at_s": fetched_at_s,
    }
    return Snapshot(**{**fields, **changes}, history=history, forecast=forecast)


def timeline(history=(), coming=(), *, heard_s=T0, offset_s=0.0, renewable=None, **carbon):
    config = CarbonConfig(source="uk", zone="GB", **carbon)
    said = snapshot(history, coming, heard_s, renewable_ratio=renewable)
    return Timeline(said, config, offset_s=offset_s, heard_s=heard_s, period_s=HOUR)


def values(view):
    return [point.intensity_g_per_kwh for point in view.forecast]


def test_a_measured_value_counts_before_an_estimate_and_that_before_a_forecast():
    estimated = hours(1, 201, is_estimate=True)
    known = timeline(hours(0, 100) + estimated, hours(0, 300, 301, 302), heard_s=T0)
    seen = [(v.intensity_g_per_kwh, v.is_estimate) for v in map(known.view, (T0, T0 + HOUR))]
    assert seen == [(100.0, False), (201.0, True)]
    ahead = known.view(T0 + 2 * HOUR)
    assert (ahead.intensity_g_per_kwh, ahead.is_estimate) == (302.0, True)
    assert ahead.observed_at_s == T0


def test_after_the_last_slot_its_value_is_carried_and_flagged():
    known = timeline(hours(-1, 90, 100), forecast="none")
    carried = known.view(T0 + HOUR)
    assert (carried.intensity_g_per_kwh, carried.is_estimate) == (100.0, True)
    assert (carried.quality, carried.observed_at_s) == ("fresh", T0)
    assert known.view(T0 - 5 * HOUR).intensity_g_per_kwh == 90.0
    assert known.view(T0 - 5 * HOUR).is_estimate


def test_a_gap_carries_the_value_before_it():
    """FIELD G4."""
    known = timeline(hours(-3, 90, None, 95, 100))
    gap = known.view(T0 - 2 * HOUR)
    assert (gap.intensity_g_per_kwh, gap.is_estimate, gap.observed_at_s) == (
        90.0,
        True,
        T0 - 3 * HOUR,
    )


def test_a_view_ends_when_it_turns_stale():
    known = timeline(hours(0, 100), stale_after_s=1800.0, forecast="none")
    fresh = known.view(T0)
    assert (fresh.quality, fresh.valid_until_s) == ("fresh", T0 + 1800)
    stale = known.view(T0 + 1800)
    assert (stale.quality, stale.is_estimate, stale.intensity_g_per_kwh) == ("stale", True, 100.0)


def test_while_a_forecast_covers_the_present_age_counts_from_the_last_answer():
    known = timeline(hours(-3, 100), hours(-2, *range(200, 230)), stale_after_s=4 * HOUR)
    assert known.view(T0 + 4 * HOUR - 1).quality == "fresh"
    assert known.view(T0 + 4 * HOUR).quality == "stale"


def test_without_a_slot_for_the_present_age_counts_from_the_end_of_the_last_one():
    known = timeline(hours(-3, 100), stale_after_s=2.5 * HOUR)
    assert known.view(T0 + HOUR / 2 - 1).quality == "fresh"
    assert known.view(T0 + HOUR / 2).quality == "stale"


def test_a_source_that_died_does_not_turn_fresh_again_when_its_forecast_ends():
    known = timeline(hours(0, 100), hours(1, 1, 2, 3, 4, 5), stale_after_s=2 * HOUR)
    for hour in range(2, 12):
        assert known.view(T0 + hour * HOUR).quality == "stale"


def test_once_stale_the_yearly_average_serves_if_asked_for():
    known = timeline(hours(0, 5), hours(1, 6, 7, 8), stale_after_s=HOUR, on_stale="static")
    stale = known.view(T0 + HOUR)
    assert stale.quality == "stale"
    assert stale.intensity_g_per_kwh > 100
    assert "static table: Ember" in stale.source
    assert "stale service" in stale.source
    assert (stale.forecast, math.isinf(stale.valid_until_s)) == ((), True)
    assert known.view(T0).intensity_g_per_kwh == 5.0


def test_the_last_value_keeps_its_forecast_if_the_last_value_is_asked_for():
    known = timeline(hours(0, 5), hours(1, 6, 7, 8), stale_after_s=HOUR, on_stale="last")
    assert known.view(T0 + HOUR).intensity_g_per_kwh == 6.0
    assert values(known.view(T0 + HOUR)) == [7.0, 8.0]


def test_the_own_forecast_starts_at_the_end_of_the_present_slot_and_ends_with_the_data():
    """FIELD G7: a short forecast is one; its end is said."""
    known = timeline(hours(0, 100), hours(1, *range(101, 130)), forecast_hours=48.0)
    view = known.view(T0 + 60)
    assert view.forecast[0].start_s == view.valid_until_s == T0 + HOUR
    assert values(view) == list(range(101, 130))
    assert view.forecast_end_s == T0 + 30 * HOUR
    assert "the service's own" in view.source


def test_a_forecast_is_bounded_by_forecast_hours():
    known = timeline(hours(0, 100), hours(1, *range(101, 130)), forecast_hours=2.5)
    assert values(known.view(T0)) == [101.0, 102.0, 103.0]
    assert known.view(T0).forecast_end_s == T0 + 3.5 * HOUR


def test_without_an_own_forecast_auto_expects_the_day_before():
    known = timeline(hours(-30, *range(100, 131)))
    view = known.view(T0)
    assert values(view) == [float(100 + h) for h in range(7, 31)]
    assert view.forecast_end_s == T0 + 25 * HOUR
    assert "one day earlier" in view.source


def test_persistence_goes_on_from_a_carried_value():
    known = timeline(hours(-30, *range(100, 130)), stale_after_s=3 * HOUR)  # nothing for now
    view = known.view(T0 + 60)
    assert (view.valid_until_s, view.is_estimate) == (T0 + HOUR, True)
    assert view.forecast[0].start_s == T0 + HOUR
    assert values(view)[:3] == [107.0, 108.0, 109.0]


@pytest.mark.parametrize(
    ("forecast", "points"), [("none", 0), ("source", 0), ("persistence", 24), ("auto", 24)]
)
def test_the_forecast_is_the_one_that_was_asked_for(forecast, points):
    assert len(timeline(hours(-2, 1, 2, 3), forecast=forecast).view(T0).forecast) == points


def test_persistence_never_has_more_points_than_one_in_five_minutes():
    fine = tuple(Slot(T0 + 15 * n, T0 + 15 * n + 15, 100.0 + n) for n in range(-40, 1))
    assert len(timeline(fine).view(T0).forecast) == 288


def test_all_times_move_with_the_offset_of_the_clocks():
    known = timeline(hours(0, 100), hours(1, 101), offset_s=-500.0, heard_s=T0 - 500)
    view = known.view(T0 - 500)
    assert (view.observed_at_s, view.valid_until_s) == (T0 - 500, T0 + HOUR - 500)
    assert view.forecast[0].start_s == T0 + HOUR - 500


def test_the_share_of_renewables_belongs_to_the_present_only():
    known = timeline(hours(-1, 99, 100), hours(1, 101), renewable=0.4)
    ratios = [known.view(T0 + h * HOUR).renewable_ratio for h in (-1, 0.5, 1)]
    assert ratios == [None, 0.4, None]
    lost = timeline(hours(0, 9), heard_s=-math.inf, renewable=0.4, on_stale="static")
    assert lost.view(T0).renewable_ratio is None


def test_an_answer_of_unknown_age_is_stale_at_any_time():
    known = timeline(hours(0, 100), hours(1, 101), heard_s=-math.inf)
    assert {known.view(T0 + h * HOUR).quality for h in (-9, 0, 1, 9)} == {"stale"}


slot_lists = st.lists(
    st.tuples(st.integers(0, 7200), st.integers(1, 7200), st.floats(0, 1000), st.booleans()),
    max_size=12,
).map(
    lambda rows: tuple(
        Slot(T0 + end - length, T0 + end, value, guess)
        for end, length, value, guess in zip(
            accumulate(gap + length for gap, length, _, _ in rows),
            (length for _, length, _, _ in rows),
            (value for _, _, value, _ in rows),
            (guess for *_, guess in rows),
            strict=True,
        )
    )
)


@settings(max_examples=150)
@given(
    history=slot_lists,
    forecast=slot_lists,
    heard_s=st.one_of(st.floats(T0 - 1e4, T0 + 1e5), st.just(-math.inf)),
    offset_s=st.integers(-100_000, 100_000).map(float),
    stale_after_s=st.floats(60, 1e5),
    on_stale=st.sampled_from(["off", "last", "static"]),
    method=st.sampled_from(["auto", "source", "persistence", "none"]),
)
def test_a_view_asked_at_its_own_end_is_always_the_next_one(
    *, history, forecast, heard_s, offset_s, stale_after_s, on_stale, method
):
    known = Timeline(
        snapshot(history or NOTHING, forecast),
        CarbonConfig(
            source="uk",
            zone="GB",
            stale_after_s=stale_after_s,
            on_stale=on_stale,
            forecast=method,
            forecast_hours=6.0,
        ),
        offset_s=offset_s,
        heard_s=heard_s,
        period_s=HOUR,
    )
    now_s, seen = -1e12, []
    while math.isfinite(now_s):
        view = known.view(now_s)
        assert view.valid_until_s > now_s
        assert known.intensity_at(now_s) == view.intensity_g_per_kwh
        just_before = math.nextafter(view.valid_until_s, -math.inf)
        assert known.intensity_at(just_before) == view.intensity_g_per_kwh
        assert known.view(just_before) == view
        starts = [p.start_s for p in view.forecast]
        assert starts == sorted(starts)
        assert not starts or now_s < starts[0] < starts[-1] + 1 <= view.forecast_end_s + 1
        seen.append(view)
        now_s = view.valid_until_s
    assert seen[-1].quality == "stale"
    assert len(seen) < 2 * (len(history) + len(forecast) + 2) + 600


@given(under=slot_lists, over=slot_lists)
def test_laying_over_keeps_what_lies_on_top_and_fills_up_from_below(under, over):
    result = overlay(under, over)
    assert all(a.end_s <= b.start_s for a, b in pairwise(result))
    assert set(over) <= set(result)
    for slot in under:
        for at_s in (slot.start_s, (slot.start_s + slot.end_s) / 2):
            top = [s for s in result if s.start_s <= at_s < s.end_s]
            wanted = [s for s in over if s.start_s <= at_s < s.end_s] or [slot]
            assert [s.intensity_g_per_kwh for s in top] == [wanted[0].intensity_g_per_kwh]


def test_history_gathers_over_answers_and_a_measurement_replaces_an_estimate():
    first = snapshot(hours(0, 100, 101) + hours(2, 150, is_estimate=True), (), T0 + 2 * HOUR)
    second = snapshot(hours(1, 999, is_estimate=True) + hours(2, 102, 103), (), T0 + 3 * HOUR)
    both = merged(merged(None, first), second)
    assert [(s.intensity_g_per_kwh, s.is_estimate) for s in both.history] == [
        (100.0, False),
        (101.0, False),
        (102.0, False),
        (103.0, False),
    ]


def test_history_is_kept_for_eight_days_and_short_slots_are_averaged():
    known = None
    for n in range(0, 9 * 86_400, 60 * 60):
        fetched_at_s = T0 + n + 3600
        fine = tuple(
            Slot(T0 + n + k, T0 + n + k + 60, float(k // 60 % 5), k == 120)
            for k in range(0, 3600, 60)
        )
        known = merged(known, snapshot(fine, (), fetched_at_s))
    assert known.history[0].end_s > known.fetched_at_s - KEEP_S
    assert known.history[0].start_s < known.fetched_at_s - KEEP_S + 600
    assert len(known.history) < 8 * 288 + 70
    assert {s.intensity_g_per_kwh for s in known.history[:100]} == {2.0}
    assert all(a.end_s == b.start_s for a, b in pairwise(known.history))
    # An average over an estimate is one.
    assert sum(s.is_estimate for s in known.history[1:97]) == 8


def test_history_of_another_basis_or_zone_is_not_mixed_in():
    """FIELD G12."""
    old = snapshot(hours(-1, 1), (), T0)
    for changes in ({"basis": "direct"}, {"zone": "FR"}, {"kind": "marginal"}):
        assert merged(old, snapshot(hours(0, 2), (), T0, **changes)).history == hours(0, 2)


def test_slots_left_behind_by_a_clock_that_was_set_back_are_dropped():
    ahead = snapshot(hours(20, 1, 2, 3), (), T0 + 23 * HOUR)
    assert merged(ahead, snapshot(hours(0, 7), (), T0 + 60)).history == hours(0, 7)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (snapshot(), "empty"),
        (snapshot(NOTHING, kind="marginal"), "kind"),
        (snapshot(NOTHING, basis="direct"), "kind"),
        (snapshot((Slot(T0, T0, 1.0),)), "malformed"),
        (snapshot((Slot(T0, T0 + 1, -1.0),)), "malformed"),
        (snapshot((Slot(T0, T0 + 1, math.nan),)), "malformed"),
        (snapshot((Slot(T0, math.inf, 1.0),)), "malformed"),
        (snapshot((Slot(math.nan, T0, 1.0),)), "malformed"),
        (snapshot(hours(1, 1) + hours(0, 1)), "malformed"),
        (snapshot(NOTHING, renewable_ratio=1.5), "malformed"),
        (snapshot(NOTHING, fetched_at_s=math.nan), "malformed"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_with_its_reason(said, reason):
    """FIELD G4, G7, G12."""
    with pytest.raises(SignalUnavailable) as caught:
        checked(said, CarbonConfig(source="uk", zone="GB", basis="lifecycle"))
    assert caught.value.reason == reason
    checked(snapshot(NOTHING), CarbonConfig(source="uk", zone="GB", basis="lifecycle"))


def test_a_forecast_that_could_not_be_had_leaves_the_earlier_one_in_force():
    """Each question of a round may fail for itself; what was said stays said."""
    earlier = snapshot(hours(-1, 10, 20), hours(1, 30, 40, 50), T0)
    newer = snapshot(hours(-1, 10, 21), (), T0 + 2.5 * HOUR)
    both = merged(earlier, newer, keep_forecast_s=3 * HOUR)
    assert both.forecast == hours(3, 50)
    # What has begun of it is the best word on the present, and an estimate.
    assert both.history == (*hours(-1, 10, 21), *hours(1, 30, 40, is_estimate=True))
    assert both.forecast_at_s == T0
    again = merged(both, snapshot(hours(2, 41), (), T0 + 2.9 * HOUR), keep_forecast_s=3 * HOUR)
    assert again.forecast == hours(3, 50)
    assert again.history[-1] == hours(2, 41)[0]


def test_a_forecast_is_kept_no_longer_than_a_value_is_believed():
    earlier = snapshot(hours(0, 20), hours(1, *range(20)), T0)
    for n in range(1, 6):
        earlier = merged(
            earlier, snapshot(hours(n, 7), (), T0 + n * HOUR), keep_forecast_s=3 * HOUR
        )
        assert bool(earlier.forecast) == (n < 3)


def test_a_newer_forecast_replaces_the_earlier_one_whole():
    earlier = snapshot(hours(0, 20), hours(1, *range(20)), T0)
    newer = snapshot(hours(0, 20), hours(1, 99), T0 + 60)
    assert merged(earlier, newer, keep_forecast_s=HOUR).forecast == hours(1, 99)


def test_a_forecast_by_the_second_does_not_cost_a_view_by_the_second():
    seconds = tuple(Slot(T0 + n, T0 + n + 1, float(n % 10)) for n in range(86_400))
    said = merged(None, snapshot(NOTHING, seconds, T0))
    assert len(said.forecast) == 288
    assert [slot.intensity_g_per_kwh for slot in said.forecast] == [pytest.approx(4.5)] * 288


def test_persistence_takes_nothing_from_a_day_on_which_that_hour_is_not_known():
    """A cache with a hole: what was before the hole is no word on the hours within."""
    history = (*hours(-50, 400, 500), *hours(-26, 410), *hours(0, 100))
    view = timeline(history, forecast="persistence", forecast_hours=24).view(T0)
    expected = dict(zip(range(1, 25), values(view), strict=True))
    assert expected[23] == 500  # two days before the hole at this hour of yesterday
    assert expected[22] == 410
    assert {expected[hour] for hour in range(1, 22)} == {100}


@pytest.mark.parametrize("value", [5_001.0, 1e300])
def test_a_value_that_no_plant_emits_is_refused(value):
    with pytest.raises(SignalUnavailable) as caught:
        checked(snapshot(hours(0, value)), CarbonConfig(source="uk", zone="GB"))
    assert caught.value.reason == "malformed"


def test_what_a_service_calls_itself_fits_on_a_label():
    said = merged(None, snapshot(NOTHING, source="a\nb\x1b" + "c" * 10_000, zone="z\r" * 1_000))
    assert said.source.isprintable()
    assert said.zone.isprintable()
    assert len(said.source) <= 500
    assert len(said.zone) <= 500
