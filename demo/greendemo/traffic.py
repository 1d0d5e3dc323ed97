"""Sends a plan to the server and times the answers as a client sees them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from greendemo.plan import Ask

MODEL_NAME = "demo"
TENANTS = {"interactive": "web", "flex": "nightly"}


class RequestFailed(Exception):
    """The server did not answer a request as it should."""


@dataclass(frozen=True)
class Answer:
    """One finished request. Times are seconds; instants count from the start of the arm."""

    urgency: str
    at_s: float
    due_s: float | None
    ttft_s: float
    end_s: float
    itl_s: float
    prompt_tokens: int
    output_tokens: int
    green: dict[str, Any]


async def play(
    client: httpx.AsyncClient,
    plan: list[Ask],
    start_s: float,
    on_answer: Callable[[Answer], None] = lambda answer: None,
) -> list[Answer]:
    """Send each request at its offset from the wall time ``start_s``; the answers in plan order."""

    async def one(ask: Ask) -> Answer:
        await asyncio.sleep(max(0.0, start_s + ask.at_s - time.time()))
        answer = await send(client, ask, start_s)
        on_answer(answer)
        return answer

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(ask)) for ask in plan]
    except ExceptionGroup as failures:
        first = failures.exceptions[0]
        if isinstance(first, RequestFailed | httpx.HTTPError):
            why = str(first) or type(first).__name__
            raise RequestFailed(f"a request failed: {why}") from first
        raise
    return [task.result() for task in tasks]


async def send(client: httpx.AsyncClient, ask: Ask, start_s: float) -> Answer:
    """One streamed chat completion, with marks in the headers."""
    sent_s = time.time()
    headers = {"X-Green-Class": ask.urgency, "X-Green-Tenant": TENANTS[ask.urgency]}
    if ask.due_s is not None:
        headers["X-Green-Deadline-S"] = f"{max(ask.due_s - (sent_s - start_s), 0.0):.3f}"
    body = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": ask.prompt}],
        "max_tokens": ask.max_tokens,
        "ignore_eos": True,  # every answer has max_tokens tokens, so both arms do the same work
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    arrivals_s: list[float] = []
    usage: dict[str, Any] = {}
    started_s = time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        if answer.status_code != httpx.codes.OK:
            raise RequestFailed(f"HTTP {answer.status_code}: {(await answer.aread())[:300]!r}")
        async for chunk in _chunks(answer):
            if any(choice["delta"].get("content") for choice in chunk.get("choices", ())):
                arrivals_s.append(time.perf_counter() - started_s)
            usage = chunk.get("usage") or usage
    took_s = time.perf_counter() - started_s
    if not arrivals_s or "green" not in usage:
        raise RequestFailed(f"an answer without tokens or without usage.green: {usage}")
    tokens = int(usage["completion_tokens"])
    return Answer(
        urgency=ask.urgency,
        at_s=sent_s - start_s,
        due_s=ask.due_s,
        ttft_s=arrivals_s[0],
        end_s=sent_s - start_s + took_s,
        itl_s=(arrivals_s[-1] - arrivals_s[0]) / max(tokens - 1, 1),
        prompt_tokens=int(usage["prompt_tokens"]),
        output_tokens=tokens,
        green=usage["green"],
    )


async def _chunks(answer: httpx.Response) -> Any:
    async for line in answer.aiter_lines():
        if line.startswith("data: {"):
            chunk = json.loads(line.removeprefix("data: "))
            if "error" in chunk:
                raise RequestFailed(str(chunk["error"]))
            yield chunk
