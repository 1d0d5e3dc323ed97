"""Traps in what the engine was configured to do: one true, one false, one with too little to go by.

The healthy server of ``green_core.testing.status`` is every trap's first true negative.
"""

import pytest

from green_core.doctor.facts import Finding, NotChecked
from green_core.doctor.traps import TRAPS, look
from green_core.testing.builders import engine_info, grid_view
from green_core.testing.status import (
    cpu_status,
    engine_facts,
    host_facts,
    load_facts,
    signal_facts,
    start_facts,
    status,
)

H100 = "NVIDIA H100 80GB HBM3"
KWH_J = 3.6e6


def find(trap, now, earlier=None):
    return TRAPS[trap](now, earlier)


def engine(**changes):
    """The engine on the H100 with other sizes or names."""
    return engine_info(device=H100, **changes)


@pytest.mark.parametrize("server", [status(), cpu_status()], ids=["gpu", "cpu"])
def test_a_healthy_server_has_no_trap_and_only_what_needs_two_looks_is_unchecked(server):
    findings, not_checked = look(server)
    assert findings == ()
    assert [each.trap for each in not_checked] == ["idle_spin"]


def test_findings_come_with_the_costliest_first_and_each_names_its_trap():
    server = status(
        engine=engine_facts(prefix_caching=False, weights_dtype="float32"),
        load=load_facts(repeated_tokens=300_000, cached_tokens=0),
    )
    findings, _ = look(server)
    assert {found.trap for found in findings} == {"prefix_cache", "fp32"}
    costs = [found.energy_j_per_day for found in findings]
    assert costs == sorted(costs, reverse=True)


# --- prefix cache ---------------------------------------------------------------------------

REPEATING = load_facts(repeated_tokens=200_000, cached_tokens=0)


def test_a_prefix_cache_that_is_off_while_prompts_repeat_is_found_with_its_cost():
    """Half of the prompt tokens repeat: half of the prefill energy, 24 hours of it."""
    found = find(
        "prefix_cache",
        status(
            engine=engine_facts(prefix_caching=False),
            load=REPEATING,
            signal=signal_facts(view=grid_view(300.0)),
            settings={"energy.pue": 1.5},
        ),
    )
    assert isinstance(found, Finding)
    assert "50% of 400000 prompt tokens" in found.evidence
    assert "--enable-prefix-caching" in found.remedy
    assert found.energy_j_per_day == pytest.approx(24 * 50_000.0)
    assert found.carbon_g_per_day == pytest.approx(24 * 50_000 / KWH_J * 1.5 * 300)


def test_a_prefix_cache_that_is_on_and_does_not_hit_what_repeats_is_found():
    found = find("prefix_cache", status(load=REPEATING))
    assert "hardly used" in found.title
    assert "cache_salt" in found.remedy


def test_only_what_the_cache_left_over_counts_as_its_cost():
    """A tenth was cached; of the nine tenths that were paid for, four repeat."""
    found = find(
        "prefix_cache", status(load=load_facts(repeated_tokens=200_000, cached_tokens=40_000))
    )
    assert found.energy_j_per_day == pytest.approx(24 * 100_000 * 4 / 9)


def test_a_prefix_cache_that_is_off_where_nothing_repeats_is_no_trap():
    off = engine_facts(prefix_caching=False)
    assert find("prefix_cache", status(engine=off)) is None


def test_a_prefix_cache_that_serves_most_of_what_repeats_is_no_trap():
    used = load_facts(repeated_tokens=200_000, cached_tokens=150_000)
    assert find("prefix_cache", status(load=used)) is None


@pytest.mark.parametrize("few", [{"requests": 19}, {"sampled_tokens": 999, "repeated_tokens": 999}])
def test_few_prompts_say_nothing_about_the_prefix_cache(few):
    server = status(
        engine=engine_facts(prefix_caching=False),
        load=load_facts(**{"repeated_tokens": 200_000, **few}),
    )
    assert isinstance(find("prefix_cache", server), NotChecked)


def test_an_engine_that_does_not_tell_of_its_prefix_cache_is_not_judged():
    server = status(engine=engine_facts(prefix_caching=None), load=REPEATING)
    assert isinstance(find("prefix_cache", server), NotChecked)


def test_another_engine_gets_a_remedy_without_the_flags_of_vllm():
    facts = engine_facts(prefix_caching=False, info=engine(engine="other"))
    assert "--" not in find("prefix_cache", status(engine=facts, load=REPEATING)).remedy


