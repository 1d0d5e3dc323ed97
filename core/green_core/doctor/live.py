"""Asks a running server for its status page."""

from __future__ import annotations

import re
import time
from typing import Any

import httpx
import msgspec

from green_core.doctor.facts import Status
from green_core.errors import GreenError
from green_core.export.text import printable

STATUS_PATH = "/v1/green/status"
TIMEOUT_S = 10.0  # for each part of an exchange
_MAX_BYTES = 16 * 2**20
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_VERSION = re.compile(r'greenserve_info\{[^}]*\bversion="([^"]*)"')


class LiveServer:
    """A server by its base URL. ``key`` is sent once the server asks for one, and never shown."""

    def __init__(self, url: str, *, key: str = "") -> None:
        base = _base(url)
        # Without the user's name and password, which a URL may hold.
        self.name = printable(str(base.copy_with(username=None, password=None)).rstrip("/"))
        self._key = key
        try:
            self._client = httpx.Client(
                base_url=base, timeout=TIMEOUT_S, trust_env=base.host not in _LOOPBACK
            )
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
            raise GreenError(
                f"This shell's network settings cannot be used ({error}). Check HTTP_PROXY, "
                "HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
            ) from error

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def status(self) -> Status:
        """What the server says about itself; ``GreenError`` says in one line why it cannot."""
        code, body, to = self._get(STATUS_PATH)
        if code == 200:
            return self._decode(body)
        if code in {401, 403}:
            raise GreenError(
                f"{self.name} refuses the API key ({code}). Check VLLM_API_KEY, OPENAI_API_KEY or "
                "--api-key-file"
                if self._key
                else f"{self.name} wants an API key ({code}). Set VLLM_API_KEY or OPENAI_API_KEY, "
                "or give --api-key-file"
            )
        if code in {404, 405}:
            raise GreenError(self._without_page())
        if code == 503:
            raise GreenError(f"{self.name} has no status yet (503): {_excerpt(body)}")
        if to:
            raise GreenError(
                f"{self.name} sends us on to {printable(to)} ({code}). Give that address"
            )
        raise GreenError(f"{self.name}{STATUS_PATH} answers {code}: {_excerpt(body)}")

    def health(self) -> str:
        """How ``/health`` answers, in words."""
        started_s = time.perf_counter()
        try:
            code, _, _ = self._get("/health")
        except GreenError:
            return "no answer"
        return f"{code} in {(time.perf_counter() - started_s) * 1000:.0f} ms"

    def _get(self, path: str) -> tuple[int, bytes, str]:
        """Status code, body and where a redirect leads."""
        found = self._ask(path, {})
        if found[0] == 401 and self._key:
            found = self._ask(path, {"Authorization": f"Bearer {self._key}"})
        return found

    def _ask(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, str]:
        give_up_s = time.monotonic() + 2 * TIMEOUT_S
        try:
            with self._client.stream("GET", path, headers=headers) as answer:
                body = b""
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > _MAX_BYTES or time.monotonic() > give_up_s:
                        raise GreenError(
                            f"{self.name}{path} does not come to an end ({len(body)} bytes so "
                            "far). Is this the server?"
                        )
                return answer.status_code, body, answer.headers.get("location", "")
        except httpx.TimeoutException:
            raise GreenError(
                f"{self.name} did not answer within {TIMEOUT_S:g} s. Is it overloaded?"
            ) from None
        except (httpx.ProtocolError, httpx.DecodingError) as error:
            raise GreenError(
                f"{self.name} answers, but not as HTTP should ({printable(str(error))}). Check the "
                "port, and whether it is http or https"
            ) from None
        except httpx.TransportError as error:
            raise GreenError(
                f"No server can be reached at {self.name} ({printable(str(error))}). "
                "Check the address (http or https) and port, and whether it is up"
            ) from None

    def _decode(self, body: bytes) -> Status:
        try:
            tree: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise GreenError(
                f"{self.name}{STATUS_PATH} answers no JSON: {_excerpt(body)}. Is it the server "
                "itself, or a proxy in front of it?"
            ) from None
        if not isinstance(tree, dict) or "greenserve_version" not in tree:
            raise GreenError(
                f"{self.name}{STATUS_PATH} answers JSON that is no status: {_excerpt(body)}. Is it "
                "the server itself, or a proxy in front of it?"
            )
        try:
            return msgspec.convert(tree, Status)
        except msgspec.ValidationError as error:
            raise GreenError(
                f"{self.name} runs greenserve {printable(str(tree['greenserve_version'])[:40])}, "
                f"whose status reads differently ({printable(str(error))}). Use its own version of "
                "the command"
            ) from None

    def _without_page(self) -> str:
        """Why there is no page: an older greenserve shows itself on ``/metrics``."""
        try:
            code, body, _ = self._get("/metrics")
        except GreenError:
            code, body = 0, b""
        text = body.decode("utf-8", "replace") if code == 200 else ""
        if match := _VERSION.search(text):
            return (
                f"{self.name} runs greenserve {printable(match[1])}, which has no status page (or "
                "its API is below another path). Update greenserve there"
            )
        if not text:  # it may be any server, or any path of the right one
            return (
                f"{self.name} answers, and has neither {STATUS_PATH} nor /metrics. Check the "
                "address (http://HOST:PORT, with the path before /v1 if there is one)"
            )
        return f"{self.name} answers, but without greenserve. Start it with --plugins green"


def _base(url: str) -> httpx.URL:
    """The base of an address that may end in ``/``, ``/v1`` or the page's own path."""
    try:
        given = httpx.URL(url).copy_with(query=None, fragment=None)
        path = given.path.rstrip("/").removesuffix(STATUS_PATH).removesuffix("/v1")
        base = given.copy_with(path=path or "/")
    except httpx.InvalidURL:
        base = httpx.URL("")
    if base.scheme not in {"http", "https"} or not base.host:
        raise GreenError("--live: no address of a server. Give it like http://127.0.0.1:8000")
    return base


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return repr(text[:120]) if text else "nothing"
