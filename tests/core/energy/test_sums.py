"""The books balance: requests and idle add up to the counter, or to the model."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from green_core.config import EnergyConfig
from green_core.values import StepShare, StepView


def sums(settled):
    active = sum(i.active_j for i in settled.intervals)
    idle = sum(i.idle_j for i in settled.intervals)
    return sum(r.energy_j for r in settled.records), active, idle


@st.composite
def histories(draw):
    """Steps with pauses, requests that join and leave, and a counter read at odd times."""
    now_s, steps, live, names = 0.0, [], [], iter(range(10_000))
    for _ in range(draw(st.integers(1, 25))):
        now_s += draw(st.sampled_from([0.0, 0.0, 0.01, 0.4]))
        length_s = draw(st.sampled_from([0.0, 0.005, 0.07, 0.6]))
        while not live or (len(live) < 6 and draw(st.booleans())):
            live.append(f"r{next(names)}")
        shares = tuple(
            StepShare(name, draw(st.sampled_from([0, 100])), draw(st.integers(1, 2)), 300)
            for name in live
        )
        leavers = [name for name in live if draw(st.integers(0, 3)) == 0]
        live = [name for name in live if name not in leavers]
        steps.append((StepView(now_s, now_s + length_s, shares), leavers))
        now_s += length_s
    reads, at_s = [], 0.0
    while at_s < now_s:
        at_s += draw(st.sampled_from([0.03, 0.1, 0.5]))
        reads.append((at_s, draw(st.sampled_from([0.0, 20.0, 300.0])) * 0.1))
    return steps, reads


@settings(max_examples=100, deadline=None)
@given(history=histories(), idle=st.sampled_from(["apart", "shared"]))
def test_requests_and_idle_add_up_to_the_counter(kit, history, idle):
    steps, reads = history
    attributor = kit.attributor(
        metered=True, config=EnergyConfig(idle=idle, embodied_g_per_device=150_000.0)
    )
    counter_j, settled = 500.0, [attributor.advance(0.0, kit.reading(0.0, 500.0))]
    pending = list(steps)
    for at_s, delta_j in reads:
        while pending and pending[0][0].end_s <= at_s:
            step, leavers = pending.pop(0)
            attributor.on_step(step)
            for name in leavers:
                attributor.finish(kit.facts(name, finished_s=step.end_s))
        counter_j += delta_j
        settled.append(attributor.advance(at_s, kit.reading(at_s, counter_j)))
    for step, leavers in pending:
        attributor.on_step(step)
        for name in leavers:
            attributor.finish(kit.facts(name, finished_s=step.end_s))
    open_names = {s.request_id for step, _ in steps for s in step.shares}
    open_names -= {name for _, leavers in steps for name in leavers}
    for name in sorted(open_names):
        attributor.finish(kit.facts(name))
    end_s = max(reads[-1][0] if reads else 0.0, steps[-1][0].end_s)
    settled.append(attributor.close(end_s, kit.reading(end_s, counter_j)))
    everything = kit.join(*settled)
    requests_j, active_j, idle_j = sums(everything)
    measured_j = sum(i.active_j + i.idle_j for i in everything.intervals if i.method == kit.METER)
    moved_j = counter_j - 500.0
    assert measured_j == pytest.approx(moved_j, rel=1e-9, abs=1e-9)
    assert requests_j == pytest.approx(active_j, rel=1e-9, abs=1e-9)
    assert len(everything.records) == len({s.request_id for st_, _ in steps for s in st_.shares})
    totals = attributor.totals()
    assert (totals.active_j, totals.idle_j) == pytest.approx((active_j, idle_j))
    for record in everything.records:
        assert record.settled
        assert min(record.prefill_j, record.decode_j, record.operational_g) >= 0.0
        assert record.energy_j == pytest.approx(record.prefill_j + record.decode_j)
        assert record.energy_j == pytest.approx(record.parts.it_j)
    borders = [(i.start_s, i.end_s) for i in everything.intervals]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(borders))
    grams = sum(r.operational_g for r in everything.records)
    if idle == "apart":
        idle_g = sum(i.idle_j for i in everything.intervals) * 1.2 * 400 / 3.6e6
        assert grams + idle_g == pytest.approx(sum(i.operational_g for i in everything.intervals))


@settings(max_examples=60, deadline=None)
@given(history=histories())
def test_without_a_meter_requests_and_idle_add_up_to_the_model(kit, history):
    steps, _ = history
    attributor = kit.attributor()
    answers, out = {}, []
    for step, leavers in steps:
        attributor.on_step(step)
        for name in leavers:
            answers[name] = attributor.finish(kit.facts(name, finished_s=step.end_s))
        out.append(attributor.advance(step.end_s, None))
    end_s = steps[-1][0].end_s
    out.append(attributor.close(end_s, None))
    everything = kit.join(*out)
    modelled_j = sum(kit.model().price(step).total_j for step, _ in steps)
    busy_s = sum(step.duration_s for step, _ in steps)
    _, active_j, idle_j = sums(everything)
    assert active_j == pytest.approx(modelled_j)
    assert idle_j == pytest.approx(100.0 * (end_s - busy_s), abs=1e-6)
    assert kit.by_id(everything) == answers
    assert all(answer.settled for answer in answers.values())
