"""What one request pays: its own steps, its part of a batch, shared idle time."""

import pytest

from green_core.config import EnergyConfig


def test_a_request_that_never_ran_costs_nothing(kit):
    for metered in (False, True):
        attributor = kit.attributor(metered=metered)
        answer = attributor.finish(kit.facts("held"))
        assert answer.energy_j == answer.carbon_g == 0.0
        assert answer.intensity_g_per_kwh == 400.0
        (record,) = attributor.advance(1.0, kit.reading(1.0, 0.0)).records
        assert record.settled
        assert record.energy_j == 0.0


def test_a_request_id_used_again_opens_a_new_account(kit):
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    for t, tokens in enumerate((10, 5000)):
        attributor.on_step(kit.step(t * 0.5, t * 0.5 + 0.5, kit.share("same", prefill=tokens)))
        attributor.finish(kit.facts("same"))
    first, second = attributor.advance(1.0, kit.reading(1.0, 300.0)).records
    assert first.energy_j < second.energy_j
    assert first.energy_j + second.energy_j == pytest.approx(300.0)


def test_a_cached_prompt_costs_less_than_a_cold_one_and_says_what_it_saved(kit):
    attributor = kit.attributor()
    attributor.on_step(kit.step(0, 0.2, kit.share("cold", prefill=2000)))
    cold = attributor.finish(kit.facts("cold"))
    attributor.on_step(kit.step(0.2, 0.22, kit.share("warm", prefill=100, context=2000)))
    warm = attributor.finish(kit.facts("warm", cached=1900))
    assert warm.energy_j < cold.energy_j
    assert 0 < warm.avoided_j < cold.energy_j
    assert cold.avoided_j == 0.0


def test_eight_together_cost_each_less_than_one_alone(kit):
    attributor = kit.attributor()
    attributor.on_step(kit.step(0, 0.010, kit.share("alone", decode=1, context=500)))
    alone = attributor.finish(kit.facts("alone"))
    shares = [kit.share(f"r{i}", decode=1, context=500) for i in range(8)]
    attributor.on_step(kit.step(0.010, 0.021, *shares))
    assert attributor.finish(kit.facts("r0")).energy_j < alone.energy_j / 4


def test_peek_leaves_the_account_open(kit):
    attributor = kit.attributor()
    attributor.on_step(kit.step(0, 1, kit.share("a", prefill=10)))
    half = attributor.peek(kit.facts("a"))
    attributor.on_step(kit.step(1, 2, kit.share("a", decode=1)))
    assert not half.settled
    assert 0 < half.energy_j < attributor.finish(kit.facts("a")).energy_j
    assert attributor.peek(kit.facts("nobody")).energy_j == 0.0


def test_prefill_and_decode_are_told_apart(kit):
    attributor = kit.attributor()
    attributor.on_step(kit.step(0, 1, kit.share("a", prefill=10)))
    only_prefill = attributor.peek(kit.facts("a"))
    attributor.on_step(kit.step(1, 2, kit.share("a", decode=1)))
    record = attributor.finish(kit.facts("a"))
    assert only_prefill.decode_j == 0.0
    assert record.prefill_j == pytest.approx(only_prefill.prefill_j)
    assert record.decode_j > 0


def test_shared_idle_goes_to_active_requests_by_active_time(kit):
    config = EnergyConfig(idle="shared")
    attributor = kit.attributor(config=config)
    attributor.on_step(kit.step(0.0, 3.0, kit.share("long", decode=1)))
    attributor.on_step(kit.step(3.0, 4.0, kit.share("short", decode=1)))
    answers = {name: attributor.finish(kit.facts(name)) for name in ("long", "short")}
    assert not any(answer.settled for answer in answers.values())
    settled = attributor.close(8.0, None)
    records = kit.by_id(settled)
    extra = {n: records[n].energy_j - answers[n].energy_j for n in records}
    assert extra["long"] == pytest.approx(300.0)  # 4 s at 100 W, three quarters of it
    assert extra["short"] == pytest.approx(100.0)
    assert sum(i.idle_j for i in settled.intervals) == 0.0
    assert records["long"].energy_j == pytest.approx(records["long"].parts.it_j)


def test_shared_idle_with_nobody_active_stays_idle(kit):
    attributor = kit.attributor(config=EnergyConfig(idle="shared"))
    settled = attributor.close(5.0, None)
    assert sum(i.idle_j for i in settled.intervals) == pytest.approx(500.0)
