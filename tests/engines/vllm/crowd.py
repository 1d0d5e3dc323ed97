"""Clients that wait, and can leave: requests in flight on one event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import httpx
from vllm_server import MODEL, Server

_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, name="clients", daemon=True).start()


class Waiting:
    """A request that will be answered some time; :meth:`hang_up` drops its connection."""

    def __init__(
        self, server: Server, headers: Any = None, path: str = "/v1/completions", **body: Any
    ) -> None:
        self.took_s = 0.0
        self._url = server.url + path
        self._body = {"model": MODEL, "prompt": "Once", "max_tokens": 4, **body}
        self._headers = {**server.headers, **(headers or {})}
        self._task = asyncio.run_coroutine_threadsafe(self._ask(), _loop)

    async def _ask(self) -> httpx.Response:
        started_s = time.monotonic()
        async with httpx.AsyncClient(timeout=600) as client:
            answer = await client.post(self._url, json=self._body, headers=self._headers)
        self.took_s = time.monotonic() - started_s
        return answer

    def answer(self, wait_s: float = 120) -> httpx.Response:
        """Wait for the answer, whatever it is."""
        return self._task.result(wait_s)

    def wait(self, wait_s: float = 120) -> dict[str, Any]:
        """Wait for a good answer."""
        answer = self.answer(wait_s)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ended(self, wait_s: float) -> bool:
        """Whether the client was let go within ``wait_s``, with an answer or an error."""
        try:
            self._task.exception(wait_s)
        except TimeoutError:
            return False
        return True

    def hang_up(self) -> None:
        """Leave without an answer."""
        self._task.cancel()
