"""A double of carbon services: an HTTP server on the loopback that fails when it is told to.

In a test::

    with CarbonApi() as api:
        serve_uk(api, [210.0, 190.0, 170.0])
        ... CarbonConfig(source="uk", zone="GB", url=api.url)
        api.fail("429", retry_after="30")
        api.recover()

From the command line it serves a daily curve under the addresses of all services it knows::

    python -m green_core.testing.carbon_api --port 8123
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from green_core.errors import GreenError

HOST = "127.0.0.1"
Failure: TypeAlias = Literal[
    "400",
    "401",
    "403",
    "404",
    "429",
    "500",
    "503",
    "hang",  # accepts the question and never answers
    "drip",  # a byte of the body every 50 ms, without end
    "drip_head",  # the same within the header
    "refuse",  # no connection
    "truncated",  # half of the body, then the connection ends
    "cut_json",  # half of the body, said to be all
    "html",
    "empty",  # no byte of a body
    "empty_object",
    "null",
    "huge",  # 9 MiB
    "redirect",  # to ``to``
]
DRIP_S = 0.05
HTML = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>Sign in</body></html>"


class Question(msgspec.Struct, frozen=True):
    """What a client asked. Header names are in lower case; ``parts`` are those of the route."""

    path: str
    params: dict[str, str]
    headers: dict[str, str]
    parts: dict[str, str] = {}


class Reply(msgspec.Struct, frozen=True):
    """An answer with a status of its own; anything else a handler returns is sent as JSON."""

    status: int
    body: Any
    headers: dict[str, str] = {}


Handler: TypeAlias = Callable[[Question], Any]


class CarbonApi:
    """The server. It listens from ``with`` on; every method may be called while it runs.

    ``certificate`` (PEM file, key file) makes it speak TLS, see :func:`make_certificate`.
    """

    def __init__(self, port: int = 0, *, certificate: tuple[Path, Path] | None = None) -> None:
        self._port = port
        self._certificate = certificate
        self._routes: list[tuple[list[str], Handler]] = []
        self._failures: list[tuple[str, Failure, dict[str, str]]] = []
        self._server: _Server | None = None
        self.stopping = threading.Event()
        self.requests: list[Question] = []
        self.connections = 0  # accepted so far

    @property
    def url(self) -> str:
        """Base URL, without a slash at its end."""
        return f"{'https' if self._certificate else 'http'}://{HOST}:{self._port}"

    def __enter__(self) -> CarbonApi:
        self._listen()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and end every connection."""
        self.stopping.set()
        self._unlisten()

    def route(self, path: str, answer: Handler | Any) -> None:
        """Answer ``path`` with JSON, or with what a function of the question returns.

        ``{name}`` in place of a segment stands for any; the newest route that fits is taken.
        """
        handler = answer if callable(answer) else lambda _question: answer
        self._routes.insert(0, (path.strip("/").split("/"), handler))

    def fail(self, failure: Failure, *, only: str = "", **details: str) -> None:
        """Fail from now on: every path, or those in which ``only`` occurs.

        Details are ``retry_after`` (the header), ``says`` (the service's words in a 4xx or 5xx)
        and ``to`` (where a redirect leads).
        """
        self._failures.insert(0, (only, failure, details))
        if failure == "refuse":
            self._unlisten()

    def recover(self) -> None:
        """Take back every :meth:`fail`."""
        self._failures = []
        if self._server is None:
            self._listen()

    def failure_of(self, path: str) -> tuple[Failure, dict[str, str]] | None:
        """The failure that was asked for on this path, with its details."""
        for only, failure, details in self._failures:
            if only in path:
                return failure, details
        return None

    def answer_to(self, path: str, **params: str) -> Any:
        """The body that a question would be answered with, without asking it over HTTP."""
        return self.answer(Question(path, params, {})).body

    def answer(self, question: Question) -> Reply:
        """What the routes answer; 404 where none fits."""
        segments = question.path.strip("/").split("/")
        for pattern, handler in self._routes:
            parts = _match(pattern, segments)
            if parts is not None:
                found = handler(msgspec.structs.replace(question, parts=parts))
                return found if isinstance(found, Reply) else Reply(200, found)
        return Reply(404, {"message": f"no route {question.path}"})

    def _listen(self) -> None:
        self._server = _Server((HOST, self._port), self)
        self._port = self._server.server_address[1]
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def _unlisten(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.hang_up()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], api: CarbonApi) -> None:
        self.api = api
        self.connections: set[socket.socket] = set()
        super().__init__(address, _Connection)

    def hang_up(self) -> None:
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, or does not trust us, is no news."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for an acknowledgement
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.api.connections += 1
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing; ``requests`` has it all."""

    def do_GET(self) -> None:
        api = self.server.api
        split = urlsplit(self.path)
        question = Question(
            path=unquote(split.path),
            params=dict(parse_qsl(split.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
        )
        api.requests.append(question)
        found = api.failure_of(question.path)
        if found is None:
            self._send(api.answer(question))
        else:
            self._fail(*found, question)

    def _fail(self, failure: Failure, details: Mapping[str, str], question: Question) -> None:
        if failure.isdigit():
            says = details.get("says", HTTPStatus(int(failure)).phrase)
            retry = {"Retry-After": details["retry_after"]} if "retry_after" in details else {}
            self._send(Reply(int(failure), {"message": says}, retry))
        elif failure == "redirect":
            self._send(Reply(302, b"", {"Location": details["to"]}))
        elif failure in _BODIES:
            kind, body = _BODIES[failure]
            self._send(Reply(200, body, {"Content-Type": kind}))
        elif failure == "cut_json":
            whole = _encode(self.server.api.answer(question).body)
            self._send(Reply(200, whole[: len(whole) // 2]))
        elif failure == "truncated":
            self._send(self.server.api.answer(question), sent_ratio=0.5)
        elif failure == "drip":
            self._head(Reply(200, b""), length=10**6)
            self._drip(b" ")
        elif failure == "drip_head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            self._drip(b"x")
        else:  # hang, and refuse on a connection from before
            if failure == "hang":
                self.server.api.stopping.wait()
            self.close_connection = True

    def _drip(self, drop: bytes) -> None:
        self.close_connection = True
        while not self.server.api.stopping.wait(DRIP_S):
            self.wfile.write(drop)

    def _send(self, reply: Reply, *, sent_ratio: float = 1.0) -> None:
        body = _encode(reply.body)
        self._head(reply, length=len(body))
        self.wfile.write(body[: int(len(body) * sent_ratio)])
        self.close_connection = self.close_connection or sent_ratio < 1

    def _head(self, reply: Reply, *, length: int) -> None:
        self.send_response(reply.status)
        headers = {"Content-Type": "application/json", **reply.headers}
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()


_BODIES: dict[str, tuple[str, bytes]] = {
    "html": ("text/html", HTML),
    "empty": ("application/json", b""),
    "empty_object": ("application/json", b"{}"),
    "null": ("application/json", b"null"),
    "huge": ("application/json", b"[" + b" " * (9 * 1024 * 1024) + b"]"),
}


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for the loopback and its key; needs ``openssl``."""
    certificate, key = folder / "double.pem", folder / "double.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=carbon double", "-addext", f"subjectAltName=IP:{HOST}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run([*command, *names, *files], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise GreenError(f"openssl made no certificate ({error}). Install openssl") from error
    return certificate, key


def _match(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    parts = {}
    for wanted, found in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            parts[wanted[1:-1]] = found
        elif wanted != found:
            return None
    return parts


def _encode(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def main(arguments: list[str] | None = None) -> int:
    """Serve a daily curve until interrupted."""
    from green_core.testing.carbon_services import serve_all

    parser = argparse.ArgumentParser(prog="python -m green_core.testing.carbon_api")
    parser.add_argument("--port", type=int, default=8123, help="port on the loopback")
    # A shell's background job starts with SIGINT ignored, and Python leaves that as it is.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with CarbonApi(parser.parse_args(arguments).port) as api:
        serve_all(api)
        print(f'made-up values at carbon.url = "{api.url}"; stop with Ctrl-C', flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
