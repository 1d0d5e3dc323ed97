"""How the counter's joules are split between steps, and between steps and idle time."""

import pytest


def test_steps_faster_than_the_counter_wait_for_it_and_get_energy(kit):
    """FIELD E12: a request shorter than the counter's period is unsettled, then never 0 J."""
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    attributor.on_step(kit.step(0.01, 0.02, kit.share("a", prefill=50)))
    answer = attributor.finish(kit.facts("a"))
    assert not answer.settled
    assert answer.energy_j > 0
    assert attributor.advance(0.03, kit.reading(0.03, 0.0)).records == ()
    assert attributor.pending
    attributor.advance(0.11, kit.reading(0.11, 30.0))
    (record,) = attributor.advance(0.40, kit.reading(0.40, 30.0)).records
    assert record.settled
    assert 0 < record.energy_j <= 30.0
    assert record.method == kit.METER


def test_a_step_that_straddles_two_stretches_takes_from_both_by_time(kit):
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    attributor.on_step(kit.step(0.0, 4.0, kit.share("a", decode=1, context=9)))
    attributor.finish(kit.facts("a"))
    first = attributor.advance(1.0, kit.reading(1.0, 100.0))
    assert first.records == ()
    assert first.intervals[0].active_j == pytest.approx(100.0)
    second = attributor.advance(4.0, kit.reading(4.0, 1000.0))
    assert second.records[0].energy_j == pytest.approx(1000.0)


def test_two_steps_share_a_stretch_by_their_modelled_energy(kit):
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    steps = [
        kit.step(0.0, 0.5, kit.share("a", prefill=4000)),
        kit.step(0.5, 1.0, kit.share("b", decode=1, context=10)),
    ]
    for step in steps:
        attributor.on_step(step)
    for name in "ab":
        attributor.finish(kit.facts(name))
    records = kit.by_id(attributor.advance(1.0, kit.reading(1.0, 400.0)))
    ratio = kit.model().price(steps[0]).total_j / kit.model().price(steps[1]).total_j
    assert records["a"].energy_j == pytest.approx(ratio * records["b"].energy_j)
    assert records["a"].energy_j + records["b"].energy_j == pytest.approx(400.0)


def test_a_step_still_running_is_not_taken_for_idle_time(kit):
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    attributor.on_step(kit.step(0.0, 0.9, kit.share("a", decode=1)))
    attributor.advance(1.0, kit.reading(1.0, 300.0))  # in the middle of the second step
    attributor.on_step(kit.step(0.9, 1.8, kit.share("a", decode=1)))
    attributor.advance(2.0, kit.reading(2.0, 600.0))
    settled = attributor.close(2.0, kit.reading(2.0, 600.0))
    assert sum(i.idle_j for i in settled.intervals) <= 100.0 * 0.2 + 60.0
    assert attributor.totals().active_j > 500.0


@pytest.mark.parametrize("metered", [False, True])
def test_a_step_handed_over_after_its_time_was_settled_is_still_paid(kit, metered):
    attributor = kit.attributor(metered=metered)
    for t in range(6):
        attributor.advance(float(t), kit.reading(float(t), 100.0 * t))
    attributor.on_step(kit.step(1.0, 2.0, kit.share("late", decode=1)))
    attributor.finish(kit.facts("late"))
    settled = kit.join(
        attributor.advance(8.0, kit.reading(6.0, 600.0)),
        attributor.close(8.0, kit.reading(8.0, 800.0)),
    )
    (record,) = settled.records
    assert record.energy_j > 0
    assert record.method == (kit.METER if metered else kit.MODEL)
    if metered:
        totals = attributor.totals()
        assert totals.active_j + totals.idle_j == pytest.approx(800.0)


def test_a_step_partly_before_the_horizon_gets_back_the_time_that_passed_for_idle(kit):
    attributor = kit.attributor()
    first = attributor.advance(5.2, None)  # settled up to 5.0
    attributor.on_step(kit.step(3.0, 7.0, kit.share("a", decode=1)))
    settled = kit.join(first, attributor.close(10.0, None))
    assert sum(i.idle_j for i in settled.intervals) == pytest.approx(100.0 * (10 - 4))


def test_without_steps_all_energy_is_idle(kit):
    """FIELD E8 and E10 in small: what nobody used is charged to nobody."""
    attributor = kit.attributor(metered=True)
    out = [attributor.advance(float(t), kit.reading(float(t), 70.0 * t)) for t in range(6)]
    out.append(attributor.close(5.0, kit.reading(5.0, 350.0)))
    settled = kit.join(*out)
    assert settled.records == ()
    assert sum(i.active_j for i in settled.intervals) == 0.0
    assert sum(i.idle_j for i in settled.intervals) == pytest.approx(350.0)
