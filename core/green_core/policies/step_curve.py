"""What a step costs, in seconds and joules, as a function of its decode batch: learned online.

Observations go into buckets of batch size (half octaves), each an exponentially weighted mean.
A line through the buckets extrapolates; a bucket's distance from the line corrects for what is
not linear. Buckets that are not seen fade, so that an old measurement is not believed for ever.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

import msgspec

# Smallest batch of each bucket: 1, 2, 3, 4, 6, 8, 12, 16, ... beyond any engine's limit.
STARTS = (1, 2, *sorted(base << shift for shift in range(16) for base in (3, 4)))
# Steps after which a bucket that is no longer seen counts half.
HALF_LIFE_STEPS = 2_000.0
# Steps before a bucket is used: the very first may have compiled or captured something.
MIN_STEPS = 4
# A step this many times longer than usual is taken for a hiccup and counted as just that long;
# one this many times shorter shows that the mean was spoilt, so the bucket starts again.
OUTLIER = 3.0


class Line(msgspec.Struct, frozen=True):
    """``fixed + per_unit * x``; neither part is negative."""

    fixed: float
    per_unit: float

    def at(self, x: float) -> float:
        """Value of the line."""
        return self.fixed + self.per_unit * x


class Bucket(msgspec.Struct):
    """Means over steps of about the same batch size. ``energy_j`` is 0 while unpriced."""

    batch: float = 0.0
    time_s: float = 0.0
    energy_j: float = 0.0
    steps: int = 0
    priced: int = 0
    last_step: int = 0


class Segment(msgspec.Struct, frozen=True):
    """The curve from batch ``low`` to ``high``: straight lines for time and energy."""

    low: int
    high: int
    time: Line
    energy: Line | None


def bucket_of(batch: int) -> int:
    """Number of the bucket that a batch of at least 1 falls into."""
    return bisect_right(STARTS, batch) - 1


def fit_line(points: Iterable[tuple[float, float, float]]) -> Line:
    """Least squares through ``(weight, x, y)``, kept physical: no part may be negative.

    A step has a fixed cost and a cost per sequence. Where noise makes one negative, the other
    carries all.
    """
    total = mean_x = mean_y = spread = joint = 0.0
    for weight, x, y in points:
        total += weight
        dx = x - mean_x
        mean_x += dx * weight / total
        mean_y += (y - mean_y) * weight / total
        spread += weight * dx * (x - mean_x)
        joint += weight * dx * (y - mean_y)
    slope = joint / spread if spread > 0 else 0.0
    if slope <= 0:
        return Line(mean_y, 0.0)
    if mean_y - slope * mean_x < 0:
        return Line(0.0, mean_y / mean_x)
    return Line(mean_y - slope * mean_x, slope)


class StepCurve:
    """Learns from decode-only steps; :meth:`segments` is the present belief."""

    def __init__(self, smoothing: float) -> None:
        self._smoothing = smoothing
        self._buckets: dict[int, Bucket] = {}
        self.steps = 0

    def learn(self, batch: int, time_s: float, energy_j: float) -> None:
        """Take one decode-only step of ``batch`` sequences into account."""
        self.steps += 1
        index = bucket_of(batch)
        bucket = self._buckets.get(index)
        if bucket is None or time_s * OUTLIER < bucket.time_s:
            bucket = self._buckets[index] = Bucket()
        elif time_s > bucket.time_s * OUTLIER:
            time_s = bucket.time_s * OUTLIER
        bucket.steps += 1
        bucket.last_step = self.steps
        gain = max(self._smoothing, 1.0 / bucket.steps)
        bucket.batch += gain * (batch - bucket.batch)
        bucket.time_s += gain * (time_s - bucket.time_s)
        if energy_j > 0:
            bucket.priced += 1
            gain = max(self._smoothing, 1.0 / bucket.priced)
            bucket.energy_j += gain * (energy_j - bucket.energy_j)

    def seen(self) -> list[Bucket]:
        """Buckets with enough steps to be used, by rising batch."""
        return [b for _, b in sorted(self._buckets.items()) if b.steps >= MIN_STEPS]

    def is_fresh(self, bucket: Bucket) -> bool:
        """Whether a bucket was seen lately enough to stand on its own."""
        return self._weight(bucket) >= 1.0

    def segments(self, low: int, high: int) -> list[Segment]:
        """The curve over ``low``..``high``, ascending. Empty while no bucket can be used."""
        seen = self.seen()
        if not seen:
            return []
        high = min(high, STARTS[-1] - 1)
        time = fit_line((self._weight(b), b.batch, b.time_s) for b in seen)
        priced = [b for b in seen if b.priced]
        energy = fit_line((self._weight(b), b.batch, b.energy_j) for b in priced)
        return [
            Segment(
                max(low, STARTS[index]),
                min(high, STARTS[index + 1] - 1),
                self._through(index, time, "time_s"),
                self._through(index, energy, "energy_j") if priced else None,
            )
            for index in range(bucket_of(low), bucket_of(high) + 1)
        ]

    def _weight(self, bucket: Bucket) -> float:
        """Certainty of a bucket: grows with its steps up to a bound, fades while unseen."""
        full = 1.0 / self._smoothing
        age = self.steps - bucket.last_step
        # Never quite nothing: when one batch is seen for long, the slope rests on old ones.
        return max(1e-9, min(bucket.steps, full) * math.exp2(-age / HALF_LIFE_STEPS))

    def _through(self, index: int, line: Line, what: str) -> Line:
        """The line, moved towards what its own bucket has seen."""
        bucket = self._buckets.get(index)
        if bucket is None or bucket.steps < MIN_STEPS or (what == "energy_j" and not bucket.priced):
            return line
        seen = getattr(bucket, what)
        trust = min(1.0, self._weight(bucket) / MIN_STEPS)
        return Line(line.fixed + trust * (seen - line.at(bucket.batch)), line.per_unit)
