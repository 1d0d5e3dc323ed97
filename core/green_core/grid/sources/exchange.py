"""One GET with a bound on the whole answer, which httpx alone does not give: it bounds each read.

A resolver that hangs, several addresses tried in turn, or a server that drips bytes would each
take longer than one time-out. So every question has a thread of its own, and it is the caller who
stops waiting. The thread of a question that was given up ends by itself: its socket is shut down.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any

import httpx
import msgspec

ENCODINGS = "gzip, deflate"  # those that are unpacked within bounds
MAX_BYTES = 8 * 1024 * 1024
_PUBLIC = frozenset({"accept", "accept-encoding", "connection", "host", "user-agent"})


class Answer(msgspec.Struct, frozen=True):
    """What came back. Header values are empty where the header is missing; ``secrets`` are
    header values that were sent and must not be shown.
    """

    status: int
    body: bytes
    content_type: str
    retry_after: str
    location: str
    secrets: tuple[str, ...]


class Cut(Exception):
    """The body cannot be had whole; the message completes "the service ..."."""


class Late(Exception):
    """No whole answer in time, or the line was closed meanwhile."""


class _Body:
    """The bytes of an answer, unpacked no further than ``MAX_BYTES``."""

    def __init__(self, encoding: str) -> None:
        encoding = encoding.strip().lower()
        if encoding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            raise Cut(f"sent an answer in an encoding that was not asked for ({encoding!r:.40})")
        is_packed = encoding not in {"", "identity"}
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if is_packed else None
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> None:
        """Raises ``Cut`` when it is too much, ``zlib.error`` when it is damaged."""
        if self._unpack is not None:
            chunk = self._unpack.decompress(chunk, MAX_BYTES + 1 - len(self._bytes))
        self._bytes += chunk
        if len(self._bytes) > MAX_BYTES:
            raise Cut(f"answered more than {MAX_BYTES // 1024**2} MiB")

    def whole(self) -> bytes:
        """All of it. Raises ``zlib.error`` when the end is missing."""
        if self._unpack is not None and self._bytes and not self._unpack.eof:
            raise zlib.error
        return bytes(self._bytes)


class Line:
    """A client and its connection, for one question at a time. Of no use once ``is_given_up``."""

    def __init__(self, client: httpx.Client) -> None:
        self.is_given_up = False
        self._client = client
        self._stream: Any = None
        self._pending: Future[Answer] | None = None

    def ask(self, url: str, params: Mapping[str, str], timeout_s: float) -> Answer:
        """The answer, at latest after ``timeout_s``.

        Raises ``Late``, ``Cut``, what httpx raises, and what the client's ``auth`` raises.
        """
        answer: Future[Answer] = Future()
        self._pending = answer
        deadline_s = time.monotonic() + timeout_s
        threading.Thread(
            target=self._work,
            args=(answer, url, params, deadline_s),
            name="green-carbon-http",
            daemon=True,
        ).start()
        try:
            try:
                return answer.result(timeout_s)
            except TimeoutError:
                self._give_up(answer)
                return answer.result(0)
        except (CancelledError, TimeoutError, httpx.TimeoutException) as error:
            raise Late from error

    def close(self) -> None:
        """Close the connection; a question that is under way fails at once. From any thread."""
        if self._pending is None or not self._give_up(self._pending):
            self._client.close()

    def _give_up(self, answer: Future[Answer]) -> bool:
        """Leave the question to its thread, which then closes the client; false if it is over.

        Closing the socket here would free its number while that thread still reads from it;
        shutting it down only wakes the thread.
        """
        if not answer.cancel():
            return False
        self.is_given_up = True
        sock = self._stream.get_extra_info("socket") if self._stream is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        return True

    def _work(
        self, answer: Future[Answer], url: str, params: Mapping[str, str], deadline_s: float
    ) -> None:
        try:
            try:
                found = self._exchange(url, params, deadline_s)
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(found)
        except InvalidStateError:  # given up: nobody else closes it
            self._client.close()

    def _exchange(self, url: str, params: Mapping[str, str], deadline_s: float) -> Answer:
        trace = {"trace": self._note}
        with self._client.stream("GET", url, params=params, extensions=trace) as response:
            body = _Body(response.headers.get("content-encoding", ""))
            try:
                for chunk in response.iter_raw():
                    body.add(chunk)
                    if time.monotonic() > deadline_s:
                        raise Late
                whole = body.whole()
            except (httpx.RemoteProtocolError, zlib.error) as error:
                raise Cut("sent an answer that is cut short or damaged") from error
            headers = response.headers
            return Answer(
                status=response.status_code,
                body=whole,
                content_type=headers.get("content-type", ""),
                retry_after=headers.get("retry-after", ""),
                location=headers.get("location", "") if response.is_redirect else "",
                secrets=tuple(
                    value.split()[-1]
                    for name, value in response.request.headers.items()
                    if name not in _PUBLIC and value.strip()
                ),
            )

    def _note(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep what ``connect_tcp`` and ``start_tls`` return (httpx's ``trace`` extension)."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]
