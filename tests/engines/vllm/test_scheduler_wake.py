"""Idle stays idle: who wakes the engine's loop, when, and what a thousand held requests cost."""

from __future__ import annotations

import queue
import threading
import time
from types import SimpleNamespace
from typing import Any
from unittest import mock

from harness import Loop, green_scheduler, make_request
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.request import RequestStatus

from green_core.activation import run_dir
from green_core.marks import Marks
from green_core.switch import set_off
from green_core.testing.doubles import RecordingObserver, ScriptedClock
from green_core.testing.policies import ScriptedPolicy, admit, hold_forever, plan

HOLDS = {"policies.admission": "scripted"}
FLEX = {"urgency": "flex", "deadline_s": 600.0}
PATIENCE_S = 30.0


class Core:
    """The engine process, as far as the scheduler knows it."""

    def __init__(self) -> None:
        self.input_queue: queue.Queue[Any] = queue.Queue()
        self.output_queue: queue.Queue[Any] = queue.Queue()
        self.running = True

    def is_running(self) -> bool:
        return self.running

    def woken(self) -> bool:
        """Block until woken, as vLLM's idle loop does."""
        try:
            return self.input_queue.get(timeout=PATIENCE_S) == (EngineCoreRequestType.WAKEUP, None)
        except queue.Empty:
            return False


def attached(scheduler: Any) -> Core:
    core = Core()
    scheduler.green_attach(core)
    return core


def hold_for(seconds: dict[str, float]) -> Any:
    """Hold each request so long after its arrival."""

    def rule(view: Any, grid: Any) -> Any:
        at_s = view.arrival_s + seconds[view.request_id]
        return (
            hold_forever(SimpleNamespace(now_s=at_s - 1e9), grid)
            if view.now_s < at_s
            else (admit(view, grid))
        )

    return rule


def test_the_end_of_a_hold_wakes_the_idle_loop() -> None:
    policy = ScriptedPolicy(hold_for({"r": 0.3}))
    with green_scheduler(HOLDS, plugins={"scripted": policy}) as scheduler:
        core = attached(scheduler)
        scheduler.add_request(make_request("r", marks=FLEX))
        assert not scheduler.has_requests()
        assert core.woken()
        assert scheduler.has_requests()
        Loop(scheduler).run()


def test_a_hold_that_outlasts_an_earlier_one_is_woken_too() -> None:
    """The earlier one is let go before its time; its wake-up must not be the last."""
    policy = ScriptedPolicy(hold_for({"early": 1.0, "late": 2.0}))
    with green_scheduler(HOLDS, plugins={"scripted": policy}) as scheduler:
        core = attached(scheduler)
        scheduler.add_request(make_request("early", marks=FLEX))
        scheduler.add_request(make_request("late", marks=FLEX))
        policy.rule = hold_for({"early": 0.0, "late": 2.0})
        scheduler._green_woken(True)  # grid or config changed: ask all again
        assert core.woken()
        loop = Loop(scheduler)
        loop.run()
        assert len(loop.text("early")) == 4
        while not scheduler.has_requests():
            assert core.woken(), "the late request was forgotten"
        loop.run()
        assert len(loop.text("late")) == 4


def test_the_off_switch_wakes_the_idle_loop() -> None:
    with green_scheduler(HOLDS, plugins={"scripted": ScriptedPolicy(hold_forever)}) as scheduler:
        core = attached(scheduler)
        scheduler.add_request(make_request("r", marks=FLEX))
        set_off(None, True, run_dir=run_dir())
        assert core.woken()
        loop = Loop(scheduler)
        loop.run()
        assert len(loop.text("r")) == 4


def test_shutting_down_lets_held_requests_drain() -> None:
    """SIGTERM with a shutdown timeout: the loop leaves once there is no work, held or not."""
    with green_scheduler(HOLDS, plugins={"scripted": ScriptedPolicy(hold_forever)}) as scheduler:
        core = attached(scheduler)
        scheduler.add_request(make_request("r", marks=FLEX))
        assert not scheduler.has_requests()
        core.running = False
        loop = Loop(scheduler)
        loop.run()
        assert len(loop.text("r")) == 4
        assert loop.account("r")["held_s"] < PATIENCE_S


def test_held_requests_are_no_finished_ones_to_a_kv_connector() -> None:
    """With a connector vLLM takes requests in no queue for unfinished transfers, and spins."""
    with green_scheduler(HOLDS, plugins={"scripted": ScriptedPolicy(hold_forever)}) as scheduler:
        attached(scheduler)
        connector = mock.Mock()
        connector.has_pending_push_work.return_value = False
        connector.get_num_new_matched_tokens.return_value = (0, False)
        connector.request_finished.return_value = (False, None)
        with mock.patch.object(scheduler, "connector", connector):
            scheduler.add_request(make_request("r", marks=FLEX))
            assert not scheduler.has_finished_requests()
            assert not scheduler.has_requests()
            scheduler.finish_requests("r", RequestStatus.FINISHED_ABORTED)
            scheduler.finished_req_ids.clear()


