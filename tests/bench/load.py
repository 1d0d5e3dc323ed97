"""A fixed amount of work for a server, and what it took."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any, NamedTuple

import httpx
from servers import Server

PROMPT_TOKENS = 32
_LOWEST_ID, _HIGHEST_ID = 100, 10_000  # ordinary tokens in any vocabulary of a language model
_TIMEOUT_S = 300.0


class TokensLost(Exception):
    """An answer failed, or was not what was asked for."""


class Work(NamedTuple):
    """``streams`` clients at once, each sending ``requests`` one after the other."""

    streams: int
    requests: int
    tokens: int

    @property
    def total_tokens(self) -> int:
        """Output tokens in all."""
        return self.streams * self.requests * self.tokens


class Window(NamedTuple):
    """What one piece of work took."""

    tokens_per_s: float
    tokens_per_engine_cpu_s: float
    tokens_per_server_cpu_s: float


class Client:
    """Sends work to servers. Every prompt is new, so no prefix cache helps any arm."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        limits = httpx.Limits(max_connections=None, keepalive_expiry=None)
        self._http = httpx.AsyncClient(timeout=_TIMEOUT_S, limits=limits, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def measure(self, server: Server, work: Work, *, green: bool) -> Window:
        """Do the work and time it. Raises ``TokensLost`` or ``ServerFailed``."""
        prompts = [
            [self._random.randint(_LOWEST_ID, _HIGHEST_ID) for _ in range(PROMPT_TOKENS)]
            for _ in range(work.streams * work.requests)
        ]
        cpu_before = server.cpu_time()
        started_s = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for stream in range(work.streams):
                    mine = prompts[stream :: work.streams]
                    group.create_task(self._stream(server, mine, work.tokens, green))
        except ExceptionGroup as errors:
            server.check()
            raise errors.exceptions[0] from errors
        wall_s = time.perf_counter() - started_s
        cpu = server.cpu_time()
        engine_s = cpu.engine_s - cpu_before.engine_s
        return Window(
            work.total_tokens / wall_s,
            work.total_tokens / engine_s,
            work.total_tokens / (engine_s + cpu.api_s - cpu_before.api_s),
        )

    async def metrics(self, server: Server) -> str:
        """The text of /metrics."""
        response = await self._http.get(f"{server.url}/metrics")
        return response.raise_for_status().text

    async def _stream(
        self, server: Server, prompts: list[list[int]], tokens: int, green: bool
    ) -> None:
        for prompt in prompts:
            check_usage(await self._complete(server, prompt, tokens), tokens, green)

    async def _complete(self, server: Server, prompt: list[int], tokens: int) -> dict[str, Any]:
        body = {
            "model": "bench",
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        last, ended = "", False
        try:
            async with self._http.stream(
                "POST", f"{server.url}/v1/completions", json=body
            ) as response:
                if response.status_code != 200:
                    text = (await response.aread()).decode(errors="replace")
                    raise TokensLost(f"{server.name}: status {response.status_code}: {text}")
                async for line in response.aiter_lines():
                    if line == "data: [DONE]":
                        ended = True
                    elif line:
                        last = line
        except httpx.HTTPError as error:
            raise TokensLost(f"{server.name}: {type(error).__name__}: {error}") from error
        if not ended:
            raise TokensLost(f"{server.name}: an answer broke off after {last!r}")
        usage: dict[str, Any] = json.loads(last.removeprefix("data: ")).get("usage") or {}
        return usage


def check_usage(usage: dict[str, Any], tokens: int, green: bool) -> None:
    """Raise ``TokensLost`` unless all tokens came, from a server of the kind that was meant."""
    if usage.get("completion_tokens") != tokens:
        raise TokensLost(f"{tokens} tokens were asked for, the answer's usage is {usage}")
    if ("green" in usage) != green:
        raise TokensLost(f"a {'green' if green else 'stock'} server answered with usage {usage}")
