"""The contract of holding: a held request costs nothing, and its hold always ends."""

# ruff: noqa: D102 - a test's name is the guarantee
from __future__ import annotations

from green_core.activation import run_dir
from green_core.marks import Marks
from green_core.switch import set_off
from green_core.testing.contract.kit import AdapterContract
from green_core.testing.policies import ScriptedPolicy, hold_forever, hold_until
from green_core.values import RequestView

HOLDS = {"policies.admission": "scripted"}
FLEX = Marks(urgency="flex", deadline_s=600.0)
STANDARD = Marks(urgency="standard")


class HoldingContract(AdapterContract):
    """Tests to inherit."""

    def test_a_held_request_takes_no_slot_and_no_work(self) -> None:
        """FIELD P8, P15: all slots stay usable beside it, and the loop sleeps."""
        with self.rig(HOLDS, scripted=ScriptedPolicy(hold_forever)) as rig:
            for number in range(5):
                rig.engine.submit(f"held{number}", marks=FLEX)
            assert not rig.engine.has_work()
            assert rig.engine.occupied() == 0
            slots, _ = rig.engine.limits()
            for number in range(slots):
                rig.engine.submit(f"now{number}", output_tokens=slots + 8)
            rig.until(lambda: len(rig.engine.running()) == slots, "all slots in use")
            rig.run()
            assert all(rig.finished(f"now{number}") for number in range(slots))
            assert not rig.engine.has_work()

    def test_held_requests_count_as_waiting(self) -> None:
        with self.rig(HOLDS, scripted=ScriptedPolicy(hold_forever)) as rig:
            for number in range(3):
                rig.engine.submit(f"held{number}", marks=FLEX)
            assert rig.engine.counted() == (0, 3)
            rig.engine.submit("now")
            rig.step()
            assert rig.engine.counted() == (1, 3)
            rig.engine.abort("held1")
            assert rig.engine.counted()[1] == 2

    def test_interactive_requests_are_never_held(self) -> None:
        policy = ScriptedPolicy(hold_forever)
        with self.rig(HOLDS, scripted=policy) as rig:
            rig.engine.submit("unmarked")
            rig.engine.submit("interactive", marks=Marks(urgency="interactive", tenant="t"))
            rig.run()
            assert rig.finished("unmarked")
            assert rig.finished("interactive")
            assert not policy.views

    def test_a_hold_ends_at_its_time(self) -> None:
        policy = ScriptedPolicy(hold_forever)
        with self.rig(HOLDS, scripted=policy) as rig:
            policy.rule = hold_until(rig.clock.now() + 100.0)
            rig.engine.submit("r", marks=FLEX)
            rig.clock.advance(99.0)
            rig.run()
            assert not rig.finished("r")
            rig.clock.advance(1.5)
            rig.run()
            assert rig.finished("r")
            rig.close()
            record = rig.observer.record("r")
            assert 100.0 <= record.held_s <= record.wait_s < 102.0

    def test_a_request_meets_its_deadline_even_if_the_policy_never_lets_go(self) -> None:
        """FIELD P8: by then it has started early enough to be done, as far as is known."""
        with self.rig(HOLDS, scripted=ScriptedPolicy(hold_forever)) as rig:
            for number in range(3):  # from which run times are learned
                rig.engine.submit(f"now{number}", output_tokens=20)
                rig.run()
            arrival_s = rig.clock.now()
            rig.engine.submit("r", output_tokens=20, marks=FLEX)
            while not rig.engine.has_work() and rig.clock.now() < arrival_s + 600.0:
                rig.clock.advance(0.01)
            rig.run()
            assert rig.finished("r")
            assert arrival_s + 500.0 < rig.clock.now() <= arrival_s + 600.0

    def test_the_config_bounds_holds_without_a_deadline(self) -> None:
        config = {**HOLDS, "admission.max_hold_s": 30.0}
        with self.rig(config, scripted=ScriptedPolicy(hold_forever)) as rig:
            rig.engine.submit("r", marks=STANDARD)
            rig.clock.advance(29.0)
            assert not rig.engine.has_work()
            rig.clock.advance(1.5)
            rig.run()
            assert rig.finished("r")

    def test_no_more_are_held_than_the_config_allows(self) -> None:
        config = {**HOLDS, "admission.max_held": 2}
        with self.rig(config, scripted=ScriptedPolicy(hold_forever)) as rig:
            for number in range(4):
                rig.engine.submit(f"r{number}", marks=FLEX)
            rig.run()
            assert [rig.finished(f"r{number}") for number in range(4)] == [False, False, True, True]

    def test_released_requests_keep_their_order(self) -> None:
        """FIELD P10: the nearest deadline first, then the order of arrival."""
        policy = ScriptedPolicy(hold_forever)
        with self.rig(HOLDS, scripted=policy) as rig:
            policy.rule = hold_until(rig.clock.now() + 100.0)
            slots, _ = rig.engine.limits()
            for number in range(slots + 4):
                rig.engine.submit(f"late{number}", marks=FLEX)
                rig.clock.advance(0.1)
            rig.engine.submit("pressing", marks=Marks(urgency="flex", deadline_s=300.0))
            rig.clock.advance(200.0)
            rig.run()
            started = list(dict.fromkeys(name for step in rig.steps for name in step))
            assert started == ["pressing", *(f"late{number}" for number in range(slots + 4))]

    def test_a_held_request_is_not_starved_by_newcomers(self) -> None:
        """FIELD P10: all slots taken, more always waiting; it still starts by its deadline."""
        policy = ScriptedPolicy(hold_forever)
        with self.rig(HOLDS, scripted=policy) as rig:
            policy.rule = hold_until(rig.clock.now() + 1.0)
            arrival_s = rig.clock.now()
            rig.engine.submit("old", marks=Marks(urgency="flex", deadline_s=60.0))
            slots, _ = rig.engine.limits()
            number = 0
            while not rig.finished("old"):
                assert rig.clock.now() < arrival_s + 120.0
                while sum(rig.engine.counted()) < 2 * slots:
                    rig.engine.submit(f"new{number}", output_tokens=20)
                    number += 1
                rig.clock.advance(0.2)
                rig.step()

    def test_a_thousand_due_holds_all_end(self) -> None:
        """No step pays for all of them, none is forgotten."""
        policy = ScriptedPolicy(hold_forever)
        with self.rig(HOLDS, scripted=policy) as rig:
            policy.rule = hold_until(rig.clock.now() + 100.0)
            for number in range(1000):
                rig.engine.submit(f"r{number}", output_tokens=1, marks=FLEX)
            rig.clock.advance(101.0)
            rig.run(most=5000)
            assert all(rig.finished(f"r{number}") for number in range(1000))

    def test_abort_works_in_every_state(self) -> None:
        """FIELD P11: each abort frees all there was, and leaves one account."""
        policy = ScriptedPolicy(hold_forever)
        with self.rig(HOLDS, scripted=policy) as rig:
            slots, _ = rig.engine.limits()
            for number in range(slots):
                rig.engine.submit(f"run{number}", output_tokens=50)
            rig.engine.submit("waiting", output_tokens=50)
            rig.engine.submit("held", marks=FLEX)
            rig.until(lambda: len(rig.engine.running()) == slots, "all slots in use")
            policy.rule = hold_until(0.0)
            rig.engine.submit("fresh", marks=FLEX)  # added, never looked at
            for name in ("fresh", "waiting", "held", *(f"run{number}" for number in range(slots))):
                rig.engine.abort(name)
                rig.engine.abort(name)
            rig.engine.abort("nobody")
            rig.run()
            assert rig.engine.counted() == (0, 0)
            assert rig.engine.occupied() == 0
            assert rig.close().balanced
            assert len(rig.observer.records) == slots + 3
            for record in rig.observer.records:
                assert rig.observer.record(record.request_id).finish_reason == "abort"
            assert rig.observer.record("held").energy_j == 0.0

    def test_an_aborted_hold_never_runs(self) -> None:
        policy = ScriptedPolicy(hold_forever)
        with self.rig(HOLDS, scripted=policy) as rig:
            policy.rule = hold_until(rig.clock.now() + 10.0)
            rig.engine.submit("gone", marks=FLEX)
            rig.engine.submit("kept", marks=FLEX)
            rig.clock.advance(4.0)
            rig.engine.abort("gone")
            rig.clock.advance(20.0)
            rig.run()
            assert rig.finished("kept")
            assert not any("gone" in step for step in rig.steps)
            rig.close()
            assert rig.observer.record("gone").held_s == 4.0

    def test_the_off_switch_releases_everything(self) -> None:
        with self.rig(HOLDS, scripted=ScriptedPolicy(hold_forever)) as rig:
            for number in range(3):
                rig.engine.submit(f"held{number}", marks=FLEX)
            assert not rig.engine.has_work()
            set_off(None, True, run_dir=run_dir())
            rig.until(rig.engine.has_work, "the switch is seen")
            rig.engine.submit("later", marks=FLEX)
            rig.run()
            assert rig.finished("later")
            assert all(rig.finished(f"held{number}") for number in range(3))

    def test_a_wall_clock_that_jumps_an_hour_moves_no_hold(self) -> None:
        for jump_s in (-3600.0, 3600.0):
            policy = ScriptedPolicy(hold_forever)
            with self.rig(HOLDS, scripted=policy) as rig:
                policy.rule = hold_until(rig.clock.now() + 100.0)
                rig.engine.submit("before", marks=FLEX)
                rig.clock.step_wall(jump_s)
                rig.engine.submit("after", marks=FLEX)
                rig.clock.advance(50.0)
                assert not rig.engine.has_work()
                rig.clock.advance(51.0)
                rig.run()
                assert rig.finished("before")
                assert rig.finished("after")
                assert rig.close().balanced
                for name in ("before", "after"):
                    record = rig.observer.record(name)
                    assert 100.0 <= record.held_s <= record.wait_s < 103.0

    def test_marks_reach_the_policy_and_the_account(self) -> None:
        policy = ScriptedPolicy(hold_until(0.0))
        with self.rig(HOLDS, scripted=policy) as rig:
            arrival_s = rig.clock.now()
            marks = Marks(urgency="flex", deadline_s=120.0, tenant="blue")
            rig.engine.submit("r", prompt_tokens=9, output_tokens=3, marks=marks)
            rig.run()
            (view,) = policy.views
            assert isinstance(view, RequestView)
            assert (view.tenant, view.urgency, view.deadline_s) == ("blue", "flex", arrival_s + 120)
            assert (view.prompt_tokens, view.max_tokens) == (9, 3)
            rig.close()
            record = rig.observer.record("r")
            assert (record.tenant, record.urgency) == ("blue", "flex")
