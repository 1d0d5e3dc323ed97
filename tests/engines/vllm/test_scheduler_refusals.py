"""Set-ups that green cannot serve are refused before they serve anything."""

from __future__ import annotations

import logging

import pytest
from harness import Loop, green_scheduler, make_request, make_scheduler
from vllm.config import ParallelConfig
from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.core.sched.scheduler import Scheduler

from green_core.activation import live
from green_core.errors import ConfigError, EngineUnsupported
from green_core.testing.policies import ScriptedPolicy, hold_forever
from vllm_green.engine import choose_class

PLUGINS = {"scripted": ScriptedPolicy(hold_forever)}


def two_ranks() -> ParallelConfig:
    config = ParallelConfig()
    config.data_parallel_size = 2
    return config


def test_long_holds_are_refused_with_data_parallelism() -> None:
    """One unfinished request makes idle ranks run dummy batches."""
    config = {"policies.admission": "scripted"}
    with pytest.raises(ConfigError) as refused:
        with green_scheduler(config, plugins=PLUGINS, parallel=two_ranks()):
            pass
    assert refused.value.path == "admission.max_hold_s"
    assert "admission.parallel_max_hold_s (2 s)" in str(refused.value)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"policies.admission": "scripted", "policies.shadow": ["admission"]},
        {"policies.admission": "scripted", "admission.max_hold_s": 2.0},
    ],
    ids=["no holds", "shadowed", "short holds"],
)
def test_data_parallelism_is_fine_without_long_holds(config: dict[str, object]) -> None:
    with green_scheduler(config, plugins=PLUGINS, parallel=two_ranks()) as scheduler:
        assert scheduler.green is not None


def test_a_scheduler_that_is_not_vllms_is_refused() -> None:
    class Foreign(SchedulerInterface):
        pass

    with pytest.raises(EngineUnsupported, match=r"Foreign does not extend.*--scheduler-cls"):
        choose_class(Foreign)


def test_a_scheduler_that_extends_vllms_is_extended() -> None:
    class Custom(Scheduler):
        def schedule(self, *args: object, **kwargs: object) -> object:
            return super().schedule(*args, **kwargs)

    with green_scheduler(base=Custom) as scheduler:
        assert isinstance(scheduler, Custom)
        assert choose_class(type(scheduler)) is type(scheduler)  # never mixed in twice


def test_the_engine_proves_that_it_is_live() -> None:
    """FIELD P2: the front looks for this before it serves."""
    with green_scheduler():
        facts = live("engine", "")
    assert facts["scheduler"] == "GreenScheduler"
    assert "vllm.v1.core.sched.scheduler:Scheduler.schedule" in facts["seams"]
    info = facts["info"]
    assert (info["engine"], info["device"]) == ("vllm", "cpu")
    assert info["parameters"] == pytest.approx(134.5e6, rel=0.02)  # SmolLM2-135M, embedding once
    assert info["kv_bytes_per_token"] > 0


def test_a_policy_nobody_knows_stops_the_engine() -> None:
    with pytest.raises(ConfigError, match=r"policies\.batch: unknown name 'slow'.*'slo'"):
        with green_scheduler({"policies.batch": "slow"}):
            pass


def test_stock_schedulers_are_untouched_by_all_this() -> None:
    assert type(make_scheduler(green=False)) is Scheduler


def test_a_power_policy_that_finds_no_device_to_steer_is_said_and_keeps_nobody_from_serving(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FIELD E14. Power is the core's to steer; this pack only has to let it."""
    monkeypatch.setattr(logging.getLogger("greenserve"), "propagate", True)
    with green_scheduler({"policies.power": "power_cap"}) as scheduler:
        scheduler.add_request(make_request("r"))
        loop = Loop(scheduler)
        loop.run()
        assert len(loop.text("r")) == 4
    assert [r for r in caplog.records if "power is not steered" in r.message]
