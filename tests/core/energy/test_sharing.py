import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from green_core.energy.sharing import DIVISION_PERIOD_S, PATIENCE_S, shared_method
from green_core.energy.track import CounterTrack
from green_core.errors import MeterUnavailable
from green_core.testing.sharing import METHOD, SharedDevice, SharingEngine, settle
from green_core.values import MeterReading


@pytest.fixture
def device():
    return SharedDevice()


def test_a_process_alone_sees_the_counter_itself(device, tmp_path):
    """FIELD E8, E12: at once, at the counter's own instants and with its method."""
    only = SharingEngine(device, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for _ in range(20):
        device.run(0.05, watts=300.0)
        only.work(1.0)
        assert only.read() == MeterReading(device.at_s, device.counter_j)
    assert only.meter.rest_j() == 0.0
    assert (only.meter.method, only.meter.period_s) == (METHOD, 0.1)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("absolute", [True, False])
def test_a_device_is_divided_by_the_work_of_each(device, tmp_path, absolute):
    """FIELD E8: shares follow the work and add up to the counter."""
    one, two = (SharingEngine(device, tmp_path, absolute=absolute) for _ in range(2))
    one.read(), two.read()
    start_j = device.counter_j
    for _ in range(100):
        device.run(0.1, watts=400.0)
        one.work(30.0)
        two.work(10.0)
        one.read(), two.read()
    settle(device, one, two)
    assert one.got_j + two.got_j == pytest.approx(device.counter_j - start_j)
    assert one.got_j == pytest.approx(3 * two.got_j, rel=0.1)
    assert one.meter.rest_j() == pytest.approx(two.got_j)
    assert one.last.method == "measured:nvml-counter(shared)"


def test_a_device_nobody_works_on_is_divided_equally(device, tmp_path):
    engines = [SharingEngine(device, tmp_path) for _ in range(4)]
    for engine in engines:
        engine.read()
    for _ in range(8):
        device.run(PATIENCE_S, watts=100.0)
        engines[0].read()  # the others sleep
    settle(device, *engines)
    assert [engine.got_j for engine in engines] == pytest.approx([600.0] * 4)


@pytest.mark.parametrize("absolute", [True, False])
def test_who_joins_gets_nothing_of_the_time_before(device, tmp_path, absolute):
    one = SharingEngine(device, tmp_path, absolute=absolute)
    one.read()
    device.run(50.0, watts=100.0)
    one.work(5000.0)
    one.read()
    two = SharingEngine(device, tmp_path, absolute=absolute)
    two.read()
    settle(device, two, one)
    assert (one.got_j, two.got_j) == (pytest.approx(5000.0), pytest.approx(0.0))
    device.run(1.0, watts=100.0)
    two.work(7.0)
    settle(device, two, one)
    assert (one.got_j, two.got_j) == (pytest.approx(5000.0), pytest.approx(100.0))


def test_work_done_alone_is_not_paid_for_again(device, tmp_path):
    one = SharingEngine(device, tmp_path)
    one.work(1e9)
    one.read()
    two = SharingEngine(device, tmp_path)
    one.read(), two.read()
    for _ in range(50):
        device.run(0.1, watts=100.0)
        one.work(10.0), two.work(10.0)
        one.read(), two.read()
    settle(device, one, two)
    assert (one.got_j, two.got_j) == (pytest.approx(250.0, abs=15), pytest.approx(250.0, abs=15))


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("first_goes", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_who_stays_alone_gets_everything_again(device, tmp_path, absolute, first_goes, killed):
    """FIELD E8: after an orderly end and after a kill."""
    engines = []
    for _ in range(2):  # sums of samples begin at different times
        device.run(5.0, watts=100.0)
        engines.append(SharingEngine(device, tmp_path, absolute=absolute))
        engines[-1].read()
    device.run(1.0, watts=100.0)
    for engine in engines:
        engine.work(1.0)
    settle(device, *engines)
    goes, stays = engines if first_goes else engines[::-1]
    if killed:
        goes.killed()
    else:
        goes.meter.close()
        assert goes.closed
    stays.read()
    before_j, start_j = stays.got_j, device.counter_j
    for _ in range(10):
        device.run(0.1, watts=300.0)
        stays.read()
    assert stays.got_j - before_j == pytest.approx(device.counter_j - start_j)
    assert stays.last.method is None
    assert stays.last.at_s == device.at_s
    assert len(list(tmp_path.glob("*.live"))) == 1


def test_the_share_of_a_killed_process_is_nobody_elses(device, tmp_path):
    """FIELD E8."""
    one, two = (SharingEngine(device, tmp_path) for _ in range(2))
    one.read(), two.read()
    device.run(1.0, watts=100.0)
    one.work(1.0), two.work(3.0)
    two.read()
    two.killed()
    settle(device, one)
    assert one.got_j == pytest.approx(25.0)
    assert one.got_j + one.meter.rest_j() == pytest.approx(100.0)


def test_a_process_at_work_is_waited_for_but_not_for_long(device, tmp_path):
    one, two = (SharingEngine(device, tmp_path) for _ in range(2))
    one.read(), two.read()
    device.run(1.0, watts=100.0)
    one.work(1.0), two.work(1.0)
    one.read(), two.read(), one.read()
    assert one.got_j == pytest.approx(50.0)
    device.run(DIVISION_PERIOD_S + 0.1, watts=100.0)
    one.work(1.0)
    one.read()
    assert one.got_j == pytest.approx(50.0)  # two was busy and has not spoken yet
    device.run(PATIENCE_S, watts=100.0)
    one.read()
    assert one.got_j == pytest.approx(50.0 + 360.0)
    device.run(DIVISION_PERIOD_S + 0.1, watts=100.0)
    one.work(1.0)
    one.read()
    assert one.got_j == pytest.approx(50.0 + 420.0)  # two is idle by now


def test_a_counter_that_begins_anew_is_a_gap_for_all_and_adds_up_after(device, tmp_path):
    """FIELD E1, E17."""
    engines = [SharingEngine(device, tmp_path) for _ in range(3)]
    for engine in engines:
        engine.read()
    device.run(1.0, watts=100.0)
    settle(device, *engines)
    device.counter_j = 5.0
    told = [[] for _ in engines]
    for _ in range(3):
        device.run(1.0, watts=90.0)
        for engine, list_of in zip(engines, told, strict=True):
            list_of.append(engine.read())
    assert [sum(reading.restarts for reading in list_of) for list_of in told] == [1, 1, 1]
    settle(device, *engines)
    base = [next(r for r in list_of if r.restarts).energy_j for list_of in told]
    got_j = [engine.last.energy_j - j for engine, j in zip(engines, base, strict=True)]
    assert sum(got_j) == pytest.approx(180.0)


def test_a_process_that_sees_an_older_state_of_the_counter_makes_nobody_fall(device, tmp_path):
    """FIELD E1: two exporters' pages are never of the same age."""
    one = SharingEngine(device, tmp_path)
    one.read()
    device.run(1.0, watts=100.0)
    one.read()
    device.run(0.1, watts=100.0)
    device.counter_j -= 30.0  # the page that two fetches is an older one
    two = SharingEngine(device, tmp_path)
    device.counter_j += 30.0
    told = [one.last.energy_j]
    for _ in range(20):
        two.behind_j = 30.0 - two.behind_j
        device.run(0.3, watts=100.0)
        one.work(1.0), two.work(1.0)
        two.read()
        told.append(one.read().energy_j)
    assert told == sorted(told)
    assert not one.last.restarts
    two.behind_j = 0.0
    settle(device, one, two)
    assert one.got_j + two.got_j == pytest.approx(710.0)


def test_alone_a_counter_that_begins_anew_is_a_gap(device, tmp_path):
    """FIELD E17."""
    only = SharingEngine(device, tmp_path)
    only.read()
    device.run(10.0, watts=100.0)
    only.read()
    device.counter_j = 1500.0  # below, and still above where the process began
    device.run(1.0)
    assert only.read().restarts
    device.run(1.0, watts=70.0)
    before_j = only.last.energy_j
    assert not only.read().restarts
    assert only.last.energy_j - before_j == pytest.approx(70.0)


def test_a_device_that_cannot_be_read_is_a_gap(device, tmp_path):
    """FIELD E2, E17."""
    one, two = (SharingEngine(device, tmp_path) for _ in range(2))
    one.read(), two.read()
    device.is_away = True
    device.run(30.0, watts=100.0)
    assert (one.read(), two.read()) == (None, None)
    device.is_away = False
    one.work(1.0)
    settle(device, one, two)
    assert (one.got_j, two.got_j) == (pytest.approx(3000.0), pytest.approx(0.0))


def test_a_counter_that_shows_late_is_counted_from_there(device, tmp_path):
    """FIELD E2: an exporter's page is dated by its first move only."""
    device.is_away = True
    one, two = (SharingEngine(device, tmp_path) for _ in range(2))
    assert (one.read(), two.read()) == (None, None)
    device.is_away = False
    device.run(20.0, watts=100.0)
    one.read(), two.read()
    assert (one.got_j, one.meter.rest_j()) == (0.0, 0.0)
    device.run(1.0, watts=100.0)
    one.work(1.0), two.work(3.0)
    settle(device, one, two)
    assert (one.got_j, two.got_j) == (pytest.approx(25.0), pytest.approx(75.0))
    assert one.meter.rest_j() == pytest.approx(75.0)


def test_another_kind_of_meter_on_the_same_device_is_refused(device, tmp_path):
    """FIELD E13: counters and samples of one device are never added up."""
    first = SharingEngine(device, tmp_path)
    with pytest.raises(MeterUnavailable, match=rf"process {os.getpid()} as .*nvml-counter") as it:
        SharingEngine(device, tmp_path, method="measured:dcgm-counter")
    assert 'energy.meter = "model"' in str(it.value)
    first.meter.close()
    SharingEngine(device, tmp_path, method="measured:dcgm-counter").meter.close()


def test_a_share_of_nothing_is_no_gap(device, tmp_path):
    """FIELD E12: a counter that stands still is given up, a share of 0 J is a fact."""
    one, two = (SharingEngine(device, tmp_path) for _ in range(2))
    track = CounterTrack(
        method=METHOD,
        model_method="estimated:model",
        period_s=0.1,
        max_w=1000.0,
        max_gap_s=10.0,
        start_s=device.at_s,
    )
    metered_j = 0.0
    for _ in range(400):
        device.run(0.1, watts=100.0)
        two.work(1.0)
        two.read()
        stretch = track.observe(device.at_s, one.read())
        if stretch is not None and stretch.metered_j is not None:
            assert stretch.method == shared_method(METHOD)
            metered_j += stretch.metered_j
    assert (track.gaps, metered_j) == (0, pytest.approx(0.0))


def test_methods_of_shared_values_say_so():
    assert shared_method("measured:x") == "measured:x(shared)"
    assert shared_method("measured:x(node)") == "measured:x(node, shared)"


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["work", "read", "join", "leave", "kill", "away"]),
        st.integers(0, 3),
        st.sampled_from([0.0, 0.03, 0.2, 0.6, 4.0, 700.0]),
        st.floats(0.0, 700.0),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(events=EVENTS, absolute=st.booleans())
def test_whatever_happens_shares_and_rest_add_up_to_the_counter(tmp_path_factory, events, absolute):
    """FIELD E8: also for sums of samples that begin with each process, which may lose but never
    make up what was drawn between a division and the look at it of who takes over reading.
    """
    folder = tmp_path_factory.mktemp("shares")
    device, living, since_j, ever = SharedDevice(), {}, {}, []

    def join(number):
        living[number] = SharingEngine(device, folder, absolute=absolute)
        living[number].read()
        since_j[number] = device.counter_j
        ever.append(living[number])

    join(0)
    for what, number, seconds, watts in events:
        device.run(seconds, watts)
        device.is_away = False
        engine = living.get(number)
        if what == "join" and engine is None:
            join(number)
        elif engine is None:
            continue
        elif what == "work":
            engine.work(watts)
            engine.read()
        elif what in ("read", "away"):
            device.is_away = what == "away"
            last = engine.last
            engine.read()
            if engine.last is None:
                engine.last = last
            assert engine.last.at_s >= last.at_s
            assert engine.last.energy_j >= last.energy_j
        elif len(living) > 1:
            living.pop(number)
            engine.killed() if what == "kill" else engine.meter.close()
    device.is_away = False
    device.run(1.0, 1.0)
    settle(device, *living.values())
    for number, engine in living.items() if absolute else ():
        seen_j = engine.got_j + engine.meter.rest_j()
        assert seen_j == pytest.approx(device.counter_j - since_j[number], abs=1e-3)
    total_j = sum(engine.got_j for engine in ever)
    assert total_j <= device.counter_j - 1000.0 + 1e-3
    if absolute and len(ever) == len(living):  # else the last share of those who left is nobody's
        assert total_j == pytest.approx(device.counter_j - 1000.0, abs=1e-3)
