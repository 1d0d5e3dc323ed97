"""A real vLLM server with green on, and its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from green_core.activation import ENV_EPOCH
from greendemo.traffic import MODEL_NAME

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
GROUP_TIMEOUT_S = 5.0  # for the engine to end after the API server
HOST = "127.0.0.1"
# The prefix cache is off so that the second arm gains nothing from the first one's prompts.
OPTIONS = (
    *("--dtype", "float32", "--enforce-eager", "--no-enable-prefix-caching"),
    *("--max-model-len", "512", "--max-num-seqs", "16", "--max-num-batched-tokens", "512"),
    *("--shutdown-timeout", "10"),  # by default vLLM gives the engine no time to close the ledger
)
SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)


class ServerFailed(Exception):
    """The server did not start, or died."""


class Server:
    """A running ``vllm serve``. All its processes are in one group of their own."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    async def ready(self, client: httpx.AsyncClient, tell: Callable[[str], None]) -> None:
        """Wait until it answers."""
        started_s = time.monotonic()
        while (waited_s := time.monotonic() - started_s) < START_TIMEOUT_S:
            self.check()
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get("/health")).status_code == httpx.codes.OK:
                    return
            tell(f"vLLM starts, {waited_s:.0f} s")
            await asyncio.sleep(0.5)
        raise ServerFailed(f"vLLM did not answer within {START_TIMEOUT_S:.0f} s")

    def check(self) -> None:
        """Raise if it has ended."""
        if (code := self.process.poll()) is not None:
            raise ServerFailed(f"vLLM ended with exit code {code}")

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for what is left of its group."""
        try:
            if self.process.poll() is None:
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(STOP_TIMEOUT_S)
                    self._wait_for_group()
        finally:  # also when a second Ctrl-C ends the wait
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _wait_for_group(self) -> None:
        give_up_s = time.monotonic() + GROUP_TIMEOUT_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < give_up_s:
                os.killpg(self.process.pid, 0)
                time.sleep(0.05)


@contextlib.contextmanager
def serving(*, model: Path, config: Path, log: Path, anchor_s: float) -> Iterator[Server]:
    """Start the server, its replay beginning at the wall time ``anchor_s``; stop it at the end."""
    port = free_port()
    command = [str(beside_python("vllm")), "serve", str(model), "--served-model-name", MODEL_NAME]
    command += ["--host", HOST, "--port", str(port), *OPTIONS]
    command += ["--plugins", "green", "--green-config", str(config)]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=environment(anchor_s),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours to handle; and one group to clean up
        )
    server = Server(process, f"http://{HOST}:{port}")
    try:
        yield server
    finally:
        server.stop()


def environment(anchor_s: float) -> dict[str, str]:
    """This process's variables, without what would change the demo; offline and light."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GREEN_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # without cached bytecode vLLM takes minutes to start
    defaults = {
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return {**defaults, **kept, ENV_EPOCH: repr(anchor_s)}


def beside_python(name: str) -> Path:
    """A command of the environment that runs this demo."""
    return Path(sys.executable).with_name(name)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def samples(page: str, name: str) -> list[float]:
    """The values of one metric on a /metrics page."""
    return [float(m["value"]) for m in SAMPLE.finditer(page) if m["name"] == name]
