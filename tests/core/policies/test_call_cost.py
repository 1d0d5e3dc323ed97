"""What one call costs, printed for those who run it with ``-s``; nothing depends on the time."""

from __future__ import annotations

import itertools
import time

from msgspec.structs import replace

from green_core import (
    BatchPlan,
    ForecastPoint,
    GreenConfig,
    Hold,
    StepShare,
    StepView,
)
from green_core.config import CarbonConfig
from green_core.grid.file import FileSignal
from green_core.grid.series import Point
from green_core.policies.deadline import Deadline
from green_core.policies.slo import SloBatching
from green_core.testing.builders import grid_view, queue_view, request_view

HOUR = 3600.0
CALLS = 2000
GRID = grid_view(
    500.0,
    observed_at_s=0.0,
    valid_until_s=HOUR,
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
    flex = request_view(now_s=0.0, arrival_s=0.0, deadline_s=20 * HOUR)
    flex_calls = itertools.repeat((flex, GRID), CALLS)
    assert isinstance(timed("deadline, 24 slots ahead", deadline, flex_calls), Hold)

    shares = tuple(StepShare(str(i), 0, 1, 100) for i in range(256))
    slo = SloBatching().green_batch_policy(GreenConfig(), {})
    steps = [StepView(0.02 * n, 0.02 * n + 0.015, shares, 5.0) for n in range(CALLS)]
    base = queue_view(running=256, waiting=9, engine_max_running=512, kv_usage=0.5)
    queues = [(replace(base, now_s=s.end_s, last_step=s), GRID) for s in steps]
    assert isinstance(timed("slo, new step of 256", slo, queues), BatchPlan)
    assert isinstance(timed("slo, no new step", slo, queues), BatchPlan)

    points = tuple(Point(n * HOUR, 100.0 + n % 24, n * HOUR) for n in range(10_000))
    signal = FileSignal(points, CarbonConfig(path="x.csv"), anchor_s=0.0, origin_s=0.0)
    cached, each = [(5000 * HOUR,)] * CALLS, [(n * HOUR,) for n in range(CALLS)]
    assert timed("file signal, same step", signal.view, cached).intensity_g_per_kwh == 108.0
    timed("file signal, next step with persistence", signal.view, each)
    assert timed("file signal, intensity_at", signal.intensity_at, each) == 100.0 + 1999 % 24
