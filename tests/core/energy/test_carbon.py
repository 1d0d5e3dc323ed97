"""Grams follow the grid at the time of each step; embodied and cooling come on top."""

import pytest

from green_core.config import EnergyConfig


def test_carbon_is_priced_at_each_step_not_at_the_mean_of_the_day(kit):
    """A grid that is clean by day and dirty by night."""
    attributor = kit.attributor(intensity=lambda at_s: 50.0 if at_s < 43_200 else 800.0)
    attributor.on_step(kit.step(1000.0, 1001.0, kit.share("day", decode=1)))
    attributor.on_step(kit.step(80_000.0, 80_001.0, kit.share("night", decode=1)))
    attributor.on_step(kit.step(80_001.0, 80_002.0, kit.share("both", decode=1)))
    day, night = (attributor.finish(kit.facts(n)) for n in ("day", "night"))
    assert day.intensity_g_per_kwh == pytest.approx(50.0)
    assert night.intensity_g_per_kwh == pytest.approx(800.0)
    assert night.operational_g == pytest.approx(16 * day.operational_g)
    assert day.operational_g == pytest.approx(day.energy_j * 1.25 * 50.0 / 3.6e6)


def test_idle_carbon_follows_the_signal_through_a_long_idle_time(kit):
    attributor = kit.attributor(intensity=lambda at_s: 100.0 if at_s < 43_200 else 300.0)
    (interval,) = attributor.close(86_400.0, None).intervals
    assert interval.intensity_g_per_kwh == pytest.approx(200.0)
    assert interval.operational_g == pytest.approx(8_640_000 * 1.25 * 200 / 3.6e6)


def test_embodied_carbon_is_spread_over_the_lifetime(kit):
    """SCI v1.1: the device's embodied carbon times the time and share it was reserved for."""
    year_s = 365.25 * 86_400
    config = EnergyConfig(
        embodied_g_per_device=year_s * 4.0, lifetime_years=4.0, embodied_share=0.5
    )  # half a gram a second
    attributor = kit.attributor(config=config)
    attributor.on_step(kit.step(0.0, 2.0, kit.share("a", decode=1), kit.share("b", decode=1)))
    answers = [attributor.finish(kit.facts(n)) for n in "ab"]
    settled = attributor.close(10.0, None)
    assert [a.embodied_g for a in answers] == pytest.approx([0.5, 0.5])
    assert sum(i.embodied_g for i in settled.intervals) == pytest.approx(5.0)


def test_cooling_comes_on_top_of_the_parts(kit):
    attributor = kit.attributor()
    attributor.on_step(kit.step(0.0, 2.0, kit.share("a", decode=1)))
    record = attributor.finish(kit.facts("a"))
    assert record.parts.it_j == pytest.approx(record.energy_j)
    assert record.parts.cooling_j == pytest.approx(0.25 * record.energy_j)
