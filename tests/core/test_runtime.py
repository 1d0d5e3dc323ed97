"""The runtime by itself; what adapters need of it is in the contract suite."""

import threading
import time
from pathlib import Path

import pytest

from green_core import ConfigError, Meter, hookimpl
from green_core.config import load
from green_core.runtime import Runtime
from green_core.testing.builders import engine_info, queue_view, request_facts
from green_core.testing.doubles import ScriptedClock
from green_core.values import StepShare, StepView


def _runtime(tmp_path: Path, text: str = "", plugins=None, **kwargs) -> Runtime:
    run_dir = tmp_path / "run"
    run_dir.mkdir(exist_ok=True)
    config = tmp_path / "green.toml"
    config.write_text(text)
    resolved = load(config, env={})
    return Runtime(
        resolved, engine_info(), run_dir=run_dir, anchor_s=0.0, plugins=plugins, **kwargs
    )


class Stuck:
    """A meter and a plugin that hang when the process ends."""

    def __init__(self):
        self.release = threading.Event()
        self.reads = 0

    def read(self):
        self.reads += 1
        if self.reads > 1:  # the first one is the start's
            self.release.wait(60)

    @hookimpl
    def green_meters(self):
        return [
            Meter(
                name=f"stuck-{id(self)}",
                method="measured:stuck",
                period_s=0.1,
                read=self.read,
                close=lambda: None,
            )
        ]

    @hookimpl
    def green_unconfigure(self):
        self.release.wait(60)


def test_closing_does_not_wait_for_what_hangs(tmp_path):
    """FIELD P29."""
    stuck = Stuck()
    runtime = _runtime(tmp_path, '[energy]\nmeter = "stuck"\n', {"stuck": stuck})
    started_s = time.monotonic()
    runtime.close()
    took_s = time.monotonic() - started_s
    stuck.release.set()
    assert took_s < 30  # two seconds promised; a loaded machine gets slack, a hang takes 60


def test_a_fault_in_metering_never_reaches_the_engine(tmp_path, caplog, monkeypatch):
    runtime = _runtime(tmp_path)
    monkeypatch.setattr(runtime._books._attributor, "on_step", lambda step: 1 / 0)
    monkeypatch.setattr(runtime._books._attributor, "finish", lambda facts: 1 / 0)
    now_s = runtime.clock.now()
    for _ in range(3):
        runtime.step(StepView(now_s - 0.1, now_s, (StepShare("a", 1, 0, 1),)))
        assert runtime.finish(request_facts(request_id="a")) is None
    runtime.close()
    assert len([r for r in caplog.records if "metering failed" in r.message]) == 1


def test_an_edit_that_the_engine_cannot_follow_keeps_what_is_in_force(tmp_path, caplog):
    def check(config):
        if config.policies.batch == "slo":
            raise ConfigError("policies.batch", "not on this engine")

    runtime = _runtime(tmp_path, check=check)
    (tmp_path / "green.toml").write_text('[policies]\nbatch = "slo"\n')
    deadline = time.monotonic() + 30
    while "not on this engine" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "The configuration in force stays" in caplog.text
    assert not runtime.plans
    runtime.close()


def test_an_edited_policy_is_in_force_without_a_restart(tmp_path):
    runtime = _runtime(tmp_path)
    assert not runtime.plans
    (tmp_path / "green.toml").write_text('[policies]\nbatch = "intensity_threshold"\n')
    deadline = time.monotonic() + 30
    while not runtime.plans and time.monotonic() < deadline:
        time.sleep(0.02)
    queue = queue_view(now_s=runtime.clock.now(), running=1, engine_max_running=64)
    while runtime.plan(queue).max_running is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert runtime.plan(queue).max_running in {16, 32}
    runtime.close()


def test_a_ledger_that_was_asked_for_and_cannot_be_had_stops_the_start(tmp_path):
    (tmp_path / "no.sqlite").write_text("this is not a database, and never was " * 50)
    with pytest.raises(Exception, match=r"no\.sqlite"):
        _runtime(tmp_path, f'[ledger]\npath = "{tmp_path}/no.sqlite"\n')


def test_a_wall_clock_that_jumps_does_not_move_the_runtimes_time(tmp_path):
    clock = ScriptedClock()
    runtime = _runtime(tmp_path, clock=clock)
    before_s = runtime.clock.now()
    clock.step_wall(-3600)
    assert runtime.clock.now() == before_s
    runtime.close()
