"""A ``/proc`` with processes and CPU times that a test sets."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


class ProcTree:
    """Processes and the CPU time of ``cpus`` CPUs, all zero at first. Times are seconds."""

    def __init__(self, folder: Path, *, cpus: int = 2) -> None:
        self.path = folder / "proc"
        self.path.mkdir(parents=True)
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._busy_s = [0.0] * cpus
        self._used_s: dict[int, float] = {}
        self._parents: dict[int, int] = {}
        self._reaped_s: dict[int, float] = {}
        self._write_stat()

    def start(self, pid: int, parent: int) -> None:
        """A process begins."""
        (self.path / str(pid)).mkdir()
        self._parents[pid], self._used_s[pid], self._reaped_s[pid] = parent, 0.0, 0.0
        self._write(pid)

    def end(self, pid: int) -> None:
        """A process ends and its parent hears of it."""
        shutil.rmtree(self.path / str(pid))
        parent, used_s = self._parents.pop(pid), self._used_s.pop(pid) + self._reaped_s.pop(pid)
        if parent in self._used_s:
            self._reaped_s[parent] += used_s
            self._write(parent)

    def work(self, pid: int | None, seconds: float, *, cpu: int = 0) -> None:
        """A process keeps a CPU busy; ``None`` is somebody outside of the tree."""
        self._busy_s[cpu] += seconds
        self._write_stat()
        if pid is not None:
            self._used_s[pid] += seconds
            self._write(pid)

    def _write(self, pid: int) -> None:
        used, reaped = (round(s * self._ticks_per_s) for s in self._times(pid))
        state = f"S {self._parents[pid]} {pid} {pid} 0 -1 0 0 0 0 0 {used} 0 {reaped} 0 20 0 1 0 0"
        (self.path / str(pid) / "stat").write_text(f"{pid} (a) b (c) {state}\n")

    def _times(self, pid: int) -> tuple[float, float]:
        return self._used_s[pid], self._reaped_s[pid]

    def _write_stat(self) -> None:
        ticks = [round(seconds * self._ticks_per_s) for seconds in self._busy_s]
        lines = [f"cpu  {sum(ticks)} 0 0 9000 500 0 0 70 0 0"]
        lines += [f"cpu{cpu} {busy} 0 0 4500 250 0 0 35 0 0" for cpu, busy in enumerate(ticks)]
        (self.path / "stat").write_text("\n".join([*lines, "intr 1 2 3", ""]))
