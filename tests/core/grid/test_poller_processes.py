"""Several processes, one of which asks."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

SCRIPT = """
import os, sys, time
from green_core.config import CarbonConfig
from green_core.grid.live import LiveSignal
from green_core.testing.grid import ScriptedSource

class Source(ScriptedSource):
    def fetch(self, now_s):
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()}\\n")
        return super().fetch(now_s)

class Ear:
    def signal_changed(self): print(os.getpid(), flush=True)
    def signal_fetched(self): pass
    def signal_failed(self, error): print(error, flush=True)

carbon = CarbonConfig(source="uk", zone="GB")
signal = LiveSignal(carbon, Source(slot_s=0.25), token="t", listener=Ear())
signal.open()
time.sleep(600)
"""


def wait_for(condition):
    give_up_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_s, "gave up waiting"
        time.sleep(0.005)


def test_one_process_asks_for_all_and_another_takes_over_when_it_is_killed(live_folders, tmp_path):
    asked = tmp_path / "asked"
    asked.touch()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(asked)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    watchdog = threading.Timer(60, lambda: [process.kill() for process in processes])
    watchdog.start()
    try:
        for _ in range(2):
            # Each of those alive hears of several answers, all got by one.
            askers = _who_asks_while_all_hear(processes, asked)
            assert len(askers) == 1
            killed = next(p for p in processes if p.pid in askers)
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            processes.remove(killed)
            killed.stdout.close()
            wait_for(lambda gone=killed.pid: _last(asked) != gone)
    finally:
        watchdog.cancel()
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()


def _who_asks_while_all_hear(processes, asked: Path) -> set[int]:
    for process in processes:
        process.stdout.readline()  # all have started
    had = len(asked.read_text().split())
    for process in processes:
        for _ in range(4):
            assert process.stdout.readline().strip() == str(process.pid)
    return {int(pid) for pid in asked.read_text().split()[had:]}


def _last(asked: Path) -> int:
    return int(asked.read_text().split()[-1])
