"""ASGI middleware, added through vLLM's own ``--middleware``: marks in headers, our metrics, and
the status page of :mod:`vllm_green.status`.

vLLM serves /metrics from a registry that it makes anew for each scrape when there are several
API servers, so ours are appended to the answer instead of registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from green_core.errors import MarkError
from vllm_green.asgi import Receive, Scope, Send, send_error
from vllm_green.front import Answer, current, faults, frontend
from vllm_green.status import offer_page


class GreenMiddleware:
    """Begins an :class:`Answer` for each HTTP request; a malformed mark is answered with 400.

    A request that nobody will answer any more, since the engine was shut down, gets a 503.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the app's own start and end (``lifespan``)."""
        if scope["type"] == "lifespan":
            offer_page(scope["app"])
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            begun = _begin(scope)
        except MarkError as error:
            await send_error(send, 400, "BadRequestError", str(error), error.path)
            return
        if scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/") == "/metrics":
            scope, send = _plainly(scope), _Appending(send)
        token = current.set(begun)
        waiting = _Waiting(send)
        _waiting.add(waiting)
        try:
            await self.app(scope, receive, waiting)
        except asyncio.CancelledError:
            if not waiting.refuses:
                raise
        finally:
            _waiting.discard(waiting)
            current.reset(token)
        if waiting.refuses:
            text = "The server is shutting down; send the request again, to another one if you can"
            await send_error(send, 503, "ServiceUnavailableError", text)


class _Waiting:
    """A request whose answer has not begun; after :meth:`stop` it is refused instead."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.task = asyncio.current_task()
        self.refuses = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if self.refuses:
            return  # what the app makes of being cancelled
        _waiting.discard(self)  # an answer that has begun is not ours to end
        await self._send(message)

    def stop(self) -> None:
        if self in _waiting and self.task is not None:
            self.refuses = True
            self.task.cancel()


_waiting: set[_Waiting] = set()
_GRACE_S = 0.5


def wrap_shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    """After the engine client is shut down, answer those who would wait for ever.

    With several API servers vLLM stops its client before its engine, so whoever still waits
    (a held request above all) would hang until the process is killed.
    """

    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        for waiting in list(_waiting):
            if waiting.task is not None:
                loop = waiting.task.get_loop()
                loop.call_soon_threadsafe(loop.call_later, _GRACE_S, waiting.stop)
        return result

    return shutdown


class _Appending:
    """Passes an answer on with the engine's metrics behind it, if it is plain exposition text."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: MutableMapping[str, Any] | None = None
        self._body = bytearray()

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and _is_plain_text(message):
            self._start = message
            return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        try:
            self._body += await asyncio.to_thread(frontend().metrics_text)
        except Exception:
            faults.note("metrics")  # the engine's own are still served
        kept = [(n, v) for n, v in self._start["headers"] if n.lower() != b"content-length"]
        length = (b"content-length", str(len(self._body)).encode())
        await self._send({**self._start, "headers": [*kept, length]})
        await self._send({"type": "http.response.body", "body": bytes(self._body)})


def _plainly(scope: Scope) -> Scope:
    """The same request without what would make the answer compressed or OpenMetrics."""
    left_out = (b"accept", b"accept-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name not in left_out]
    return {**scope, "headers": headers}


def _is_plain_text(start: MutableMapping[str, Any]) -> bool:
    headers = {name.lower(): value for name, value in start["headers"]}
    plain = headers.get(b"content-type", b"").startswith(b"text/plain")
    return start["status"] == 200 and plain and b"content-encoding" not in headers


def _begin(scope: Scope) -> Answer:
    headers = [(n.decode("latin-1"), _text(v)) for n, v in scope["headers"]]
    reader = frontend().reader
    bearer = next((v for n, v in headers if n == "authorization"), "")
    client = scope.get("client")
    may_mark = reader.may_mark(client[0] if client else None, _token(bearer))
    marks = [(name, value) for name, value in headers if name.startswith("x-green-")]
    if not may_mark or not marks:
        return Answer(may_mark=may_mark, from_server=True)
    return Answer(reader.from_headers(marks), from_server=True)


def _text(value: bytes) -> str:
    """Tenants may be UTF-8, as in a body; what is not is read as HTTP's old Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
