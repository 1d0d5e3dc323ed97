"""A real ``vllm serve`` process for tests: start, configure, observe, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from green_core.export.ledger import read_requests

PLUGINS = Path(__file__).parents[2] / "plugins"
MODEL = "smol"
BOOT_S = 300.0
WAIT_S = 60.0
_SIZE = (
    *("--dtype", "float32", "--enforce-eager", "--max-model-len", "1024"),
    *("--max-num-seqs", "16", "--max-num-batched-tokens", "1024"),
    *("--block-size", "32", "--num-gpu-blocks-override", "64"),
)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(true: Callable[[], Any], what: str, wait_s: float = WAIT_S) -> Any:
    """Poll ``true`` until it answers something; fail naming ``what`` otherwise."""
    deadline = time.monotonic() + wait_s
    while not (value := true()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {wait_s:g} s in vain for {what}")
        time.sleep(0.1)
    return value


class Server:
    """One server; ``folder`` gets its log, config, ledger and state.

    With an ``api_key`` it guards its API, and :attr:`headers` are what opens it.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        config: str | None = None,
        env: dict[str, str] | None = None,
        api_key: str = "",
    ) -> None:
        self.folder = folder
        self.config_path = folder / "green.toml"
        self.ledger_path = folder / "ledger.sqlite"
        self.log_path = folder / "server.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        if config is not None:
            self.config_path.write_text(config)
            arguments = (*arguments, "--green-config", str(self.config_path))
        self.api_key = api_key
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if api_key:
            arguments = (*arguments, "--api-key", api_key)
        model = os.environ["GREENSERVE_TEST_MODEL"]
        vllm = Path(sys.executable).with_name("vllm")
        command = [str(vllm), "serve", model, "--served-model-name", MODEL]
        command += ["--host", "127.0.0.1", "--port", str(self.port), *_SIZE, *arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GREEN_")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # imports would take a minute
        environment["PYTHONPATH"] = str(PLUGINS)
        environment["XDG_STATE_HOME"] = str(folder / "state")  # its starts are its own
        environment |= env or {}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.client = httpx.Client(base_url=self.url, timeout=120, headers=self.headers)

    def wait_healthy(self) -> Server:
        """Wait for the boot; its log is in the error when it fails."""
        try:
            until(self._healthy_or_dead, "the server to be healthy", BOOT_S)
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"{error}\n{self.log_tail()}") from error
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended at start-up\n{self.log_tail()}")
        return self

    def _healthy_or_dead(self) -> bool:
        if self.process.poll() is not None:
            return True
        with contextlib.suppress(httpx.HTTPError):
            return self.client.get("/health").status_code == 200
        return False

    @property
    def log(self) -> str:
        """Everything the server wrote so far."""
        return self.log_path.read_text(errors="replace")

    def log_tail(self) -> str:
        """The end of the log."""
        return "\n".join(self.log.splitlines()[-40:])

    def complete(self, prompt: str = "Once", headers: Any = None, **body: Any) -> dict[str, Any]:
        """One completion; the answer must be 200."""
        answer = self.post("/v1/completions", headers=headers, prompt=prompt, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, headers: Any = None, **body: Any) -> httpx.Response:
        """A POST with the model's name in the body."""
        return self.client.post(path, json={"model": MODEL, **body}, headers=headers)

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of ``name`` that carry ``labels``."""
        return sum(value for value in self.samples(name, **labels))

    def samples(self, name: str, **labels: str) -> Iterator[float]:
        """Values of the samples of ``name`` that carry ``labels``."""
        for family in text_string_to_metric_families(self.client.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    yield sample.value

    def status(self) -> dict[str, Any]:
        """The status page."""
        answer = self.client.get("/v1/green/status")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def configure(self, text: str) -> None:
        """Replace the config file, as an editor does."""
        draft = self.config_path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.config_path)

    def ledger(self, request_id: str = "") -> list[dict[str, Any]]:
        """Ledger rows, of those requests whose id contains ``request_id``."""
        rows = read_requests(self.ledger_path)
        return [row for row in rows if request_id in row["request_id"]]

    def engine_pid(self) -> int:
        """The EngineCore process of this server."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
        raise AssertionError("no EngineCore process")

    def terminate(self, wait_s: float = 60.0) -> int:
        """SIGTERM; answers the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(wait_s)

    def kill(self) -> None:
        """End it and everything it started."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds used by a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
