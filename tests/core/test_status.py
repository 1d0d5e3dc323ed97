"""The status page from a running engine process to a front's answer."""

import json
import os

import msgspec
import pytest

from green_core.activation import prove_live
from green_core.config import load
from green_core.doctor.facts import EngineFacts, Status
from green_core.errors import GreenError
from green_core.frontend import Frontend
from green_core.runtime import Runtime
from green_core.testing.builders import engine_info
from green_core.values import StepShare, StepView


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A runtime and the front beside it."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    monkeypatch.setenv("GREEN_RUN_DIR", str(run_dir))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = tmp_path / "green.toml"
    config.write_text('[carbon]\nzone = "DE"\n[policies]\nbatch = "slo"\n')
    resolved = load(config, env={})
    engine = engine_info()
    runtime = Runtime(
        resolved,
        engine,
        run_dir=run_dir,
        anchor_s=0.0,
        facts=EngineFacts(engine, weights_dtype="bfloat16", prefix_caching=True),
    )
    yield runtime, Frontend(resolved, run_dir)
    runtime.close()


def read(front):
    return msgspec.json.decode(front.status(), type=Status)


def test_the_page_says_what_is_in_force(served):
    runtime, front = served
    prove_live("engine", {"seams": ["Scheduler.schedule"]})
    status = read(front)
    assert status.engine.weights_dtype == "bfloat16"
    assert status.signal.view.zone == "DE"
    assert status.meter.method == "estimated:model(unknown device)"
    assert [(p.family, p.name, p.active) for p in status.policies] == [("batch", "slo", True)]
    assert status.settings["carbon.zone"].origin.startswith("file ")
    assert status.settings["energy.pue"].origin == "default"
    assert [(s.role, s.pid) for s in status.seams] == [("engine", os.getpid())]
    assert os.getpid() in [process.pid for process in status.processes]
    assert status.faults == ()
    assert [start.model for start in status.starts] == [runtime.engine.model]


def test_every_question_gets_a_fresh_answer(served):
    runtime, front = served
    assert read(front).load.steps == 0
    now_s = runtime.clock.now()
    runtime.step(StepView(now_s - 0.2, now_s, (StepShare("a", 8, 0, 8),)), waiting=3)
    runtime.busy_since(now_s)  # the next one is under way
    load = read(front).load
    assert (load.steps, load.waiting, load.running) == (1, 3, 1)


def test_a_page_holds_no_secrets_and_is_plain_json(served, monkeypatch):
    monkeypatch.setenv("GREEN_CARBON_TOKEN", "hush-hush")
    text = served[1].status().decode()
    assert "hush-hush" not in text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_before_an_engine_is_up_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("GREEN_RUN_DIR", str(tmp_path))
    monkeypatch.setattr("green_core.frontend._STATUS_WAIT_S", 0.05)
    with pytest.raises(GreenError, match="No engine process has answered"):
        Frontend(load(env={}), tmp_path).status()