def test_a_thousand_held_requests_cost_no_reviews_and_little_memory() -> None:
    policy = ScriptedPolicy(hold_forever)
    clock, seen = ScriptedClock(), RecordingObserver()
    config = {**HOLDS, "policies.observers": ["seen"]}
    plugins = {"scripted": policy, "seen": seen}
    with green_scheduler(config, plugins=plugins, clock=clock) as scheduler:
        core = attached(scheduler)
        before_kib = resident_kib()
        for number in range(1000):
            scheduler.add_request(make_request(f"r{number}", prompt=64, marks=FLEX))
        grown_kib = resident_kib() - before_kib
        asked = len(policy.views)
        for _ in range(1000):
            assert not scheduler.has_requests()
        assert len(policy.views) == asked == 1000
        assert core.input_queue.empty()
        assert grown_kib < 30 * 1024  # 30 KiB each would be far too much
        scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
        Loop(scheduler).run()
        assert not scheduler.requests
    assert len(seen.records) == 1000
    assert sum(record.energy_j for record in seen.records) == 0.0


def test_an_idle_engine_uses_no_processor_time() -> None:
    """FIELD P15: neither the loop nor our threads wake while a request is held."""
    policy = ScriptedPolicy(hold_forever)
    with green_scheduler(HOLDS, plugins={"scripted": policy}) as scheduler:
        core = attached(scheduler)
        scheduler.add_request(make_request("r", marks=FLEX))
        assert not scheduler.has_requests()
        give_up_s = time.monotonic() + PATIENCE_S
        while scheduler.green._due_in_s() is not None and time.monotonic() < give_up_s:
            # Only the hold's own end, minutes away, may be left on the agenda.
            if scheduler.green._due_in_s() > 60.0:
                break
            time.sleep(0.05)
        spent_s = processor_s("green-")
        time.sleep(2.0)
        assert processor_s("green-") - spent_s <= 0.02
        assert core.input_queue.empty()


def test_an_engine_that_stands_still_under_our_limits_gets_its_own_back() -> None:
    """FIELD P9: the watchdog switches the policy off, whatever the reason for the standstill."""
    policy = ScriptedPolicy(plan(max_running=1, max_tokens=1))
    config = {"policies.batch": "scripted"}
    with green_scheduler(config, plugins={"scripted": policy}) as scheduler:
        limits = (scheduler.max_num_active_reqs, scheduler.max_num_scheduled_tokens)
        loop = Loop(scheduler)
        scheduler.add_request(make_request("r", max_tokens=500))
        give_up_s = time.monotonic() + PATIENCE_S
        while scheduler.max_num_active_reqs != 1 and time.monotonic() < give_up_s:
            loop.step()
            time.sleep(0.002)
        assert scheduler.max_num_active_reqs == 1
        allocate = "allocate_slots"
        with mock.patch.object(scheduler.kv_cache_manager, allocate, return_value=None):
            for _ in range(300):
                scheduler.schedule()
                if not scheduler.green.plans:
                    break
        assert not scheduler.green.plans
        loop.run()
        assert (scheduler.max_num_active_reqs, scheduler.max_num_scheduled_tokens) == limits
        assert len(loop.text("r")) == 500


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def processor_s(prefix: str) -> float:
    """Processor time of this process's threads whose name begins so."""
    ticks = 0
    for thread in threading.enumerate():
        if thread.name.startswith(prefix):
            with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / 100.0


def test_marks_have_defaults_from_the_config() -> None:
    """A flexible request without a deadline gets the configured one, and is held no longer."""
    policy = ScriptedPolicy(hold_forever)
    clock = ScriptedClock()
    config = {**HOLDS, "admission.default_deadline_s": 50.0, "admission.default_class": "standard"}
    with green_scheduler(config, plugins={"scripted": policy}, clock=clock) as scheduler:
        scheduler.add_request(make_request("flex", marks={"urgency": "flex"}))
        scheduler.add_request(make_request("unmarked"))
        views = {view.request_id: view for view in policy.views}
        assert views["flex"].deadline_s == clock.now() + 50.0
        assert views["unmarked"].urgency == "standard"
        assert views["unmarked"].deadline_s is None
        assert Marks().urgency is None
        clock.advance(51.0)
        loop = Loop(scheduler, clock=clock)
        for _ in range(10):
            loop.step()
        assert len(loop.text("flex")) == 4
