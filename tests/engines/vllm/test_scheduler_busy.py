"""The runtime knows since when the engine has been at work, whatever the steps' order."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Loop, green_scheduler, make_request

from green_core.testing.doubles import ScriptedClock


def told(scheduler: Any) -> list[float | None]:
    """What the runtime is told from now on, in order."""
    calls: list[float | None] = []
    scheduler.green.busy_since = calls.append
    return calls


@pytest.mark.parametrize("ahead", [0, 1])
def test_each_step_under_way_is_told_of_and_an_idle_engine_is_not_busy(ahead: int) -> None:
    clock = ScriptedClock()
    began_s = clock.now()
    with green_scheduler(asynchronous=bool(ahead), clock=clock) as scheduler:
        calls = told(scheduler)
        loop = Loop(scheduler, ahead=ahead, clock=clock, step_s=14.0)
        scheduler.add_request(make_request("r", max_tokens=3))
        loop.run()
        assert calls[0] == began_s
        assert calls[-1] is None
        began = [at_s for at_s in calls if at_s is not None]
        assert began == [pytest.approx(began_s + 14.0 * n) for n in range(len(began))]
        assert len(began) >= 3


def test_a_step_lost_to_a_fault_does_not_stay_the_oldest() -> None:
    clock = ScriptedClock()
    with green_scheduler(clock=clock) as scheduler:
        calls = told(scheduler)
        loop = Loop(scheduler, clock=clock)
        scheduler.add_request(make_request("r", max_tokens=5))
        lost = scheduler.schedule()  # never comes back
        assert lost.num_scheduled_tokens
        clock.advance(5.0)
        scheduler.add_request(make_request("next", max_tokens=2))
        for _ in range(4):
            loop.step()
        assert calls[-1] is None
