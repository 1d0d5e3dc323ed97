"""The contract of early stops: only those who asked, only what is committed, and never a surprise.

For adapters that serve exit policies. The double's requests do not ask for their full length.
"""

# ruff: noqa: D102 - a test's name is the guarantee
from __future__ import annotations

from typing import Any

from green_core.activation import run_dir
from green_core.marks import Marks
from green_core.switch import set_off
from green_core.testing.contract.kit import AdapterContract, Rig
from green_core.testing.policies import ScriptedExit, stop_after
from green_core.values import ExitNeeds, Progress

EXIT = {"policies.exit": "scripted"}
ASKED = Marks(stop=True)


def raises(progress: Progress) -> Any:
    """Fail."""
    raise RuntimeError("a policy failed on purpose")


def wordy(progress: Progress) -> Any:
    """Answer what is no decision."""
    return "stop"


class ExitContract(AdapterContract):
    """Tests to inherit."""

    @staticmethod
    def _counted(rig: Rig) -> None:
        name = "greenserve_policy_failures_total"
        rig.until(lambda: rig.metric(name, family="exit") == 1, "the failure is counted")

    def _ended(self, rig: Rig, *names: str) -> None:
        rig.until(lambda: all(rig.finished(name) for name in names), f"{names} ended")

    def test_an_answer_that_asked_for_it_is_stopped_and_says_what_it_saved(self) -> None:
        with self.rig(EXIT, scripted=ScriptedExit(stop_after(10))) as rig:
            rig.engine.submit("r", output_tokens=800, marks=ASKED)
            self._ended(rig, "r")
            answer = rig.engine.answers["r"]
            assert answer.finish_reason == "stop"
            assert 10 < len(answer.tokens) < 800
            assert len(answer.tokens) % 5 == 0  # at a look, not somewhere
            assert answer.account is not None
            stop = answer.account["early_stop"]
            assert stop["reason"] == "green:scripted"
            assert stop["saved_tokens"] == 800 - len(answer.tokens)
            rig.run()
            assert rig.engine.occupied() == 0
            assert rig.close().balanced
            record = rig.observer.record("r")
            assert record.early_stop is not None
            token_j = record.decode_j / record.output_tokens
            assert abs(record.early_stop.saved_j - stop["saved_tokens"] * token_j) < 1e-9

    def test_an_answer_that_did_not_ask_is_never_looked_at(self) -> None:
        policy = ScriptedExit(stop_after(1))
        with self.rig(EXIT, scripted=policy) as rig:
            rig.engine.submit("silent", output_tokens=60)
            rig.engine.submit("refuses", output_tokens=60, marks=Marks(stop=False))
            self._ended(rig, "silent", "refuses")
            assert len(rig.engine.answers["silent"].tokens) == 60
            assert len(rig.engine.answers["refuses"].tokens) == 60
            assert not policy.views

    def test_a_class_may_be_watched_without_a_mark_and_a_client_may_still_refuse(self) -> None:
        needs = ExitNeeds(every_tokens=5, classes=("flex",))
        with self.rig(EXIT, scripted=ScriptedExit(stop_after(1), needs)) as rig:
            rig.engine.submit("flex", output_tokens=800, marks=Marks(urgency="flex"))
            refuses = Marks(urgency="flex", stop=False)
            rig.engine.submit("refuses", output_tokens=40, marks=refuses)
            self._ended(rig, "flex", "refuses")
            assert len(rig.engine.answers["flex"].tokens) < 800
            assert len(rig.engine.answers["refuses"].tokens) == 40

    def test_an_exit_policy_sees_committed_tokens_only(self) -> None:
        """FIELD P7: a token that nobody has sampled yet is in no view."""
        policy = ScriptedExit(lambda progress: None, ExitNeeds(every_tokens=5, window_tokens=7))
        with self.rig(EXIT, scripted=policy) as rig:
            rig.engine.submit("r", output_tokens=300, marks=ASKED)
            self._ended(rig, "r")
            assert policy.views
            tokens = rig.engine.answers["r"].tokens
            for view in policy.views:
                shown = tokens[: view.output_tokens][-7:]
                assert view.token_ids == tuple(shown)

    def test_an_exit_policy_that_fails_stops_nobody(self) -> None:
        """FIELD P9, P25."""
        for rule in (raises, wordy):
            with self.rig(EXIT, scripted=ScriptedExit(rule)) as rig:
                rig.engine.submit("r", output_tokens=800, marks=ASKED)
                self._counted(rig)
                self._ended(rig, "r")
                assert len(rig.engine.answers["r"].tokens) == 800

    def test_an_exit_policy_in_shadow_stops_nobody_and_tells_what_it_would_have(self) -> None:
        config = {**EXIT, "policies.shadow": ["exit"]}
        with self.rig(config, scripted=ScriptedExit(stop_after(10))) as rig:
            rig.engine.submit("r", output_tokens=800, marks=ASKED)
            self._ended(rig, "r")
            assert len(rig.engine.answers["r"].tokens) == 800
            name, labels = "greenserve_shadow_early_stops_total", {"reason": "green:scripted"}
            rig.until(lambda: rig.metric(name, **labels) == 1, "the would-be stop is counted")
            tokens = rig.metric("greenserve_shadow_early_stop_tokens_total", **labels)
            assert 0 < tokens < 800
            assert rig.metric("greenserve_early_stops_total", **labels) == 0

    def test_the_off_switch_ends_early_stops(self) -> None:
        policy = ScriptedExit(lambda progress: None)
        with self.rig(EXIT, scripted=policy) as rig:
            rig.engine.submit("r", output_tokens=900, marks=ASKED)
            rig.until(lambda: bool(policy.views), "it is looked at")
            set_off(None, True, run_dir=run_dir())
            rig.until(lambda: rig.engine.runtime.is_stock, "the switch is noticed")
            policy.rule = stop_after(1)
            self._ended(rig, "r")
            assert len(rig.engine.answers["r"].tokens) == 900
