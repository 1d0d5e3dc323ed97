"""What is learnt from the meter: idle power, and how far the step model is off."""

import pytest


def test_idle_power_is_learnt_from_time_without_steps(kit):
    """Modelled static power is 100 W; this device idles at 40 W, and steps get the rest."""
    attributor = kit.attributor(metered=True)
    for t in range(11):
        attributor.advance(float(t), kit.reading(float(t), 40.0 * t))
    attributor.on_step(kit.step(10.0, 10.5, kit.share("a", prefill=100)))
    attributor.finish(kit.facts("a"))
    attributor.advance(11.0, kit.reading(11.0, 400.0 + 20.0 + 150.0))
    (record,) = attributor.advance(12.5, kit.reading(12.5, 630.0)).records
    assert record.energy_j == pytest.approx(150.0, rel=0.05)


def test_one_tick_on_a_moment_without_steps_does_not_pass_for_idle_power(kit):
    """FIELD E12: a whole period's energy may show up within a millisecond."""
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    attributor.advance(0.001, kit.reading(0.001, 60.0))
    attributor.on_step(kit.step(0.001, 0.501, kit.share("a", prefill=1000)))
    attributor.finish(kit.facts("a"))
    attributor.advance(1.001, kit.reading(1.001, 300.0))
    (record,) = attributor.close(2.0, kit.reading(2.0, 400.0)).records
    assert record.energy_j > 100.0


def test_a_long_idle_time_does_not_drown_or_inflate_the_step_that_ends_it(kit):
    attributor = kit.attributor(metered=True)
    for t in range(11):
        attributor.advance(float(t), kit.reading(float(t), 100.0 * t))
    step = kit.step(3609.0, 3610.0, kit.share("a", prefill=1000))
    attributor.on_step(step)
    attributor.finish(kit.facts("a"))
    # The hour drew 97 W, not the 100 W learnt: 10.8 kJ less, a hundred times the step.
    (record,) = attributor.advance(3610.0, kit.reading(3610.0, 1000.0 + 97.0 * 3600.0)).records
    assert record.energy_j == pytest.approx(kit.model().price(step).total_j, rel=0.1)


def test_estimates_come_close_to_the_meter_once_it_was_seen(kit):
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    for t in range(20):
        step = kit.step(float(t), t + 1.0, kit.share("a", decode=1))
        priced = attributor.on_step(step)
        attributor.advance(t + 1.0, kit.reading(t + 1.0, 250.0 * (t + 1)))
    assert priced.energy_j == pytest.approx(250.0, rel=0.01)


def test_the_fitted_scale_is_bounded(kit):
    attributor = kit.attributor(metered=True)
    step = kit.step(0.0, 1.0, kit.share("a", decode=1))
    plain_j = attributor.on_step(step).energy_j
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    attributor.advance(1.0, kit.reading(1.0, 2000.0))
    assert attributor.on_step(kit.step(1.0, 2.0, kit.share("a", decode=1))).energy_j <= 5 * plain_j
