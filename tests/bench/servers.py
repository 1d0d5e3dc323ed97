"""Real vLLM servers for a measurement: started, waited for, and gone on every way out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 20.0
MAX_RUNNING = 16
MAX_STEP_TOKENS = 1024
_CPUCLOCK_SCHED = 2


class ServerFailed(Exception):
    """A server did not start or did not live."""


class CpuTime(NamedTuple):
    """Of the engine's processes (engine core and workers), and of the API server."""

    engine_s: float
    api_s: float


class Server:
    """One ``vllm serve`` on the loopback interface, with its process tree."""

    def __init__(self, name: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self._process = process
        self._log = log

    def wait_ready(self) -> None:
        """Return once it answers; raises ``ServerFailed`` with the end of its log."""
        give_up_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < give_up_s:
            self.check()
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=5.0).status_code == 200:
                    return
            time.sleep(0.5)
        raise self.failure(f"was not ready within {START_TIMEOUT_S:g} s")

    def check(self) -> None:
        """Raise ``ServerFailed`` if it has ended."""
        if self._process.poll() is not None:
            raise self.failure(f"ended with status {self._process.returncode}")

    def failure(self, what: str) -> ServerFailed:
        """An error that shows the end of the server's log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        return ServerFailed(f"the {self.name} server {what}. Its last lines:\n" + "\n".join(lines))

    def cpu_time(self) -> CpuTime:
        """CPU seconds used so far."""
        api = self._process.pid
        return CpuTime(sum(_cpu_s(pid) for pid in _group(api) if pid != api), _cpu_s(api))

    def stop(self) -> None:
        """End the whole process tree."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def running(
    name: str, port: int, model: str, folder: Path, flags: Sequence[str] = ()
) -> Iterator[Server]:
    """A starting server; see :meth:`Server.wait_ready`. It ends with the block."""
    log = folder / f"{name}.log"
    command = [
        os.path.join(os.path.dirname(sys.executable), "vllm"), "serve", model,
        "--served-model-name", "bench", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024",
        "--max-num-seqs", str(MAX_RUNNING), "--max-num-batched-tokens", str(MAX_STEP_TOKENS),
        "--disable-uvicorn-access-log", *flags,
    ]  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GREEN_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # all it starts is one process group
        )
    server = Server(name, port, process, log)
    with _ended_with_us(process.pid):
        try:
            yield server
        finally:
            server.stop()


def end_cleanly_on_signals() -> None:
    """Turn signals that would end this process at once into an orderly exit."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signum, frame: sys.exit(128 + signum))


@contextlib.contextmanager
def _ended_with_us(leader: int) -> Iterator[None]:
    """Should this process be killed, the group of ``leader`` is killed too.

    A shell waits for the end of a pipe that only this process holds open.
    """
    command = ["sh", "-c", f"read _; kill -KILL -{leader}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watch:
        try:
            yield
        finally:
            watch.kill()


def _group(leader: int) -> list[int]:
    """The processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold anything; state, parent and group follow it.
            _, _, rest = path.read_text(encoding="utf-8", errors="replace").rpartition(")")
            if int(rest.split()[2]) == leader:
                found.append(int(path.parent.name))
    return found


def _cpu_s(pid: int) -> float:
    """CPU time of a process with all its threads, to the nanosecond (its POSIX CPU clock)."""
    try:
        return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:  # it has ended
        return 0.0
