import os
import subprocess
import sys

import pytest

from green_core.energy.processes import ServerTime
from green_core.testing.proc import ProcTree


class Server:
    """API server 10; engines 20 and 30 below it; 21 is a worker of the first."""

    def __init__(self, folder):
        self.at_s = 0.0
        self.proc = ProcTree(folder)
        for pid, parent in ((10, 1), (11, 10), (20, 10), (21, 20), (30, 10), (99, 1)):
            self.proc.start(pid, parent)

    def time(self, pid, engines=(20, 30), **options):
        return ServerTime(
            proc=self.proc.path,
            pid=pid,
            root=lambda: 10,
            engines=lambda: set(engines),
            steady_s=lambda: self.at_s,
            **options,
        )


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def test_engines_of_a_server_divide_it_without_rest_and_without_overlap(server):
    """FIELD E8: its own tree to each, and what is nobody's own in equal parts."""
    one, two = server.time(20), server.time(30)
    one.read(), two.read()
    for pid in (10, 11, 20, 21, 30, 99):
        server.proc.work(pid, 1.0)
    used = one.read(), two.read()
    assert [each.ours_s for each in used] == pytest.approx([3.0, 2.0])
    assert used[0].busy_s == pytest.approx(6.0)


def test_what_was_used_before_is_not_counted(server):
    server.proc.work(20, 100.0)
    assert server.time(20).read().ours_s == 0.0


def test_the_time_of_processes_that_come_and_go_is_counted_once(server):
    time = server.time(20, engines=(20,))
    time.read()
    server.at_s += 10.0
    server.proc.start(22, 21)
    server.proc.work(22, 1.0)
    assert time.read().ours_s == pytest.approx(1.0)
    server.proc.work(22, 1.0)
    assert time.read().ours_s == pytest.approx(2.0)
    server.proc.end(22)
    assert time.read().ours_s == pytest.approx(2.0)
    server.at_s += 10.0
    assert time.read().ours_s == pytest.approx(2.0)
    server.proc.start(23, 21)  # too short-lived to be seen
    server.proc.work(23, 0.5)
    server.proc.end(23)
    assert time.read().ours_s == pytest.approx(2.5)
    server.at_s += 10.0
    server.proc.end(21)
    server.proc.work(20, 1.0)
    assert time.read().ours_s == pytest.approx(3.5)


def test_an_engine_that_joins_takes_its_part_from_then_on(server):
    engines = {20}
    time = ServerTime(
        proc=server.proc.path,
        pid=20,
        root=lambda: 10,
        engines=lambda: engines,
        steady_s=lambda: server.at_s,
    )
    time.read()
    server.proc.work(10, 1.0)
    assert time.read().ours_s == pytest.approx(1.0)
    engines.add(30)
    server.at_s += 10.0
    server.proc.work(10, 1.0)
    assert time.read().ours_s == pytest.approx(2.0)
    server.proc.work(10, 1.0)
    server.proc.work(30, 5.0)
    assert time.read().ours_s == pytest.approx(2.5)


def test_only_the_given_cpus_count_as_busy(server):
    time = server.time(20, cpus={1})
    time.read()
    server.proc.work(99, 1.0, cpu=0)
    server.proc.work(99, 2.0, cpu=1)
    assert time.read().busy_s == pytest.approx(2.0)


def test_the_real_proc_shows_what_a_child_of_ours_uses():
    time = ServerTime()
    first = time.read()
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    used = time.read()
    assert 0.28 <= used.ours_s - first.ours_s < 5.0
    assert used.busy_s - first.busy_s >= 0.2


def test_without_a_server_around_it_a_process_counts_itself():
    assert "GREEN_RUN_DIR" not in os.environ
    time = ServerTime()
    time.read()
    assert time.engine_count == 1
