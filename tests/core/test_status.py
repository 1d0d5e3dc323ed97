"""The status page from a running engine process to a front's answer."""

import json
import os
import time

import msgspec
import pytest

from green_core.activation import prove_live
from green_core.config import load
from green_core.doctor.facts import EngineFacts, Status
from green_core.errors import GreenError
from green_core.export import statusfile
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
    config.write_text(
        '[carbon]\nzone = "DE"\n[policies]\nbatch = "slo"\n'
        '[policies.params.mine]\napi_key = "hush"\nkeys = ["hush"]\nlimit = "shown"\n'
        '[energy]\ndcgm_url = "http://me:hush@127.0.0.1/metrics?a=b&Token=hush#c"\n'
    )
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


def test_secrets_in_the_configuration_are_not_on_the_page(served):
    settings = read(served[1]).settings
    assert settings["policies.params"].value == {
        "mine": {"api_key": "(hidden)", "keys": ["(hidden)"], "limit": "shown"}
    }
    shown = "http://(hidden)@127.0.0.1/metrics?a=b&Token=(hidden)#c"
    assert settings["energy.dcgm_url"].value == shown


def test_a_clock_that_was_set_back_does_not_silence_the_engine(served, tmp_path):
    _, front = served
    assert read(front).silent_s == 0.0
    ahead = time.time_ns() + 3_600 * 10**9
    ask = tmp_path / "run" / "status.ask"
    os.utime(ask, ns=(ahead, ahead))  # asked and answered before the clock was set back
    statusfile.collect(tmp_path / "run", ahead, wait_s=30.0)
    assert read(front).silent_s == 0.0


def test_a_page_that_cannot_be_written_is_a_fault_and_nothing_else_stops(served, tmp_path):
    _, front = served
    (tmp_path / "run" / "status").write_text("in the way of the folder")
    with pytest.raises(GreenError, match="No engine process has answered"):
        front.status()
    (tmp_path / "run" / "status").unlink()
    assert read(front).faults == ("the status page",)


def test_before_an_engine_is_up_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("GREEN_RUN_DIR", str(tmp_path))
    monkeypatch.setattr("green_core.frontend._STATUS_WAIT_S", 0.05)
    with pytest.raises(GreenError, match="No engine process has answered"):
        Frontend(load(env={}), tmp_path).status()
