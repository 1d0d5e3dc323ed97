"""What a server's /metrics says: gauges, labels, and percentiles of a histogram."""

from __future__ import annotations

import math
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

STEP_COST = "greenserve_step_overhead_seconds"
INFO = "greenserve_info"
POLICY_ACTIVE = "greenserve_policy_active"

Cumulative = Mapping[float, float]  # observations at or below each bound


class Page:
    """One scrape; only greenserve's own series are kept."""

    def __init__(self, text: str) -> None:
        ours = "".join(
            line + "\n"
            for line in text.splitlines()
            if line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith("greenserve_")
        )
        self._samples = [
            sample for family in text_string_to_metric_families(ours) for sample in family.samples
        ]

    def total(self, name: str, **labels: str) -> float:
        """Sum of the series of ``name`` that carry ``labels``; 0.0 when there are none."""
        wanted = labels.items()
        return sum(s.value for s in self._samples if s.name == name and wanted <= s.labels.items())

    def label(self, name: str, label: str) -> str:
        """A label's value on the first series of ``name``; empty when there is none."""
        return next((s.labels[label] for s in self._samples if s.name == name), "")

    def step_cost(self) -> Cumulative:
        """Cumulative counts of the cost per step, by upper bound in seconds."""
        return {
            float(s.labels["le"]): s.value for s in self._samples if s.name == f"{STEP_COST}_bucket"
        }


def since(newer: Cumulative, older: Cumulative) -> dict[float, float]:
    """What was observed between two scrapes."""
    return {bound: count - older.get(bound, 0.0) for bound, count in newer.items()}


def merged(one: Cumulative, other: Cumulative) -> dict[float, float]:
    """The observations of both."""
    bounds = sorted({*one, *other})
    return {bound: one.get(bound, 0.0) + other.get(bound, 0.0) for bound in bounds}


def count(cumulative: Cumulative) -> int:
    """How many observations there are."""
    return int(cumulative.get(math.inf, 0.0))


def percentile(cumulative: Cumulative, share: float) -> float:
    """Linear within its bucket, so no finer than the buckets are; NaN without observations.

    What lies above the last finite bound is answered as that bound.
    """
    total = cumulative.get(math.inf, 0.0)
    if not total:
        return math.nan
    rank, lower, below = share * total, 0.0, 0.0
    for bound, seen in sorted(cumulative.items()):
        if seen >= rank and seen > below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / (seen - below)
        lower, below = (lower if math.isinf(bound) else bound), seen
    return lower