# --- float32 --------------------------------------------------------------------------------

FP32 = engine_facts(weights_dtype="float32", kv_dtype="float32")


def on_cpu(*flags, **changes):
    facts = engine_facts(weights_dtype="float32", capture_sizes=(), **changes)
    return cpu_status(
        engine=engine_facts(
            info=engine_info(device="cpu"), weights_dtype=facts.weights_dtype, capture_sizes=()
        ),
        host=host_facts(cpu_flags=flags),
    )


def test_float32_weights_on_a_gpu_are_found_with_half_of_the_weight_reads_as_cost():
    """50000 steps an hour over 16 GB at 0.18 nJ a byte, capped by what was spent at all."""
    found = find("fp32", status(engine=FP32))
    assert "float32 weights" in found.title
    assert "--dtype bfloat16" in found.remedy
    assert found.energy_j_per_day == pytest.approx(24 * 0.5 * 50_000 * 16e9 * 1.83e-10, rel=0.02)


def test_the_cost_of_weight_reads_is_never_more_than_what_was_spent():
    found = find("fp32", status(engine=FP32, load=load_facts(active_j=1_000.0)))
    assert found.energy_j_per_day == pytest.approx(24 * 500.0)


@pytest.mark.parametrize("flag", ["avx512_bf16", "amx_bf16", "bf16"])
def test_float32_on_a_cpu_that_multiplies_bfloat16_is_found(flag):
    assert flag in find("fp32", on_cpu("avx2", flag)).evidence


def test_float32_on_a_cpu_with_avx2_alone_is_right_and_no_trap():
    assert find("fp32", on_cpu("avx2")) is None


def test_float32_inputs_to_quantized_weights_are_told_from_float32_weights():
    facts = engine_facts(weights_dtype="float32", info=engine(quantization="awq"))
    found = find("fp32", status(engine=facts))
    assert "float32 inputs" in found.title
    assert found.energy_j_per_day is None


def test_a_float32_cache_beside_narrow_weights_is_found():
    found = find("fp32", status(engine=engine_facts(kv_dtype="torch.float32")))
    assert "float32 KV cache" in found.title
    assert "--kv-cache-dtype" in found.remedy


@pytest.mark.parametrize(
    "server",
    [
        status(engine=engine_facts(weights_dtype="")),
        status(engine=engine_facts(weights_dtype="float32", info=engine_info())),
        on_cpu(),
    ],
    ids=["no dtype", "no device", "no CPU features"],
)
def test_float32_is_not_judged_without_type_device_and_features(server):
    assert isinstance(find("fp32", server), NotChecked)


def test_an_unknown_accelerator_gets_no_figure_instead_of_a_guess():
    facts = engine_facts(weights_dtype="float32", info=engine_info(device="Acme NPU 9"))
    found = find("fp32", status(engine=facts))
    assert found.energy_j_per_day is found.carbon_g_per_day is None
    assert "cannot be told" in found.estimate


# --- batches --------------------------------------------------------------------------------


def test_steps_padded_far_beyond_what_runs_are_found():
    light = status(engine=engine_facts(capture_sizes=(128, 256)), load=load_facts(mean_running=3.0))
    found = find("padded_batch", light)
    assert "3.0 requests run on average" in found.evidence
    assert "is 128" in found.evidence
    assert "--cudagraph-capture-sizes" in found.remedy
    assert found.energy_j_per_day == pytest.approx(24 * 50_000 * 125 * 2 * 8e9 * 1.4e-12, rel=0.02)


@pytest.mark.parametrize(
    ("sizes", "mean_running"),
    [((128, 256), 100.0), ((8, 16, 256), 1.0), ((), 1.0), ((1, 2), 40.0)],
    ids=["heavy load", "few empty rows", "not padded", "beyond all sizes"],
)
def test_a_batch_near_its_captured_size_is_no_trap(sizes, mean_running):
    server = status(
        engine=engine_facts(capture_sizes=sizes), load=load_facts(mean_running=mean_running)
    )
    assert find("padded_batch", server) is None


def test_padding_is_not_judged_by_a_handful_of_steps():
    server = status(
        engine=engine_facts(capture_sizes=(256,)), load=load_facts(mean_running=1.0, steps=199)
    )
    assert isinstance(find("padded_batch", server), NotChecked)


def full(limit=8, ratio=0.9, **changes):
    return status(
        engine=engine_facts(info=engine(max_running=limit)),
        load=load_facts(full_s=1_800 * ratio, waiting=5, **changes),
    )


