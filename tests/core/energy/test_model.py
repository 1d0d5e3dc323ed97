import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.energy.devices import DeviceModel
from green_core.energy.model import StepModel
from green_core.values import StepShare, StepView

SHARES = st.lists(
    st.builds(
        StepShare,
        request_id=st.uuids().map(str),
        prefill_tokens=st.integers(0, 8192),
        decode_tokens=st.integers(0, 8),
        context_tokens=st.integers(0, 100_000),
    ),
    max_size=40,
)


def total(cost):
    return sum(sum(cost.share_j(i)) for i in range(len(cost.compute_j)))


@given(shares=SHARES.filter(bool), start=st.floats(0, 2e9), length=st.floats(-10, 1e4))
def test_shares_of_a_step_add_up_to_the_step(kit, shares, start, length):
    """FIELD E9: a batched request is never charged for the whole device."""
    cost = kit.model().price(StepView(start, start + length, tuple(shares)))
    assert total(cost) == pytest.approx(cost.total_j, rel=1e-12)
    assert min(min(cost.share_j(i)) for i in range(len(shares))) >= 0.0


def test_totals_follow_the_three_constants(kit):
    share = StepShare("a", 3, 0, 10)
    cost = kit.model().price(StepView(0.0, 2.0, (share,)))
    attended = 8 + 9 + 10
    flops = 2 * 8e9 * 3 + 4 * 4096 * 32 * attended
    moved = 16e9 + 131_072 * (10 + 3)
    assert sum(cost.compute_j) == pytest.approx(1e-12 * flops)
    assert sum(cost.memory_j) == pytest.approx(1e-10 * moved)
    assert cost.static_j == pytest.approx(200.0)


def test_a_step_without_time_still_costs_its_work(kit):
    cost = kit.model().price(StepView(5.0, 5.0, (StepShare("a", 0, 1, 1),)))
    assert cost.static_j == 0.0
    assert cost.dynamic_j > 0.0


def test_a_step_without_shares_is_static_only(kit):
    cost = kit.model().price(StepView(0.0, 1.0, ()))
    assert (cost.dynamic_j, cost.static_j) == (0.0, 100.0)


def test_without_dynamic_constants_time_is_split_equally(kit):
    device = DeviceModel("x", 100.0, 0.0, 0.0, 700.0, "t", 2025, False)
    shares = (StepShare("a", 1000, 0, 1000), StepShare("b", 0, 1, 1))
    cost = StepModel(device, kit.engine).price(StepView(0.0, 1.0, shares))
    assert [sum(cost.share_j(i)) for i in (0, 1)] == pytest.approx([50.0, 50.0])


def test_decoding_costs_more_than_prefilling_the_same_tokens(kit):
    """Per token, decode is several times prefill: it reads the weights for every token."""
    model = kit.model()
    prefill = model.price(StepView(0, 0.1, (StepShare("a", 1000, 0, 1000),))).dynamic_j
    decode = sum(
        model.price(StepView(0, 0.01, (StepShare("a", 0, 1, 1 + i),))).dynamic_j
        for i in range(1000)
    )
    assert decode > 5 * prefill


def test_eight_together_cost_each_less_than_one_alone(kit):
    model = kit.model()
    alone = model.price(StepView(0, 0.010, (StepShare("a", 0, 1, 500),))).total_j
    eight = tuple(StepShare(f"r{i}", 0, 1, 500) for i in range(8))
    together = model.price(StepView(0, 0.011, eight))
    assert sum(together.share_j(0)) < alone / 4


def test_a_decode_beside_a_long_prefill_pays_less_than_alone_but_not_nothing(kit):
    model = kit.model()
    decode = StepShare("d", 0, 1, 500)
    alone = model.price(StepView(0, 0.01, (decode,))).dynamic_j
    mixed = model.price(StepView(0, 0.10, (StepShare("p", 2000, 0, 2000), decode)))
    assert alone / 3 < mixed.compute_j[1] + mixed.memory_j[1] < alone


def test_a_longer_context_costs_more(kit):
    model = kit.model()
    short, long = (
        model.price(StepView(0, 0.01, (StepShare("a", 0, 1, n),))).dynamic_j for n in (100, 10_000)
    )
    assert long > short


def test_avoided_prefill_is_at_most_what_the_prefill_would_cost(kit):
    model = kit.model()
    cold = model.price(StepView(0, 0.0, (StepShare("a", 1000, 0, 1000),))).dynamic_j
    assert 0 < model.prefill_j(1000) < cold
    assert model.prefill_j(0) == model.prefill_j(-5) == 0.0
