"""The little of ASGI that the HTTP side needs: its types, and JSON answers in vLLM's shape."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def send_json(send: Send, status: int, body: bytes) -> None:
    """Answer with a JSON text."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_error(
    send: Send, status: int, kind: str, message: str, param: str | None = None
) -> None:
    """Answer with an error as vLLM words its own."""
    error = {"message": message, "type": kind, "param": param, "code": status}
    await send_json(send, status, json.dumps({"error": error}).encode())