def test_a_batch_held_small_while_requests_wait_is_found():
    found = find("small_batch", full())
    assert "for 90% of 1800 s" in found.evidence
    assert "because 8 were running" in found.evidence
    assert "--max-num-seqs" in found.remedy
    assert found.energy_j_per_day == pytest.approx(
        24 * 0.9 / 2 * 50_000 * 16e9 * 1.83e-10, rel=0.02
    )


@pytest.mark.parametrize(
    "server",
    [full(ratio=0.4), full(limit=256), full(steps=500)],
    ids=["seldom full", "as large as pays", "weights hardly matter"],
)
def test_a_limit_that_is_seldom_met_or_costs_nothing_is_no_trap(server):
    assert find("small_batch", server) is None


@pytest.mark.parametrize("few", [{"requests": 19}, {"busy_s": 9.0}])
def test_a_small_batch_is_not_judged_by_a_few_requests(few):
    assert isinstance(find("small_batch", full(**few)), NotChecked)


# --- waiting --------------------------------------------------------------------------------


def test_holds_for_company_that_does_not_come_are_found_and_cost_time_not_energy():
    found = find(
        "futile_wait", status(load=load_facts(company_holds=100, company_s=20.0, company_gained=9))
    )
    assert "100 requests were held 20.0 s in all, and 9 others came" in found.evidence
    assert "batch_window_s" in found.remedy
    assert found.energy_j_per_day is None
    assert "0.1 h of waiting a day" in found.estimate


def test_holds_that_bring_company_are_no_trap():
    server = status(load=load_facts(company_holds=100, company_s=20.0, company_gained=10))
    assert find("futile_wait", server) is None


def test_a_few_holds_are_not_judged():
    server = status(load=load_facts(company_holds=19, company_s=4.0))
    assert isinstance(find("futile_wait", server), NotChecked)


def test_an_engine_that_waits_and_serves_one_at_a_time_is_found():
    server = status(engine=engine_facts(batch_wait_s=0.05), load=load_facts(mean_running=1.05))
    found = find("futile_wait", server)
    assert "up to 50 ms" in found.evidence
    assert "0.3 h of waiting a day" in found.estimate


def test_an_engine_that_waits_and_fills_its_batch_is_no_trap():
    assert find("futile_wait", status(engine=engine_facts(batch_wait_s=0.05))) is None


def test_an_engine_that_waits_is_not_judged_by_a_few_requests():
    server = status(
        engine=engine_facts(batch_wait_s=0.05), load=load_facts(mean_running=1.0, requests=19)
    )
    assert isinstance(find("futile_wait", server), NotChecked)


# --- compile cache --------------------------------------------------------------------------


def starts(count, **changes):
    return tuple(start_facts(3600.0 * ago, **changes) for ago in range(1, count + 1))


def test_a_compile_cache_that_is_off_is_found_even_before_the_next_start():
    found = find("compile_cache", status(engine=engine_facts(compile_cache=False)))
    assert "not kept" in found.title
    assert "VLLM_DISABLE_COMPILE_CACHE" in found.remedy
    assert found.energy_j_per_day is None
    assert "next start" in found.estimate


def test_long_compiling_at_each_start_is_found_with_all_but_one_as_waste():
    found = find("compile_cache", status(starts=starts(3, compile_s=60.0)))
    assert "3 of 3 start(s)" in found.evidence
    assert "/cache/compiled" in found.evidence
    assert found.energy_j_per_day == pytest.approx(2 * 60.0 * 100.0)


def test_one_long_start_and_quick_ones_after_it_are_how_a_cache_works():
    kept = (start_facts(9000.0, compile_s=60.0), *starts(2, compile_s=8.0))
    assert find("compile_cache", status(starts=kept)) is None


def test_replicas_that_compile_side_by_side_are_no_trap():
    replicas = starts(3, compile_s=60.0, is_running=True)
    assert find("compile_cache", status(starts=replicas)) is None


def test_an_engine_that_does_not_compile_has_no_compile_cache_to_lose():
    server = status(
        engine=engine_facts(compiles=False, compile_cache=None), starts=starts(3, compile_s=60.0)
    )
    assert find("compile_cache", server) is None


@pytest.mark.parametrize("unknown", [{"compiles": None}, {"compile_cache": None}])
def test_a_compile_cache_is_not_judged_without_its_state_or_a_compile_time(unknown):
    server = status(engine=engine_facts(**unknown), starts=(start_facts(compile_s=None),))
    assert isinstance(find("compile_cache", server), NotChecked)
