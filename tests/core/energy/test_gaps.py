"""A meter that fails leaves a gap that says so; no request is lost by it."""

import pytest


def test_a_lost_meter_is_a_gap_and_measuring_resumes(kit):
    """FIELD E17, E13: priced by the model meanwhile, and each value says how it came about."""
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    out = []
    for t in range(30):
        attributor.on_step(kit.step(float(t), t + 1.0, kit.share(f"r{t}", decode=1)))
        attributor.finish(kit.facts(f"r{t}", finished_s=t + 1.0))
        lost = 10 <= t < 22
        reading = None if lost else kit.reading(t + 1.0, 200.0 * (t + 1))
        out.append(attributor.advance(t + 1.0, reading))
    records = kit.by_id(kit.join(*out))
    assert records["r3"].method == kit.METER
    assert records["r15"].method == kit.GAP
    assert records["r29"].method == kit.METER
    assert records["r29"].energy_j == pytest.approx(200.0)
    assert records["r15"].energy_j == pytest.approx(200.0, rel=0.01)  # by the fitted model
    assert len(records) == 30
    assert attributor.totals().gaps == 1


def test_a_counter_reset_never_gives_negative_energy(kit):
    """FIELD E17: after a driver reload the counter starts again."""
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 9e6))
    attributor.on_step(kit.step(0.0, 1.0, kit.share("a", decode=1)))
    attributor.finish(kit.facts("a"))
    (record,) = attributor.advance(1.0, kit.reading(1.0, 12.0)).records
    assert record.method == kit.GAP
    assert record.energy_j > 0
    assert attributor.totals().gaps == 1


def test_implausible_power_is_rejected_and_counted(kit):
    """FIELD E11: an overflow of 9e14 J is a gap, not energy."""
    attributor = kit.attributor(metered=True, max_power_w=1000.0)
    attributor.advance(0.0, kit.reading(0.0, 0.0))
    attributor.on_step(kit.step(0.0, 1.0, kit.share("a", decode=1)))
    attributor.advance(1.0, kit.reading(1.0, 9e14))
    assert attributor.totals().gaps == 1
    assert attributor.totals().active_j < 1000.0


def test_a_request_across_a_gap_names_both_methods(kit):
    """FIELD E13: methods are recorded on each value, never mixed up."""
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, kit.reading(0.0, 500.0))
    out = []
    for t, counter_j in enumerate((700.0, 100.0)):
        attributor.on_step(kit.step(float(t), t + 1.0, kit.share("a", decode=1)))
        if t == 1:
            attributor.finish(kit.facts("a"))
        out.append(attributor.advance(t + 1.0, kit.reading(t + 1.0, counter_j)))
    everything = kit.join(*out)
    assert everything.records[0].method == f"{kit.METER}+{kit.GAP}"
    assert {i.method for i in everything.intervals} == {kit.METER, kit.GAP}


def test_no_request_stays_unsettled_at_close(kit):
    attributor = kit.attributor(metered=True)
    attributor.advance(0.0, None)
    attributor.on_step(kit.step(0.0, 1.0, kit.share("a", decode=1)))
    attributor.finish(kit.facts("a"))
    (record,) = attributor.close(1.0, None).records
    assert record.settled
    assert record.method == kit.MODEL
    assert record.energy_j > 0
    assert not attributor.pending
