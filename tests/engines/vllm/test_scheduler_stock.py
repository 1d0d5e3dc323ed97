"""Measuring changes nothing, and measures all: any traffic, in a pool too small for it."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Loop, green_scheduler, make_request, make_scheduler
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.v1.request import RequestStatus

from green_core.testing.doubles import RecordingObserver

REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "prompt": st.integers(1, 120),
            "max_tokens": st.integers(1, 20),
            "stop_after": st.none() | st.integers(1, 20),
            "turns": st.integers(0, 4),  # of the loop before the next request comes
            "aborted": st.booleans(),
        }
    ),
    min_size=1,
    max_size=15,
)


def play(scheduler: Any, requests: list[dict[str, Any]], ahead: int) -> tuple[Any, ...]:
    """All that was scheduled, step by step, and all that clients got."""
    loop = Loop(scheduler, ahead=ahead)
    for number, plan in enumerate(requests):
        sizes = {key: plan[key] for key in ("prompt", "max_tokens", "stop_after")}
        scheduler.add_request(make_request(f"r{number}", **sizes))
        for _ in range(plan["turns"]):
            loop.step()
        if plan["aborted"]:
            scheduler.finish_requests(f"r{number}", RequestStatus.FINISHED_ABORTED)
    loop.run()
    got = [(o.request_id, list(o.new_token_ids), str(o.finish_reason)) for o in loop.outputs]
    return loop.steps, got, scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


@pytest.mark.parametrize("ahead", [0, 1], ids=["sync", "async"])
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(requests=REQUESTS)
def test_measuring_leaves_every_step_as_stock_makes_it(
    ahead: int, requests: list[dict[str, Any]]
) -> None:
    size = {"asynchronous": ahead > 0, "max_seqs": 4, "max_tokens": 48, "blocks": 24}
    stock = play(make_scheduler(green=False, **size), requests, ahead)
    seen = RecordingObserver()
    config = {"profile": "measure", "policies.observers": ["seen"]}
    with green_scheduler(config, plugins={"seen": seen}, **size) as scheduler:
        assert play(scheduler, requests, ahead) == stock
    # And every joule of these steps is somebody's, preempted, aborted or run ahead.
    assert len(seen.records) == len({record.request_id for record in seen.records})
    assert len(seen.records) == len(requests)
    steps_j = sum(step.energy_j for step in seen.steps)
    assert sum(record.energy_j for record in seen.records) == pytest.approx(steps_j)
