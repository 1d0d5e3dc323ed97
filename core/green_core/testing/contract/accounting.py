"""The contract of accounting: every joule once, every request once."""

# ruff: noqa: D102 - a test's name is the guarantee
from __future__ import annotations

import math
import random
from typing import Any

from green_core.marks import Marks
from green_core.testing.contract.kit import AdapterContract, Rig
from green_core.testing.doubles import ScriptedClock, ScriptedMeter
from green_core.testing.policies import ScriptedPolicy, hold_until

FLEX = Marks(urgency="flex", deadline_s=600.0)


def close_to(one: float, other: float) -> bool:
    """Equal but for the rounding of long sums."""
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


class AccountingContract(AdapterContract):
    """Tests to inherit."""

    def _traffic(self, rig: Rig) -> set[str]:
        """Requests of all sorts that come, end and are given up while the engine works."""
        chance = random.Random(7)
        names = set()
        for number in range(60):
            name = f"r{number}"
            names.add(name)
            rig.engine.submit(
                name,
                prompt_tokens=chance.randint(1, 90),
                output_tokens=chance.randint(1, 30),
                stop_after=chance.choice([None, 1, 3]),
                marks=FLEX if number % 5 == 0 else Marks(),
            )
            for _ in range(chance.randint(0, 4)):
                rig.step()
            if number % 7 == 3:
                rig.engine.abort(f"r{chance.randint(0, number)}")
            rig.clock.advance(chance.choice([0.0, 0.0, 0.3]))
        rig.clock.advance(200.0)
        rig.run()
        return names

    def test_requests_and_idle_add_up_to_the_model(self) -> None:
        """FIELD E9, E13."""
        policy = ScriptedPolicy(lambda view, grid: hold_until(view.arrival_s + 100.0)(view, grid))
        with self.rig({"policies.admission": "scripted"}, scripted=policy) as rig:
            names = self._traffic(rig)
            books = rig.close()
            assert books.balanced, books
            assert books.requests_j > 0.0
            assert sorted(record.request_id for record in rig.observer.records) == sorted(names)

    def test_requests_and_idle_add_up_to_the_meter(self) -> None:
        """FIELD E9: whatever the counter says is shared out, no more and no less."""
        clock = ScriptedClock()
        meter = ScriptedMeter(clock)
        with self.rig({"energy.meter": "scripted"}, clock=clock, scripted=meter) as rig:
            # Once as it was opened, and once by the books.
            rig.until(lambda: meter.reads > 1, "the meter was read, before any time passed")
            start_j = meter.energy_j
            names = self._traffic(rig)
            books = rig.close()
            assert books.balanced, books
            assert close_to(books.metered_j, meter.energy_j - start_j)
            assert {record.request_id for record in rig.observer.records} == names
            assert all(record.settled for record in rig.observer.records)

    def test_shares_of_a_step_are_what_the_engine_scheduled(self) -> None:
        """FIELD E9, P6: also with steps under way, no step takes over another one's requests."""
        with self.rig() as rig:
            self._traffic(rig)
            rig.close()
            seen = [
                {s.request_id: s.prefill_tokens + s.decode_tokens for s in step.shares}
                for step in rig.observer.steps
            ]
            assert seen == rig.steps
            ends_s = 0.0
            for step in rig.observer.steps:
                assert ends_s <= step.start_s <= step.end_s
                ends_s = step.end_s

    def test_energy_of_steps_is_the_energy_of_requests(self) -> None:
        """FIELD E9: a batched request never gets the whole step."""
        with self.rig() as rig:
            self._traffic(rig)
            rig.close()
            steps_j = sum(step.energy_j for step in rig.observer.steps)
            assert close_to(steps_j, sum(record.energy_j for record in rig.observer.records))

    def test_prompt_tokens_are_prefill_and_the_rest_is_decode(self) -> None:
        with self.rig() as rig:
            rig.engine.submit("r", prompt_tokens=70, output_tokens=6)
            rig.run()
            rig.close()
            shares = [share for step in rig.observer.steps for share in step.shares]
            assert sum(share.prefill_tokens for share in shares) == 70
            assert sum(share.decode_tokens for share in shares) == 5  # the first comes of prefill
            assert shares[-1].context_tokens == 75

    def test_an_answer_carries_its_account(self) -> None:
        with self.rig() as rig:
            rig.engine.submit("r", output_tokens=5)
            rig.run()
            rig.close()
            account: dict[str, Any] | None = rig.engine.answers["r"].account
            assert account is not None
            record = rig.observer.record("r")
            assert close_to(account["energy_j"], record.energy_j)
            assert account["output_tokens"] == record.output_tokens == 5
            assert len(rig.engine.answers["r"].tokens) == 5

    def test_what_ends_early_pays_for_all_it_computed(self) -> None:
        """An engine that runs ahead has begun a step for a request that the last one ended."""
        with self.rig() as rig:
            rig.engine.submit("short", output_tokens=50, stop_after=3)
            rig.engine.submit("long", output_tokens=20)
            rig.run()
            assert rig.close().balanced
            record = rig.observer.record("short")
            computed = [step for step in rig.observer.steps if "short" in _names(step)]
            assert record.output_tokens == 3
            assert len(computed) >= 3

    def test_the_wait_is_told_apart_from_the_run(self) -> None:
        with self.rig() as rig:
            slots, _ = rig.engine.limits()
            for number in range(slots + 1):
                rig.engine.submit(f"r{number}", output_tokens=10)
            rig.run()
            rig.close()
            assert rig.observer.record("r0").wait_s == 0.0
            last = rig.observer.record(f"r{slots}")
            first = rig.observer.record("r0")
            assert last.held_s == 0.0
            assert 0.0 < last.wait_s < last.finished_s - last.arrival_s
            assert last.wait_s >= first.finished_s - last.arrival_s - 0.1

    def test_at_equal_tokens_decoding_costs_more_than_prefill(self) -> None:
        costs_j = []
        for prompt_tokens, output_tokens in ((92, 4), (4, 92)):
            with self.rig() as rig:
                name = "r"
                rig.engine.submit(name, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
                rig.run()
                rig.close()
                record = rig.observer.record(name)
                assert close_to(record.prefill_j + record.decode_j, record.energy_j)
                costs_j.append(record.energy_j)
        assert costs_j[1] > 2.0 * costs_j[0]

    def test_eight_together_cost_less_each_than_one_alone(self) -> None:
        costs_j = []
        for together in (1, 8):
            with self.rig() as rig:
                for number in range(together):
                    rig.engine.submit(f"r{number}", output_tokens=40)
                rig.run()
                rig.close()
                energy_j = [record.energy_j for record in rig.observer.records]
                costs_j.append(max(energy_j))
        assert costs_j[1] < 0.5 * costs_j[0]

    def test_shutting_down_accounts_for_what_was_under_way(self) -> None:
        with self.rig() as rig:
            rig.engine.submit("running", output_tokens=100)
            for _ in range(5):
                rig.step()
            rig.engine.submit("waiting")
            assert rig.close().balanced
            assert rig.observer.record("running").energy_j > 0.0
            assert rig.observer.record("waiting").energy_j == 0.0


def _names(step: Any) -> set[str]:
    return {share.request_id for share in step.shares}
