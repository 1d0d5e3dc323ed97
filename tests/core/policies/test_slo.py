"""Guarantees of the SLO batching policy, most of them in a simulated engine."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from green_core import (
    BatchPlan,
    ConfigError,
    GreenConfig,
    GridState,
    QueueView,
    StepShare,
    StepView,
)
from green_core.config import SloConfig
from green_core.policies.slo import SloBatching, SloPlan
from green_core.testing.builders import grid_view, queue_view

GRID = grid_view(valid_until_s=1e12)


def policy(itl_ms: float = 50.0, latency_ms: float = 500.0, **params) -> SloPlan:
    config = GreenConfig(slo=SloConfig(itl_ms=itl_ms, latency_ms=latency_ms))
    built = SloBatching().green_batch_policy(config, params)
    assert isinstance(built, SloPlan)
    return built


class Engine:
    """Decode steps of ``fixed_s + per_seq_s * batch``; requests queue without end.

    Requests end after ``length`` tokens, so a lowered limit takes effect as they finish.
    """

    def __init__(self, fixed_s, per_seq_s, *, max_running=256, per_prefill_s=1e-5, length=20):
        self.fixed_s, self.per_seq_s, self.per_prefill_s = fixed_s, per_seq_s, per_prefill_s
        self.max_running, self.length = max_running, length
        self.energy = lambda batch: 10.0 + 0.1 * batch
        self.now_s, self.left, self.preemptions = 1.7e9, [], 0
        self.last: StepView | None = None
        self.demand = 10_000
        self.plan = BatchPlan()

    def step(self, decide: SloPlan, prefill: int = 0) -> BatchPlan:
        self.plan = plan = decide(self.queue(), GRID)
        limit = min(self.max_running, plan.max_running or self.max_running, self.demand)
        self.left = [n - 1 for n in self.left if n > 1]
        # Lengths differ, so that requests do not all end in one step.
        while len(self.left) < limit:
            self.left.append(1 + (7 * len(self.left) + int(self.now_s * 1e3)) % self.length)
        batch = len(self.left)
        duration_s = self.fixed_s + self.per_seq_s * batch + self.per_prefill_s * prefill
        shares = [StepShare(str(i), 0, 1, 100) for i in range(batch)]
        if prefill:
            shares.append(StepShare("p", prefill, 0, prefill))
        self.last = StepView(self.now_s, self.now_s + duration_s, tuple(shares), self.energy(batch))
        self.now_s += duration_s
        return plan

    def queue(self) -> QueueView:
        return queue_view(
            now_s=self.now_s,
            running=len(self.left),
            waiting=max(0, self.demand - len(self.left)),
            engine_max_running=self.max_running,
            engine_max_tokens=2048,
            kv_usage=0.5,
            preemptions=self.preemptions,
            last_step=self.last,
        )


def ramp(engine: Engine, decide: SloPlan, sizes=(1, 2, 4, 8, 16)) -> None:
    """Load that rises as at the start of a server, without a queue."""
    for demand in sizes:
        engine.demand = demand
        for _ in range(12):
            engine.step(decide)


def held_limit(engine: Engine, decide: SloPlan, steps: int = 600) -> int:
    """The limit in force after a long time with exactly that many requests and no queue."""
    for _ in range(steps):
        engine.demand = engine.plan.max_running or engine.max_running
        plan = engine.step(decide)
    return plan.max_running or engine.max_running


@settings(max_examples=25, deadline=None)
@given(
    fixed_ms=st.floats(2.0, 30.0),
    per_seq_ms=st.floats(0.05, 2.0),
    headroom=st.sampled_from([0.8, 0.9, 1.0]),
)
def test_it_finds_the_biggest_batch_that_keeps_itl(fixed_ms, per_seq_ms, headroom):
    engine = Engine(fixed_ms / 1e3, per_seq_ms / 1e3)
    decide = policy(itl_ms=50.0, headroom=headroom)
    ramp(engine, decide)
    best = min(256, int((50.0 * headroom - fixed_ms) / per_seq_ms))
    assert abs(held_limit(engine, decide) - best) <= 1


@pytest.mark.parametrize("start", [64, 200])
def test_it_finds_it_also_when_it_starts_in_a_full_queue(start):
    engine = Engine(0.010, 0.0005, max_running=start)
    decide = policy(itl_ms=30.0, latency_ms=1e9)
    for _ in range(1500):
        plan = engine.step(decide)
    assert plan.max_running is not None
    assert abs(plan.max_running - (27 - 10) / 0.5) <= 1


def test_it_follows_when_steps_become_slower():
    engine = Engine(0.010, 0.0002)
    decide = policy(itl_ms=50.0)
    ramp(engine, decide)
    assert held_limit(engine, decide) == 175
    engine.per_seq_s = 0.0004
    assert held_limit(engine, decide, steps=3000) <= 0.040 / 0.0004


def test_a_limit_that_load_made_necessary_is_lifted_when_steps_become_faster():
    engine = Engine(0.010, 0.0010)
    decide = policy(itl_ms=50.0)
    ramp(engine, decide)
    assert held_limit(engine, decide) == 35
    engine.per_seq_s = 0.0001
    assert held_limit(engine, decide, steps=8000) > 100


def test_less_carbon_wins_over_size_when_big_batches_cost_more_energy():
    engine = Engine(0.010, 0.0001)
    # Joules per token fall up to a batch of 32 and rise steeply beyond.
    engine.energy = lambda batch: 10 + 0.1 * batch + (0.5 * (batch - 32) ** 2 if batch > 32 else 0)
    decide = policy(itl_ms=50.0)
    ramp(engine, decide, sizes=(1, 2, 4, 8, 16, 24, 32, 40, 50, 64, 100, 128))
    assert 24 <= held_limit(engine, decide) <= 50


def test_nothing_is_limited_before_anything_is_known():
    engine = Engine(0.100, 0.010)
    decide = policy(itl_ms=20.0, warmup_steps=50)
    for _ in range(50):
        assert engine.step(decide) == BatchPlan(reason="learning")


def test_an_objective_that_no_batch_keeps_limits_nothing():
    """Small batches would cost joules and still be too slow."""
    engine = Engine(0.200, 0.010)
    decide = policy(itl_ms=50.0)
    ramp(engine, decide)
    assert held_limit(engine, decide) == engine.max_running


def test_only_big_batches_seen_and_all_too_slow_leads_to_a_smaller_try():
    engine = Engine(0.010, 0.001, max_running=200)
    decide = policy(itl_ms=25.0)
    for _ in range(2000):
        plan = engine.step(decide)
    assert plan.max_running is not None
    assert plan.max_running <= 15


def test_preemptions_make_it_back_off_and_it_recovers():
    """FIELD P19."""
    engine = Engine(0.005, 0.0001)
    decide = policy(itl_ms=50.0)
    engine.demand = 100
    for _ in range(60):
        engine.step(decide)
    engine.preemptions = 3
    plan = engine.step(decide)
    assert plan.max_running == 90
    assert "preemption" in plan.reason
    later = [engine.step(decide).max_running for _ in range(16 * 10)]
    assert later[-1] == 100
    assert held_limit(engine, decide, steps=16 * 200) == 256


def test_headroom_is_given_up_while_requests_wait_longer_than_the_ttft_objective():
    engine = Engine(0.010, 0.0005)
    decide = policy(itl_ms=50.0, latency_ms=500.0)
    ramp(engine, decide)
    calm = held_limit(engine, decide)
    engine.demand = 10_000
    limits = {engine.step(decide).max_running for _ in range(200)}
    assert calm == 70
    assert limits == {70, 80}


def test_a_prefill_chunk_leaves_the_itl_of_those_that_decode():
    engine = Engine(0.010, 0.0005, per_prefill_s=5e-5)
    decide = policy(itl_ms=50.0, headroom=1.0, latency_ms=60_000.0)
    ramp(engine, decide)
    engine.demand = 20
    for n in range(200):
        plan = engine.step(decide, prefill=800 if n % 4 == 0 else 0)
    # 50 ms - (10 ms + 20 * 0.5 ms) leaves 30 ms: 600 tokens, and 20 for those that decode.
    assert plan.max_tokens == pytest.approx(620, abs=30)


def test_prefill_room_never_falls_below_its_floor_nor_below_what_ttft_needs():
    engine = Engine(0.040, 0.001, per_prefill_s=1e-3)
    decide = policy(itl_ms=50.0, latency_ms=1e9, min_prefill_tokens=64)
    ramp(engine, decide, sizes=(1, 2, 4, 8, 16))
    for _ in range(50):
        plan = engine.step(decide, prefill=1000)
    assert plan.max_tokens == len(engine.left) + 64
    hurried = policy(itl_ms=50.0, latency_ms=250.0, headroom=1.0)
    engine = Engine(0.040, 0.001, per_prefill_s=1e-3)
    ramp(engine, hurried)
    for _ in range(50):
        plan = engine.step(hurried, prefill=1000)
    # A prompt of 1000 tokens within 250 ms needs 1000 * 50 / 250 tokens in each 50 ms step.
    assert plan.max_tokens == len(engine.left) + 200


def test_prefill_is_not_bounded_when_nobody_decodes():
    engine = Engine(0.040, 0.001, per_prefill_s=1e-3)
    decide = policy()
    ramp(engine, decide)
    for _ in range(20):
        engine.step(decide, prefill=1000)
    engine.left = []
    assert decide(engine.queue(), GRID).max_tokens is None


def test_slack_by_grid_state_moves_the_limit_that_way():
    engine = Engine(0.010, 0.0005)
    decide = policy(itl_ms=50.0, itl_slack={"dirty": 1.2})
    ramp(engine, decide)
    dirty = held_limit(engine, decide)
    clean = decide(engine.queue(), msgspec.structs.replace(GRID, state=GridState.CLEAN))
    assert (clean.max_running, dirty) == (70, 88)


def test_speculative_tokens_count_towards_itl():
    plain, speculative = policy(itl_ms=50.0), policy(itl_ms=50.0)
    limits = []
    for decide, tokens in ((plain, 1), (speculative, 2)):
        now_s, plan = 1.7e9, BatchPlan()
        for n in range(400):
            batch = 1 + n % 60
            end_s = now_s + 0.010 + 0.001 * batch
            shares = tuple(StepShare(str(i), 0, tokens, 9) for i in range(batch))
            step = StepView(now_s, end_s, shares)
            now_s = end_s
            view = queue_view(now_s=now_s, running=batch, last_step=step)
            plan = decide(view, GRID)
        limits.append(plan.max_running)
    assert limits == [35, 80]


def test_a_step_is_learned_once_however_often_it_is_shown():
    engine = Engine(0.010, 0.0005)
    decide = policy(warmup_steps=10)
    engine.step(decide)
    for _ in range(100):
        plan = decide(engine.queue(), GRID)
    assert plan.reason == "learning"


shares = st.builds(
    StepShare,
    request_id=st.text(max_size=3),
    prefill_tokens=st.integers(0, 3000),
    decode_tokens=st.integers(0, 5),
    context_tokens=st.integers(0, 10_000),
)
steps = st.builds(
    lambda start_s, length_s, shares, energy_j: StepView(
        start_s, start_s + length_s, tuple(shares), energy_j
    ),
    st.floats(0, 1e6),
    st.floats(0, 10),
    st.lists(shares, max_size=12),
    st.floats(0, 1e4),
)
queues = st.builds(
    QueueView,
    now_s=st.floats(0, 1e6),
    running=st.integers(0, 300),
    waiting=st.integers(0, 300),
    held=st.integers(0, 10),
    engine_max_running=st.sampled_from([1, 2, 7, 64, 256, 5000, 10**6]),
    engine_max_tokens=st.integers(1, 20_000),
    kv_usage=st.floats(0, 1),
    preemptions=st.integers(0, 5),
    last_step=st.none() | steps,
)


@given(views=st.lists(queues, max_size=60), warmup=st.sampled_from([1, 5]))
def test_every_plan_lets_work_go_on_within_the_engines_limits(views, warmup):
    """FIELD P9, P22: never nothing, never more than the engine's own."""
    one, two = (policy(warmup_steps=warmup, min_running=3) for _ in range(2))
    for view in views:
        plan = one(view, GRID)
        assert plan == two(view, GRID)  # the same views, the same plans
        least = min(3, view.engine_max_running)
        assert plan.max_running is None or least <= plan.max_running < view.engine_max_running
        if plan.max_tokens is not None:
            assert view.running + 64 <= plan.max_tokens < view.engine_max_tokens


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"min_running": 0}, "min_running"),
        ({"headroom": 1.5}, "headroom"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"smoothing": float("nan")}, "smoothing"),
        ({"itl_slack": {"dirty": 0.0}}, "itl_slack.dirty"),
        ({"itl_slack": {"filthy": 1.0}}, "itl_slack.filthy"),
        ({"min_runing": 2}, "min_runing.*min_running"),
    ],
)
def test_bad_parameters_are_refused_with_their_path(params, path):
    with pytest.raises(ConfigError, match=f"policies.slo.{path}"):
        policy(**params)


def test_uneven_steps_keep_the_objective_for_the_share_that_is_asked_for():
    spread = random.Random(7)
    engine = Engine(0.010, 0.0005)
    decide = policy(itl_ms=50.0, headroom=1.0, latency_ms=1e9)
    ramp(engine, decide)
    missed = 0
    for n in range(4000):
        factor = spread.lognormvariate(0.0, 0.06)
        engine.fixed_s, engine.per_seq_s = 0.010 * factor, 0.0005 * factor
        engine.demand = engine.plan.max_running or engine.max_running
        engine.step(decide)
        missed += n >= 500 and engine.last.duration_s > 0.050
    assert 0 < missed / 3500 < 0.03
    assert engine.plan.max_running > 60
