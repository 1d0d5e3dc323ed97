"""A scripted DCGM exporter: a page on a loopback port that a test fills and spoils.

It shows what was collected last, as the real one does::

    with DcgmDouble([DcgmBoard("GPU-1")]) as exporter:
        meters = dcgm_meters(engine, exporter.url)
        exporter.boards[0].energy_j += 500.0
        exporter.collect()
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal

import msgspec

ENERGY, POWER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_POWER_USAGE"
Mood = Literal["page", "html", "half", "empty", "error", "hang", "trickle"]


class DcgmBoard(msgspec.Struct):
    """A board on the page. ``None`` leaves a metric out; ``slices`` are pairs of GPU instance and
    profile (``(1, "3g.40gb")``), ``pods`` names of pods that share the board.
    """

    uuid: str
    energy_j: float | None = 1000.0
    power_w: float | None = 100.0
    model: str = "NVIDIA H100 80GB HBM3"
    host: str = "node-a"
    slices: tuple[tuple[int, str], ...] = ()
    pods: tuple[str, ...] = ()


class DcgmDouble:
    """Serves ``/metrics`` until it is closed; ``mood`` says how it answers, ``requests`` how often
    it was asked. ``hang`` and ``trickle`` last until the mood changes.
    """

    def __init__(self, boards: Sequence[DcgmBoard], *, first_index: int = 0) -> None:
        self.boards = list(boards)
        self.mood: Mood = "page"
        self.requests = 0
        self._first_index = first_index
        self._closing = threading.Event()
        self.collect()
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                double.requests += 1
                double._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def collect(self) -> None:
        """Take the boards' values into the page."""
        self._page = "".join(self._lines())

    def close(self) -> None:
        """Stop listening: the next connection is refused."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> DcgmDouble:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lines(self) -> list[str]:
        lines = ['# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} 41\n']
        for metric, kind in ((POWER, "gauge"), (ENERGY, "counter")):
            lines.append(f"# HELP {metric} As the exporter shows it.\n# TYPE {metric} {kind}\n")
            for index, board in enumerate(self.boards, start=self._first_index):
                value = board.power_w if metric == POWER else board.energy_j
                if value is not None:
                    shown = value if metric == POWER else value * 1e3
                    lines += [f"{metric}{{{each}}} {shown:f}\n" for each in _labels(index, board)]
        return lines

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        mood, body = self.mood, self._page.encode()
        if mood == "html":
            body = b"<html><body>Log in</body></html>\n"
        elif mood == "half":
            body = body[: len(body) - 4]
        elif mood == "empty":
            body = b""
        while mood == "hang" and self._lasts(mood):
            pass
        request.send_response(500 if mood == "error" else 200)
        request.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        request.end_headers()
        for _ in range(1000 if mood == "trickle" else 0):
            if not (self._lasts(mood) and _write(request, b"# still coming\n")):
                break
        _write(request, body)

    def _lasts(self, mood: Mood) -> bool:
        """Whether the mood is still the same, a moment later."""
        return not self._closing.wait(0.01) and self.mood == mood


def _labels(index: int, board: DcgmBoard) -> list[str]:
    first = f'gpu="{index}",UUID="{board.uuid}",device="nvidia{index}",modelName="{board.model}"'
    last = f'Hostname="{board.host}"'
    slices = [f'GPU_I_PROFILE="{name}",GPU_I_ID="{number}",' for number, name in board.slices]
    pods = [f',namespace="default",pod="{pod}",container="server"' for pod in board.pods]
    return [f"{first},{each}{last}{pod}" for each in slices or [""] for pod in pods or [""]]


def _write(request: BaseHTTPRequestHandler, body: bytes) -> bool:
    try:
        request.wfile.write(body)
        request.wfile.flush()
    except OSError:  # nobody waits for it any more
        return False
    return True
