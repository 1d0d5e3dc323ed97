"""The benchmark reads what greenserve publishes, and makes up no precision."""

import math
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from scrape import INFO, STEP_COST, Page, count, merged, percentile, since

from green_core.export.collector import GreenCollector
from green_core.export.prometheus import EngineMetrics
from green_core.testing.builders import engine_info


@pytest.fixture
def metrics() -> EngineMetrics:
    return EngineMetrics(engine_info(max_running=16), max_tenants=10, profile="measure")


def scrape(metrics: EngineMetrics, folder: Path) -> Page:
    metrics.publish(folder)
    registry = CollectorRegistry()
    registry.register(GreenCollector(folder))
    return Page("# TYPE other gauge\nother 1.0\n" + generate_latest(registry).decode())


def test_a_page_tells_labels_and_totals(metrics: EngineMetrics, tmp_path: Path) -> None:
    metrics.set("greenserve_policy_active", 1, family="batch", policy="slo")
    metrics.set("greenserve_policy_active", 1, family="admission", policy="deadline")
    page = scrape(metrics, tmp_path)
    assert page.label(INFO, "profile") == "measure"
    assert page.total("greenserve_policy_active") == 2
    assert page.total("greenserve_policy_active", family="batch") == 1
    assert page.total("greenserve_engine_batch_limit") == 16
    assert page.total("other") == 0  # not ours


def test_percentiles_stay_within_one_bucket_of_the_truth(
    metrics: EngineMetrics, tmp_path: Path
) -> None:
    for microseconds in range(1, 101):
        metrics.observe(STEP_COST, microseconds / 1e6)
    cost = scrape(metrics, tmp_path).step_cost()
    assert count(cost) == 100
    for share in (0.1, 0.5, 0.9, 0.99):
        assert percentile(cost, share) * 1e6 == pytest.approx(100 * share, abs=10)


def test_only_what_was_observed_between_two_scrapes_counts(
    metrics: EngineMetrics, tmp_path: Path
) -> None:
    metrics.observe(STEP_COST, 3e-3)
    before = scrape(metrics, tmp_path).step_cost()
    metrics.observe(STEP_COST, 12e-6)
    between = since(scrape(metrics, tmp_path).step_cost(), before)
    assert count(between) == 1
    assert percentile(between, 0.5) < 15e-6
    assert count(merged(before, between)) == 2


def test_nothing_observed_is_no_number() -> None:
    assert math.isnan(percentile({}, 0.5))


def test_what_lies_above_the_last_bound_is_answered_as_that_bound() -> None:
    assert percentile({1e-3: 0.0, math.inf: 5.0}, 0.5) == 1e-3
