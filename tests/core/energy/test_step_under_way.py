"""A step that is still running: its time is paid for once, and never as idle time."""

import pytest

from green_core.books import Books, Faults
from green_core.config import EnergyConfig, GreenConfig
from green_core.manager import GreenManager
from green_core.signal_watch import SignalWatch
from green_core.values import Settled

STATIC_W = 100.0  # of the device in conftest
SHORT_S, LONG_S = 0.03, 14.0
PAUSE_S = 30.0


def timeline(*lengths_s):
    """``(start, end)`` of steps; a negative length is a pause."""
    at_s, spans = 0.0, []
    for length_s in lengths_s:
        if length_s > 0.0:
            spans.append((at_s, at_s + length_s))
        at_s += abs(length_s)
    return spans, at_s


SHORTS = (SHORT_S,) * 100
ONE_LONG = timeline(*SHORTS, -2.0, LONG_S, *SHORTS, -PAUSE_S)
TWO_LONG = timeline(*SHORTS, LONG_S, *SHORTS, LONG_S, *SHORTS)


class Run:
    """Plays a timeline against one attributor, which looks every half a second."""

    def __init__(self, kit, timeline, *, told, metered=False, config=None):
        self.kit, self.told, self.metered = kit, told, metered
        self.spans, self.wall_s = timeline
        self.attributor = kit.attributor(
            metered=metered, config=config or EnergyConfig(idle="apart", pue=1.25)
        )
        self.dynamic_j, self.out, self.answers, self.excess_j = 0.0, [], {}, []
        self._look_s = 0.0
        for number, (start_s, end_s) in enumerate(self.spans):
            self._look_until(end_s, start_s)
            name = f"r{number}"
            step = kit.step(start_s, end_s, kit.share(name, decode=1, context=99))
            self.dynamic_j += kit.model().price(step).dynamic_j
            self.attributor.on_step(step)
            self.answers[name] = self.attributor.finish(kit.facts(name, finished_s=end_s))
        self._look_until(self.wall_s, None)
        self.out.append(self.attributor.close(self.wall_s, self._reading(self.wall_s)))

    def _reading(self, at_s):
        return self.kit.reading(at_s, 200.0 * at_s) if self.metered else None

    def _look_until(self, until_s, busy_from_s):
        while self._look_s < until_s:
            at_s = self._look_s
            busy = self.told and busy_from_s is not None and at_s >= busy_from_s
            reading = self._reading(at_s)
            self.out.append(self.attributor.advance(at_s, reading, busy_from_s if busy else None))
            totals = self.attributor.totals()
            settled_j = totals.active_j + totals.idle_j
            self.excess_j.append(settled_j - STATIC_W * at_s - self.dynamic_j)
            self._look_s += 0.5

    @property
    def busy_s(self):
        return sum(end_s - start_s for start_s, end_s in self.spans)

    @property
    def totals(self):
        return self.attributor.totals()


@pytest.mark.parametrize("idle", ["apart", "shared"])
@pytest.mark.parametrize("told", [True, False])
def test_time_is_paid_for_once_by_the_model(kit, told, idle):
    """Static power times wall time, plus what steps computed: not a joule more, nor less."""
    run = Run(kit, ONE_LONG, told=told, config=EnergyConfig(idle=idle))
    total_j = run.totals.active_j + run.totals.idle_j
    assert total_j == pytest.approx(STATIC_W * run.wall_s + run.dynamic_j, rel=1e-9)
    settled = kit.join(*run.out)
    assert sum(i.active_j + i.idle_j for i in settled.intervals) == pytest.approx(total_j)
    assert sum(r.energy_j for r in settled.records) == pytest.approx(run.totals.active_j)
    assert all(i.idle_j >= 0.0 and i.active_j >= 0.0 for i in settled.intervals)


@pytest.mark.parametrize("told", [True, False])
def test_idle_is_the_time_without_a_step(kit, told):
    run = Run(kit, ONE_LONG, told=told)
    assert run.totals.idle_j == pytest.approx(STATIC_W * (run.wall_s - run.busy_s))
    assert kit.by_id(kit.join(*run.out)) == run.answers


def test_a_step_that_was_told_of_is_not_taken_for_idle_even_for_a_moment(kit):
    run = Run(kit, TWO_LONG, told=True)
    assert run.totals.idle_j == pytest.approx(0.0, abs=1e-6)
    assert max(run.excess_j) <= 1e-6


def test_wrong_guesses_do_not_add_up(kit):
    """Without idle time to pay back from, the books are off by one step's time at most."""
    run = Run(kit, TWO_LONG, told=False)
    assert 0.0 < run.totals.idle_j <= STATIC_W * LONG_S
    assert max(run.excess_j) <= STATIC_W * LONG_S


