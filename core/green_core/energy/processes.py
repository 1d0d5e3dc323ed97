"""CPU time of a server's processes against that of the whole machine, read from ``/proc``.

The server is the tree of processes below the one that was asked first to be green (the API
server), or this process's own tree when nobody was. Several engines of one server divide it: each
has its own tree, and an equal part of what belongs to none of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from green_core import activation, procfs

_LOOK_S = 5.0  # how often new processes are looked for
_ENGINE = "engine"  # the part by which an engine's process proves itself live


class CpuTime(msgspec.Struct, frozen=True):
    """CPU seconds since some beginning. ``busy_s`` is that of everybody on the given CPUs."""

    ours_s: float
    busy_s: float


class ServerTime:
    """Reads the CPU time of this engine's part of its server.

    ``cpus`` limits the time of the whole machine to some of its CPUs (``None``: all). ``root`` and
    ``engines`` answer the server's first process and the processes of its engines.
    """

    def __init__(
        self,
        *,
        cpus: Collection[int] | None = None,
        proc: Path = procfs.PROC,
        pid: int | None = None,
        root: Callable[[], int] | None = None,
        engines: Callable[[], Collection[int]] | None = None,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc = proc
        self._cpus = None if cpus is None else {f"cpu{cpu}" for cpu in cpus}
        self._pid = os.getpid() if pid is None else pid
        self._root = root or _server_root
        self._engines = engines or _server_engines
        self._steady_s = steady_s
        self._tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        self._looked_s: float | None = None
        self._weights: dict[int, float] = {}  # processes of ours, and our part of each
        self._ours_s = self._seen_s = 0.0
        self.engine_count = 1

    def read(self) -> CpuTime:
        """The CPU time so far; raises ``OSError`` when ``/proc/stat`` cannot be read."""
        now_s = self._steady_s()
        self._count()
        if self._looked_s is None or now_s - self._looked_s >= _LOOK_S:
            known = set(self._weights)
            self._look()
            # Who was born since the last look has done all of its work since then.
            known = known if self._looked_s is not None else set(self._weights)
            self._seen_s = self._used_by(known)
            self._looked_s = now_s
            self._count()
        return CpuTime(self._ours_s, self._busy_s())

    def _count(self) -> None:
        # Never back: a child's time is missing between its end and its parent's hearing of it.
        used_s = self._used_by(self._weights)
        self._ours_s += max(0.0, used_s - self._seen_s)
        self._seen_s = max(used_s, self._seen_s)

    def _used_by(self, pids: Collection[int]) -> float:
        """Our part of what ``pids`` and their children that have ended have used so far."""
        return sum(self._weights[pid] * self._used_s(pid) for pid in pids if pid in self._weights)

    def _look(self) -> None:
        parents = procfs.parents(self._proc)
        engines = {pid for pid in self._engines() if pid in parents} | {self._pid}
        own = procfs.tree(self._pid, parents)
        common = procfs.tree(self._root(), parents).difference(
            *(procfs.tree(pid, parents) for pid in engines)
        )
        self.engine_count = len(engines)
        self._weights = dict.fromkeys(common, 1.0 / len(engines)) | dict.fromkeys(own, 1.0)

    def _used_s(self, pid: int) -> float:
        """User and system time of a process and of its children that have ended."""
        return sum(map(int, procfs.stat_fields(pid, self._proc)[11:15])) * self._tick_s

    def _busy_s(self) -> float:
        """Time the CPUs were busy: user, nice, system, irq and softirq of proc_stat(5).

        Guests are part of user time already. Time waiting for input or stolen by a hypervisor
        drew no power here for anybody that could be named.
        """
        ticks = 0
        with (self._proc / "stat").open(encoding="ascii") as lines:
            for line in lines:
                name, *values = line.split()
                if not name.startswith("cpu"):
                    break
                if name == "cpu" if self._cpus is None else name in self._cpus:
                    user, nice, system, _, _, irq, softirq = map(int, values[:7])
                    ticks += user + nice + system + irq + softirq
        return ticks * self._tick_s


def _server_root() -> int:
    return activation.owner_pid() if activation.ENV_RUN_DIR in os.environ else os.getpid()


def _server_engines() -> set[int]:
    if activation.ENV_RUN_DIR not in os.environ:
        return set()
    return {int(facts["pid"]) for part, facts in activation.proofs() if part == _ENGINE}
