"""What one call costs, printed for those who run it with ``-s``; nothing depends on the time."""

from __future__ import annotations

import itertools
import time

from green_core import (
    BatchPlan,
    ForecastPoint,
    GreenConfig,
    GridState,
    GridView,
    Hold,
    QueueView,
    RequestView,
    StepShare,
    StepView,
)
from green_core.config import CarbonConfig
from green_core.grid.file import FileSignal
from green_core.grid.series import Point
from green_core.policies.deadline import Deadline
from green_core.policies.slo import SloBatching

HOUR = 3600.0
CALLS = 2000
GRID = GridView(
    intensity_g_per_kwh=500.0,
    kind="average",
    zone="Z",
    observed_at_s=0.0,
    valid_until_s=HOUR,
    source="test",
    is_estimate=False,
    state=GridState.DIRTY,
    forecast=tuple(ForecastPoint(i * HOUR, 500.0 - 10.0 * i) for i in range(1, 25)),
    forecast_end_s=25 * HOUR,
)


def timed(name, call, arguments):
    start_s = time.perf_counter()
    for argument in arguments:
        answer = call(*argument)
    print(f"{name}: {(time.perf_counter() - start_s) / CALLS * 1e6:.2f} us")
    return answer


def test_the_cost_of_a_call_is_printed():
    deadline = Deadline().green_admission_policy(GreenConfig(), {})
    flex = RequestView("r", "t", "flex", 0.0, 0.0, 20 * HOUR, 10, 10, 60.0)
    flex_calls = itertools.repeat((flex, GRID), CALLS)
    assert isinstance(timed("deadline, 24 slots ahead", deadline, flex_calls), Hold)

    shares = tuple(StepShare(str(i), 0, 1, 100) for i in range(256))
    slo = SloBatching().green_batch_policy(GreenConfig(), {})
    steps = [StepView(0.02 * n, 0.02 * n + 0.015, shares, 5.0) for n in range(CALLS)]
    queues = [(QueueView(s.end_s, 256, 9, 0, 512, 8192, 0.5, 0, s), GRID) for s in steps]
    assert isinstance(timed("slo, new step of 256", slo, queues), BatchPlan)
    assert isinstance(timed("slo, no new step", slo, queues), BatchPlan)

    points = tuple(Point(n * HOUR, 100.0 + n % 24, n * HOUR) for n in range(10_000))
    signal = FileSignal(points, CarbonConfig(path="x.csv"), anchor_s=0.0, origin_s=0.0)
    cached, each = [(5000 * HOUR,)] * CALLS, [(n * HOUR,) for n in range(CALLS)]
    assert timed("file signal, same step", signal.view, cached).intensity_g_per_kwh == 108.0
    timed("file signal, next step with persistence", signal.view, each)
    assert timed("file signal, intensity_at", signal.intensity_at, each) == 100.0 + 1999 % 24