def test_embodied_carbon_of_a_late_step_is_charged_once(kit):
    year_s = 365.25 * 86_400
    config = EnergyConfig(embodied_g_per_device=year_s, lifetime_years=1.0)  # 1 g/s
    run = Run(kit, ONE_LONG, told=False, config=config)
    settled = kit.join(*run.out)
    assert sum(i.embodied_g for i in settled.intervals) == pytest.approx(run.wall_s)
    assert sum(r.embodied_g for r in settled.records) == pytest.approx(run.busy_s)


@pytest.mark.parametrize("told", [True, False])
def test_a_meter_still_says_what_was_used_however_long_a_step_takes(kit, told):
    run = Run(kit, ONE_LONG, told=told, metered=True)
    settled = kit.join(*run.out)
    measured_j = sum(i.active_j + i.idle_j for i in settled.intervals)
    assert measured_j == pytest.approx(200.0 * run.wall_s)
    assert sum(r.energy_j for r in settled.records) == pytest.approx(run.totals.active_j)
    assert {i.method for i in settled.intervals} == {kit.METER}


def test_a_metered_step_under_way_leaves_its_joules_to_its_request(kit):
    """Learnt idle power is 20 W; the long step drew 300 W, and all of it is its own."""
    attributor = kit.attributor(metered=True)
    for t in range(11):
        attributor.advance(float(t), kit.reading(float(t), 20.0 * t))
    for t in range(11, 24):
        reading = kit.reading(float(t), 200.0 + 300.0 * (t - 10))
        attributor.advance(float(t), reading, busy_since_s=10.0)
    attributor.on_step(kit.step(10.0, 24.0, kit.share("a", decode=1)))
    attributor.finish(kit.facts("a"))
    (record,) = attributor.advance(24.0, kit.reading(24.0, 4400.0)).records
    assert record.energy_j == pytest.approx(300.0 * 14.0)
    assert attributor.totals().idle_j == pytest.approx(200.0)


def test_joules_that_a_meter_counted_are_never_owed(kit):
    """The idle time of a gap is charged whole, whatever was handed over late before it."""
    attributor = kit.attributor(metered=True)
    out = []
    for t in range(41):
        if t == 24:
            attributor.on_step(kit.step(5.0, 8.0, kit.share("late", decode=1)))
        measured = t == 0 or 21 <= t <= 25
        out.append(attributor.advance(float(t), kit.reading(t, 100.0 * t) if measured else None))
    out.append(attributor.close(41.0, None))
    settled = kit.join(*out)
    modelled_j = sum(i.idle_j for i in settled.intervals if i.method != kit.METER)
    assert modelled_j == pytest.approx(100.0 * (21 + 16))


@pytest.mark.parametrize("metered", [False, True])
def test_a_step_that_never_ends_holds_up_settling_for_a_minute_only(kit, metered):
    attributor = kit.attributor(metered=metered)
    settled_j = {}
    for t in range(200):
        attributor.advance(float(t), kit.reading(float(t), 100.0 * t), busy_since_s=10.0)
        settled_j[t] = attributor.totals().idle_j
    assert settled_j[70] <= 1000.0
    assert settled_j[80] == pytest.approx(7900.0, abs=100.0)
    assert settled_j[199] == pytest.approx(19_800.0, abs=100.0)


def test_a_lost_step_holds_up_no_step_that_came_after_it(kit):
    attributor = kit.attributor()
    attributor.advance(1.0, None, busy_since_s=0.5)
    attributor.on_step(kit.step(2.0, 3.0, kit.share("a", decode=1)))
    attributor.finish(kit.facts("a"))
    (record,) = attributor.advance(3.0, None, busy_since_s=0.5).records
    assert record.settled
    assert attributor.totals().idle_j == pytest.approx(200.0)


def test_a_step_that_ends_while_the_books_look_is_not_missed(kit, tmp_path, monkeypatch):
    """The engine's thread may end a step between pricing and settling: it still counts as begun."""
    config = GreenConfig()
    books = Books(
        config,
        kit.engine,
        signal=kit.signal(),
        watch=SignalWatch("static", stock_when_stale=True, on_change=lambda: None),
        manager=GreenManager(config, None),
        metrics_dir=tmp_path,
        now_s=0.0,
        faults=Faults(),
    )
    looked = []

    def advance(now_s, reading, busy_since_s=None):
        looked.append(busy_since_s)
        return Settled()

    def price():
        books.busy_since_s = None  # the step ends right after the queue was emptied

    monkeypatch.setattr(books._attributor, "advance", advance)
    monkeypatch.setattr(books, "price", price)
    books.busy_since_s = 3.0
    books.settle(20.0, at_once=True)
    assert looked == [3.0]
