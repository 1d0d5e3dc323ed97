"""A fault of ours anywhere in the scheduler never loses a request nor stops the engine."""

import queue
from types import SimpleNamespace
from typing import Any

import pytest
from harness import Loop, green_scheduler, make_request

from green_core.testing.policies import ScriptedPolicy, hold_forever

HOLDS = {"policies.admission": "scripted"}
FLEX = {"urgency": "flex", "deadline_s": 600.0}


def _broken(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("a fault of greenserve's own")


@pytest.mark.parametrize(
    "part",
    [
        "_green_meter.open",
        "_green_meter.note",
        "_green_meter.price",
        "_green_meter.answer",
        "_green_meter.close",
        "_green_holds.hold",
        "_green_holds.review",
        "green.admit_all",
        "green.note_held",
        "green.note_limits",
    ],
)
def test_every_request_is_served_though_a_part_of_ours_fails(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = ScriptedPolicy(hold_forever)
    with green_scheduler(HOLDS, plugins={"scripted": policy}) as scheduler:
        core = SimpleNamespace(
            input_queue=queue.Queue(), output_queue=queue.Queue(), is_running=lambda: True
        )
        scheduler.green_attach(core)
        scheduler.add_request(make_request("held before", marks=FLEX))
        owner = scheduler
        *path, name = part.split(".")
        for step in path:
            owner = getattr(owner, step)
        monkeypatch.setattr(owner, name, _broken)
        scheduler.add_request(make_request("flex", marks=FLEX))
        scheduler.add_request(make_request("plain"))
        loop = Loop(scheduler)
        loop.run()
        scheduler._green_woken(True)  # whatever is still held is asked again, or let go
        core.is_running = lambda: False
        loop.run()
        ended = {output.request_id for output in loop.outputs if output.finish_reason is not None}
        assert ended == {"held before", "flex", "plain"}
        assert not scheduler.requests
        monkeypatch.undo()
