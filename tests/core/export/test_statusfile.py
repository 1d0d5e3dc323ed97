"""The status page between an engine's process and the fronts beside it."""

import os
import threading
import time

import msgspec
import pytest

from green_core.doctor.facts import (
    EngineFacts,
    HostFacts,
    LoadFacts,
    MeterFacts,
    SignalFacts,
    Status,
)
from green_core.errors import GreenError
from green_core.export import statusfile
from green_core.testing.builders import grid_view


@pytest.fixture
def status(engine):
    return Status(
        greenserve_version="1",
        at_s=1.0,
        engine=EngineFacts(engine),
        load=LoadFacts(0.0, 10.0, running=1, busy_s=4.0, mean_running=1.0),
        meter=MeterFacts("estimated:model"),
        signal=SignalFacts(grid_view()),
        host=HostFacts(cpus=2),
    )


def test_nobody_asked_means_nothing_to_do(tmp_path):
    assert statusfile.asked_ns(tmp_path) == 0


def test_a_front_gets_the_answer_to_its_own_question(tmp_path, status):
    asked = statusfile.ask(tmp_path)
    assert statusfile.asked_ns(tmp_path) == asked
    answering = threading.Timer(0.1, statusfile.answer, (tmp_path, status, asked))
    answering.start()
    assert statusfile.collect(tmp_path, asked, wait_s=30.0) == status
    answering.join()


def test_an_engine_that_does_not_answer_is_shown_as_it_last_was_with_its_age(tmp_path, status):
    asked = statusfile.ask(tmp_path)
    old = msgspec.structs.replace(status, at_s=time.time() - 100.0)
    statusfile.answer(tmp_path, old, asked)
    assert statusfile.collect(tmp_path, asked, wait_s=0.0).silent_s == 0.0
    os.utime(tmp_path / statusfile.ASK_FILE, ns=(asked + 1, asked + 1))
    shown = statusfile.collect(tmp_path, asked + 1, wait_s=0.05)
    assert shown.silent_s >= 100.0
    assert msgspec.structs.replace(shown, silent_s=0.0) == old


def test_one_silent_engine_among_several_is_told(tmp_path, status):
    asked = statusfile.ask(tmp_path)
    info = msgspec.structs.replace(status.engine.info, engine_index=1)
    other = msgspec.structs.replace(status, engine=EngineFacts(info))
    statusfile.answer(tmp_path, other, asked)
    os.utime(tmp_path / statusfile.ASK_FILE, ns=(asked + 1, asked + 1))
    statusfile.answer(tmp_path, status, asked + 1)
    assert statusfile.collect(tmp_path, asked + 1, wait_s=0.05).silent_s > 0


def test_an_answer_from_before_the_clock_was_set_back_does_not_pass_for_a_new_one(tmp_path, status):
    asked = statusfile.ask(tmp_path)
    statusfile.answer(tmp_path, status, asked)
    back = asked - 3_600 * 10**9
    os.utime(tmp_path / statusfile.ASK_FILE, ns=(back, back))
    assert statusfile.collect(tmp_path, back, wait_s=0.05).silent_s > 0
    statusfile.answer(tmp_path, status, back)
    assert statusfile.collect(tmp_path, back, wait_s=5.0).silent_s == 0.0


def test_a_run_folder_that_is_gone_is_said_with_what_to_do(tmp_path):
    with pytest.raises(GreenError, match=r"cannot be asked: No such file.*restart the server"):
        statusfile.ask(tmp_path / "swept")


def test_without_any_answer_it_is_said(tmp_path):
    with pytest.raises(GreenError, match="No engine process has answered"):
        statusfile.collect(tmp_path, statusfile.ask(tmp_path), wait_s=0.05)


def test_a_dead_engine_and_a_damaged_file_are_not_shown(tmp_path, status):
    asked = statusfile.ask(tmp_path)
    statusfile.answer(tmp_path, status, asked)
    (mine,) = (tmp_path / "status").glob("*.json")
    content = mine.read_bytes()
    mine.with_name("1-4194305.json").write_bytes(content)  # above any pid
    mine.with_name(f"2-{os.getpid()}.json").write_bytes(content[:-20])
    assert statusfile.collect(tmp_path, asked, wait_s=5.0) == status


def test_loads_of_several_engines_add_up(tmp_path, status):
    asked = statusfile.ask(tmp_path)
    statusfile.answer(tmp_path, status, asked)
    other = msgspec.structs.replace(
        status,
        engine=EngineFacts(msgspec.structs.replace(status.engine.info, engine_index=1)),
        load=LoadFacts(5.0, 20.0, running=2, busy_s=12.0, mean_running=5.0),
        faults=("metering",),
    )
    statusfile.answer(tmp_path, other, asked)
    load = statusfile.collect(tmp_path, asked, wait_s=5.0).load
    assert (load.since_s, load.until_s, load.running) == (0.0, 20.0, 3)
    assert load.mean_running == pytest.approx(4.0)  # weighted by busy time
