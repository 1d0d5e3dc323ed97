"""Starts are remembered on this host, by several processes at once."""

import os
import subprocess
import sys
import time

import msgspec
import pytest

from green_core.doctor import starts as room
from green_core.doctor.facts import StartFacts
from green_core.doctor.starts import note_start, recent_starts, state_folder

NOTE = """
import sys
from green_core.doctor import starts
from green_core.doctor.facts import StartFacts
from green_core.doctor.starts import note_start
starts._LOCK_WAIT_S = 120.0
for number in range(int(sys.argv[2])):
    assert note_start(StartFacts(sys.argv[1], float(number), 1.0, 2.0))
"""


def start_in_process(model, count):
    return subprocess.Popen([sys.executable, "-c", NOTE, model, str(count)])


def test_a_start_is_remembered_and_known_to_run_while_its_process_does():
    assert note_start(StartFacts("m", 100.0, 40.0, 6.0))
    assert recent_starts("m", 0.0) == (StartFacts("m", 100.0, 40.0, 6.0, is_running=True),)


def test_a_start_whose_process_has_ended_runs_no_more():
    assert start_in_process("m", 1).wait(60) == 0
    (start,) = recent_starts("m", 0.0)
    assert start.is_running is False


def test_starts_are_chosen_by_model_and_time_oldest_first():
    for model, at_s in (("a", 1.0), ("b", 2.0), ("a", 3.0), ("a", 4.0)):
        note_start(StartFacts(model, at_s))
    assert [s.at_s for s in recent_starts("a", 3.0)] == [3.0, 4.0]
    assert [s.at_s for s in recent_starts(None, 2.0)] == [2.0, 3.0, 4.0]


def test_no_start_is_lost_when_several_processes_note_at_once():
    processes = [start_in_process(f"m{i}", 20) for i in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert len(recent_starts(None, 0.0)) == 80


def test_the_file_is_bounded_and_keeps_the_newest(monkeypatch):
    monkeypatch.setattr(room, "KEEP", 3)
    for at_s in range(5):
        note_start(StartFacts("m", float(at_s)))
    assert [s.at_s for s in recent_starts("m", 0.0)] == [2.0, 3.0, 4.0]


def test_lines_of_others_are_passed_over_and_the_rest_is_kept(state):
    note_start(StartFacts("m", 1.0))
    file = state / "starts.jsonl"
    file.write_bytes(b"\xff\n{}\n" + file.read_bytes() + b'{"start": {"mod')
    assert [s.at_s for s in recent_starts("m", 0.0)] == [1.0]
    assert note_start(StartFacts("m", 2.0))
    assert [s.at_s for s in recent_starts("m", 0.0)] == [1.0, 2.0]


def test_the_process_of_another_pid_namespace_is_unknown(state):
    note_start(StartFacts("m", 1.0))
    file = state / "starts.jsonl"
    line = msgspec.json.decode(file.read_bytes())
    file.write_bytes(msgspec.json.encode({**line, "namespace": "pid:[1]"}))
    (start,) = recent_starts("m", 0.0)
    assert start.is_running is None


def test_without_a_home_the_runtime_folder_serves(monkeypatch, tmp_path):
    """A service user may have a home that does not exist or that it cannot write."""
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert state_folder() == tmp_path / "greenserve"
    assert note_start(StartFacts("m", 1.0))
    assert len(recent_starts("m", 0.0)) == 1


@pytest.mark.usefixtures("state")
def test_a_folder_that_cannot_be_had_costs_the_memory_and_nothing_else(monkeypatch):
    monkeypatch.setattr(room, "state_folder", lambda: room.Path("/dev/null/greenserve"))
    assert not note_start(StartFacts("m", 1.0))
    assert recent_starts("m", 0.0) == ()


def test_a_lock_that_is_never_given_back_delays_a_start_by_a_second_at_most(monkeypatch):
    monkeypatch.setattr(room, "_LOCK_WAIT_S", 0.05)
    held = room.FileLock(state_folder() / "starts.lock")
    assert held.acquire()
    began_s = time.monotonic()
    assert not note_start(StartFacts("m", 1.0))
    assert time.monotonic() - began_s < 30
    held.release()
    assert note_start(StartFacts("m", 1.0))


def test_nobody_else_may_read_the_file(state):
    note_start(StartFacts("m", 1.0))
    assert os.stat(state / "starts.jsonl").st_mode & 0o077 == 0
