"""Ratios of paired measurements, with their uncertainty. Standard library alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95


class Ratio(NamedTuple):
    """A geometric mean of ``n`` paired ratios and its 95 % confidence interval."""

    estimate: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.estimate:.4f}  [{self.low:.4f}, {self.high:.4f}]  n={self.n}"

    def fields(self, name: str) -> dict[str, object]:
        """The ratio as fields of a JSON object."""
        return {name: round(self.estimate, 5), f"{name}_ci95": [round(v, 5) for v in self[1:3]]}


def paired_ratio(log_ratios: Sequence[float]) -> Ratio:
    """The mean of log ratios with Student's t; each log ratio must be an independent pair."""
    n = len(log_ratios)
    if n < 2:
        raise ValueError(f"{n} pairs: an interval needs at least two")
    mean = fmean(log_ratios)
    half = t_quantile((1 + CONFIDENCE) / 2, n - 1) * stdev(log_ratios) / math.sqrt(n)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)


def geometric_mean_log(values: Sequence[float]) -> float:
    """The logarithm of the geometric mean."""
    return fmean(math.log(value) for value in values)


def t_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t: exact for one and two degrees of freedom, else by expansion.

    The expansion around the normal quantile (Abramowitz and Stegun 26.7.5) is off by less than
    1 % from three degrees on, and by less than 0.1 % from six.
    """
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))
