"""The contract of decisions: a plan only lowers limits, and a bad policy changes nothing."""

# ruff: noqa: D102 - a test's name is the guarantee
from __future__ import annotations

from typing import Any

from green_core.activation import run_dir
from green_core.marks import Marks
from green_core.switch import set_off
from green_core.testing.contract.kit import OBSERVER, AdapterContract, Rig
from green_core.testing.doubles import RaisingObserver
from green_core.testing.policies import (
    ScriptedPolicy,
    Stalls,
    hold_forever,
    nonsense,
    plan,
    raises,
    refuse,
    unusable,
)
from green_core.values import BatchPlan, QueueView

BATCH = {"policies.batch": "scripted"}
FLEX = Marks(urgency="flex", deadline_s=600.0)


class DecisionContract(AdapterContract):
    """Tests to inherit."""

    def test_a_plan_lowers_the_limits_and_never_raises_them(self) -> None:
        policy = ScriptedPolicy(plan(max_running=1_000_000, max_tokens=1_000_000))
        with self.rig(BATCH, scripted=policy) as rig:
            engine_limits = rig.engine.limits()
            rig.engine.submit("endless", output_tokens=400)
            rig.until(lambda: len(policy.views) >= 2, "the policy was asked")
            assert rig.engine.limits() == engine_limits
            policy.rule = plan(max_running=2, max_tokens=5)
            rig.until(lambda: rig.engine.limits() == (2, 5), "the plan is in force")
            policy.rule = plan()
            rig.until(lambda: rig.engine.limits() == engine_limits, "the limits are back")

    def test_a_plan_never_stops_what_runs(self) -> None:
        """With a limit of one all running requests go on in each step; no other one starts."""
        policy = ScriptedPolicy(plan())
        with self.rig(BATCH, scripted=policy) as rig:
            names = [f"r{number}" for number in range(4)]
            for name in names:
                rig.engine.submit(name, output_tokens=500)
            rig.until(lambda: len(rig.engine.running()) == 4, "four run")
            policy.rule = plan(max_running=1, max_tokens=1)
            rig.until(lambda: rig.engine.limits()[0] == 1, "the plan is in force")
            rig.engine.submit("newcomer")
            before = len(rig.steps)
            for _ in range(20):
                rig.step()
            for step in rig.steps[before:]:
                assert sorted(step) == names

    def test_the_smallest_plan_still_makes_progress(self) -> None:
        policy = ScriptedPolicy(plan(max_running=1, max_tokens=1))
        with self.rig(BATCH, scripted=policy) as rig:
            rig.engine.submit("endless", output_tokens=900)
            rig.until(lambda: rig.engine.limits() == (1, 1), "the plan is in force")
            rig.engine.abort("endless")
            for number in range(4):
                rig.engine.submit(f"r{number}", prompt_tokens=20, output_tokens=3)
            rig.run()
            assert all(rig.finished(f"r{number}") for number in range(4))

    def test_a_policy_that_fails_leaves_the_stock_behaviour(self) -> None:
        """FIELD P9, P25: raising, stalling, nonsense; counted once, serving goes on."""
        for rule in (raises, nonsense, unusable, Stalls()):
            config = {
                "policies.batch": "scripted",
                "policies.admission": "scripted",
                "policies.budget_ms": 60.0,
            }
            with self.rig(config, scripted=ScriptedPolicy(rule)) as rig:
                engine_limits = rig.engine.limits()
                rig.engine.submit("flex", marks=FLEX)
                rig.engine.submit("endless", output_tokens=900)
                rig.until(lambda: not rig.engine.runtime.plans, "the batch policy is off")
                assert not rig.engine.runtime.may_hold
                assert rig.engine.limits() == engine_limits
                rig.engine.abort("endless")
                rig.run()
                assert rig.finished("flex")
                for family in ("batch", "admission"):
                    self._is_counted(rig, family)
            if isinstance(rule, Stalls):
                rule.let_go()

    @staticmethod
    def _is_counted(rig: Rig, family: str) -> None:
        name = "greenserve_policy_failures_total"
        rig.until(lambda: rig.metric(name, family=family) == 1, f"{name} of {family}")

    def test_a_policy_that_fails_while_it_holds_lets_go(self) -> None:
        policy = ScriptedPolicy(hold_forever)
        with self.rig({"policies.admission": "scripted"}, scripted=policy) as rig:
            rig.engine.submit("held", marks=FLEX)
            assert not rig.engine.has_work()
            policy.rule = raises
            rig.engine.submit("next", marks=FLEX)
            rig.run()
            assert rig.finished("held")
            assert rig.finished("next")

    def test_a_request_that_has_reached_the_engine_is_never_turned_away(self) -> None:
        with self.rig({"policies.admission": "scripted"}, scripted=ScriptedPolicy(refuse)) as rig:
            rig.engine.submit("r", marks=FLEX)
            rig.run()
            assert rig.finished("r")
            assert rig.engine.runtime.may_hold  # a decision like any other, no failure

    def test_a_shadowed_policy_decides_nothing(self) -> None:
        def harsh(view: Any, grid: Any) -> Any:
            return BatchPlan(1, 1) if isinstance(view, QueueView) else hold_forever(view, grid)

        policy = ScriptedPolicy(harsh)
        config = {
            "policies.batch": "scripted",
            "policies.admission": "scripted",
            "policies.shadow": ["batch", "admission"],
        }
        with self.rig(config, scripted=policy) as rig:
            engine_limits = rig.engine.limits()
            rig.engine.submit("flex", marks=FLEX)
            rig.engine.submit("endless", output_tokens=900)

            def asked() -> bool:
                return len({type(view) for view in policy.views}) == 2

            rig.until(asked, "both families were asked")
            assert rig.engine.limits() == engine_limits
            rig.engine.abort("endless")
            rig.run()
            assert rig.finished("flex")

    def test_the_off_switch_restores_the_engines_limits(self) -> None:
        with self.rig(BATCH, scripted=ScriptedPolicy(plan(max_running=1, max_tokens=4))) as rig:
            engine_limits = rig.engine.limits()
            rig.engine.submit("endless", output_tokens=900)
            rig.until(lambda: rig.engine.limits() == (1, 4), "the plan is in force")
            set_off(None, True, run_dir=run_dir())
            rig.until(lambda: rig.engine.limits() == engine_limits, "the limits are back")

    def test_policies_see_committed_facts_only(self) -> None:
        """FIELD P6, P7: what has not been computed yet is not in any view."""
        policy = ScriptedPolicy(plan())
        with self.rig(BATCH, scripted=policy) as rig:
            rig.engine.submit("r", prompt_tokens=12, output_tokens=300)
            rig.until(lambda: len(policy.views) >= 5, "the policy was asked")
            rig.run()
            contexts = []
            for view in policy.views:
                assert isinstance(view, QueueView)
                assert 0 <= view.running + view.waiting <= 1
                assert 0.0 <= view.kv_usage <= 1.0
                if view.last_step is not None:
                    (share,) = view.last_step.shares
                    assert share.prefill_tokens + share.decode_tokens > 0
                    assert view.last_step.end_s <= view.now_s
                    contexts.append(share.context_tokens)
            assert contexts == sorted(contexts)

    def test_an_observer_that_raises_does_not_stop_the_others(self) -> None:
        """FIELD P25."""
        config = {"policies.observers": ["broken"]}
        with self.rig(config, broken=RaisingObserver()) as rig:
            rig.engine.submit("r")
            rig.run()
            assert rig.close().balanced
            assert rig.observer.record("r").output_tokens == 4
            assert rig.observer.steps

    def test_plugins_start_and_end_once(self) -> None:
        with self.rig() as rig:
            assert (rig.observer.starts, rig.observer.ends) == (1, 0)
            rig.close()
            assert (rig.observer.starts, rig.observer.ends) == (1, 1), OBSERVER
