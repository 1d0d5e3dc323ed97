"""Guarantees of the metrics within the engine's process."""

import math
import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from green_core.export.catalogue import CATALOGUE
from green_core.export.collector import GreenCollector
from green_core.export.prometheus import OTHER_TENANTS, EngineMetrics
from green_core.export.text import LABEL_MAX_CHARS, label_value
from green_core.testing.builders import interval_record
from green_core.values import EarlyStop, Settled

REQUEST_J = "greenserve_request_energy_joules_total"


def samples(metrics, name):
    """``{label values apart from the engine: value}`` of one series name."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if sample.name == name:
                labels = dict(sample.labels)
                assert labels.pop("engine") == "0"
                key = frozenset(labels.items())
                assert key not in found, "a series is shown twice"
                found[key] = sample.value
    return found


def one(metrics, name, **labels):
    return samples(metrics, name)[frozenset(labels.items())]


@pytest.fixture
def metrics(engine):
    return EngineMetrics(engine, max_tenants=3, profile="measure", method="estimated")


def test_names_follow_the_conventions():
    families = set()
    for spec in CATALOGUE.values():
        assert re.fullmatch(r"(greenserve|llm_serving)_[a-z_]+", spec.name)
        assert (spec.kind == "counter") == spec.name.endswith("_total"), spec.name
        assert (spec.kind == "histogram") == bool(spec.buckets), spec.name
        assert list(spec.buckets) == sorted(spec.buckets)
        assert "engine" not in spec.labels, "every series has that label already"
        families.add(spec.name.removesuffix("_total"))
    # OpenMetrics names a counter without its suffix: it must not meet another family there.
    assert len(families) == len(CATALOGUE)


def test_an_unknown_name_or_label_is_refused(metrics):
    with pytest.raises(KeyError):
        metrics.add("greenserve_typo_total")
    with pytest.raises(ValueError, match="labels"):
        metrics.add("greenserve_holds_released_total")
    with pytest.raises(ValueError, match="labels"):
        metrics.add("greenserve_holds_released_total", cause="x")
    with pytest.raises(ValueError, match="is a gauge"):
        metrics.add("greenserve_held_requests")


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_counter_never_falls(metrics, value):
    with pytest.raises(ValueError, match="counter"):
        metrics.add("greenserve_meter_gaps_total", value)


def test_settled_energy_adds_up_whichever_way_it_is_cut(metrics, make_record):
    """FIELD E9: parts, phases and tenants each give all of the energy once."""
    records = (make_record(7.0, tenant="a"), make_record(11.0, tenant="b", urgency="flex"))
    metrics.settled(Settled(records, (interval_record(18.0, 5.0),)))
    parts = samples(metrics, "greenserve_energy_joules_total")
    phases = samples(metrics, "greenserve_phase_energy_joules_total")
    tenants = samples(metrics, REQUEST_J)
    idle_j = one(metrics, "greenserve_idle_energy_joules_total")
    active_j = one(metrics, "greenserve_active_energy_joules_total")
    assert sum(parts.values()) == pytest.approx(23.0)
    assert sum(phases.values()) == pytest.approx(23.0)
    assert sum(tenants.values()) + idle_j == pytest.approx(23.0)
    assert active_j + idle_j == pytest.approx(23.0)


def test_requests_are_counted_with_their_tokens_and_grams(metrics, make_record):
    metrics.settled(Settled((make_record(), make_record(finish_reason="length"))))
    reason = {"tenant": "acme", "urgency": "standard"}
    assert one(metrics, "greenserve_requests_total", finish_reason="length", **reason) == 1
    assert one(metrics, "greenserve_tokens_total", phase="prefill") == 120
    assert one(metrics, "greenserve_tokens_total", phase="cached") == 80
    assert one(metrics, "greenserve_tokens_total", phase="decode") == 40
    carbon = one(metrics, "greenserve_request_carbon_grams_total", kind="average", **reason)
    assert carbon == pytest.approx(0.01)
    assert one(metrics, "greenserve_avoided_prefill_joules_total") == 3.0
    assert one(metrics, "greenserve_cooling_energy_joules_total") == pytest.approx(4.0)


def test_idle_carbon_is_the_share_by_energy(metrics):
    metrics.settled(Settled(intervals=(interval_record(15.0, 5.0),)))
    assert one(metrics, "greenserve_idle_carbon_grams_total") == pytest.approx(0.0075 / 4)


def test_rounding_below_zero_is_no_fall(metrics):
    metrics.settled(Settled(intervals=(interval_record(0.0, -1e-12),)))
    assert one(metrics, "greenserve_idle_energy_joules_total") == 0.0


def test_a_histogram_counts_each_observation_once(metrics):
    for seconds in (1e-5, 3e-5, 10.0):
        metrics.observe("greenserve_step_overhead_seconds", seconds)
    buckets = samples(metrics, "greenserve_step_overhead_seconds_bucket")
    by_bound = {float(dict(key)["le"]): count for key, count in buckets.items()}
    assert by_bound[1e-5] == 1  # a bound belongs to its bucket
    assert by_bound[5e-5] == by_bound[5e-2] == 2
    assert by_bound[math.inf] == one(metrics, "greenserve_step_overhead_seconds_count") == 3
    assert one(metrics, "greenserve_step_overhead_seconds_sum") == pytest.approx(10.00004)


def test_only_the_signal_in_use_is_shown(metrics):
    name = "greenserve_carbon_intensity_grams_per_kwh"
    for source in ("file", "static"):
        metrics.set(name, 250.0, zone="DE", kind="average", basis="direct", source=source)
    (labels,) = samples(metrics, name)
    assert ("source", "static") in labels


def test_info_follows_a_changed_config(metrics):
    metrics.describe(profile="carbon", method="measured:nvml-counter")
    (labels,) = samples(metrics, "greenserve_info")
    assert {("profile", "carbon"), ("engine_name", "vllm"), ("device", "NVIDIA H100")} <= labels


def test_the_energy_of_a_token_comes_from_the_totals(metrics):
    class Totals:
        active_j, prefill_tokens, decode_tokens, gaps = 30.0, 50, 10, 2

    metrics.totals(Totals())
    labels = {"model": "org/model-8b", "quantization": "fp8", "backend": "vllm"}
    assert one(metrics, "llm_serving_energy_joules_per_token", **labels) == 0.5
    assert one(metrics, "greenserve_meter_gaps_total") == 2


def test_shadow_reports_are_shown_as_they_stand(metrics):
    class Report:
        calls, differing, saving_ratio = 10, 4, 0.2

    metrics.shadow("admission", Report())
    metrics.shadow("admission", Report())
    assert one(metrics, "greenserve_shadow_decisions_total", family="admission") == 10
    assert one(metrics, "greenserve_shadow_differing_total", family="admission") == 4
    assert one(metrics, "greenserve_shadow_saving_ratio", family="admission") == 0.2


def test_tenants_are_bounded_and_none_is_lost(metrics, make_record):
    records = tuple(make_record(1.0, tenant=f"tenant-{i}") for i in range(50))
    metrics.settled(Settled(records))
    series = {dict(key)["tenant"]: value for key, value in samples(metrics, REQUEST_J).items()}
    assert series == {"tenant-0": 1.0, "tenant-1": 1.0, "tenant-2": 1.0, OTHER_TENANTS: 47.0}


def test_a_tenant_has_one_label_in_all_metrics(metrics, make_record):
    metrics.settled(Settled(tuple(make_record(tenant=t) for t in "abcde")))
    metrics.settled(Settled((make_record(tenant="a"), make_record(tenant="e"))))
    for name in (REQUEST_J, "greenserve_requests_total", "greenserve_request_carbon_grams_total"):
        assert {dict(key)["tenant"] for key in samples(metrics, name)} == {"a", "b", "c", "other"}


def scrape(metrics, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("run")
    metrics.publish(run_dir)
    registry = CollectorRegistry()
    registry.register(GreenCollector(run_dir))
    return registry


HOSTILE = [
    '"} 1\ngreenserve_fake_total 9',
    "\\",
    "\\n",
    'a"b\\',
    "\r",
    "\x85\u2028",
    "{}",
    ",=",
    "#",
]


@pytest.mark.parametrize("tenant", [*HOSTILE, " spaced ", "", "\udce9", "\0", "other"])
def test_hostile_tenants_reach_the_scrape_as_text(engine, make_record, tmp_path_factory, tenant):
    metrics = EngineMetrics(engine, max_tenants=10)
    metrics.settled(Settled((make_record(4.0, tenant=tenant), make_record(2.0, tenant="calm"))))
    registry = scrape(metrics, tmp_path_factory)
    found = {
        sample.labels["tenant"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == REQUEST_J
    }
    assert found == {tenant.encode("utf-8", "replace").decode(): 4.0, "calm": 2.0}
    # And out again in the format that a Prometheus server asks for.
    assert list(parse_openmetrics(generate_openmetrics(registry).decode()))


@given(tenant=st.text(max_size=300))
def test_any_tenant_makes_a_label_that_can_be_read_back(tenant):
    label = label_value(tenant)
    assert len(label) <= LABEL_MAX_CHARS
    label.encode()
    if len(tenant) <= LABEL_MAX_CHARS:
        assert label == tenant.encode("utf-8", "replace").decode()


def test_long_tenants_that_differ_late_stay_apart(metrics, make_record):
    long = "x" * 1_000
    metrics.settled(Settled((make_record(tenant=long + "a"), make_record(tenant=long + "b"))))
    assert len(samples(metrics, REQUEST_J)) == 2


def test_rendering_while_others_count_loses_nothing(metrics):
    def count():
        for number in range(300):
            metrics.add("greenserve_holds_released_total", reason=f"reason-{number}")

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.render()
    for thread in threads:
        thread.join()
    assert sum(samples(metrics, "greenserve_holds_released_total").values()) == 900


def test_early_stops_are_counted_with_what_they_saved_and_apart_in_shadow(metrics, make_record):
    labels = {"policy": "token_stop", "reason": "green:repetition"}
    stop = EarlyStop(saved_tokens=100, saved_j=2.0, **labels)
    shadow = EarlyStop(saved_tokens=70, saved_j=9.0, shadow=True, **labels)
    stops = (stop, stop, shadow, None)
    metrics.settled(Settled(tuple(make_record(early_stop=stop) for stop in stops)))
    assert one(metrics, "greenserve_early_stops_total", **labels) == 2
    assert one(metrics, "greenserve_early_stop_tokens_saved_total", **labels) == 200
    assert one(metrics, "greenserve_early_stop_joules_saved_total", **labels) == 4.0
    assert one(metrics, "greenserve_shadow_early_stops_total", **labels) == 1
    assert one(metrics, "greenserve_shadow_early_stop_tokens_total", **labels) == 70
