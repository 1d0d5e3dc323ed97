"""ASGI middleware, added through vLLM's own ``--middleware``: the marks that headers carry."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from green_core.errors import MarkError
from vllm_green.front import Answer, current, frontend

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class GreenMiddleware:
    """Begins an :class:`Answer` for each HTTP request; a malformed mark is answered with 400."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            begun = _begin(scope)
        except MarkError as error:
            await _bad_request(send, error)
            return
        token = current.set(begun)
        try:
            await self.app(scope, receive, send)
        finally:
            current.reset(token)


def _begin(scope: Scope) -> Answer:
    headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]]
    reader = frontend().reader
    bearer = next((v for n, v in headers if n == "authorization"), "")
    client = scope.get("client")
    may_mark = reader.may_mark(client[0] if client else None, _token(bearer))
    marks = [(name, value) for name, value in headers if name.startswith("x-green-")]
    if not may_mark or not marks:
        return Answer(may_mark=may_mark, from_server=True)
    return Answer(reader.from_headers(marks), from_server=True)


def _token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _bad_request(send: Send, error: MarkError) -> None:
    body = json.dumps(
        {
            "error": {
                "message": str(error),
                "type": "BadRequestError",
                "param": error.path,
                "code": 400,
            }
        }
    ).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
