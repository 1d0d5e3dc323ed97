"""One question to a carbon service over HTTP: JSON, or a ``SignalUnavailable`` that says why."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import ssl
import stat
import time
from collections.abc import Generator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from green_core.config import ENV_TOKEN, CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.export.text import greenserve_version
from green_core.grid.sources.exchange import ENCODINGS, Answer, Cut, Late, Line

LONGEST_TOKEN = 16_384  # more fits into no header
WORDS = 200  # characters of a service's own words that a message repeats
MOST_RETRY_S = 86_400.0  # a service that asks for more is asked again after a day
_REASONS = {401: "auth", 403: "forbidden", 407: "network", 429: "rate_limited"}
_SAYS = {
    401: "does not accept the token",
    403: "refuses access",
    404: "knows nothing under this address",
    407: "cannot be asked: the proxy wants a password",
    429: "asks for fewer questions",
}


def token(carbon: CarbonConfig) -> str:
    """The secret for the service: ``carbon.token_file``, else ``GREEN_CARBON_TOKEN``, else "".

    Read again on every call, so that a rotated secret needs no restart. Raises ``ConfigError``
    when the file cannot be read or the secret is not one line of printable ASCII.
    """
    where, secret = ENV_TOKEN, os.environ.get(ENV_TOKEN, "").strip()
    if carbon.token_file:
        where = "carbon.token_file"
        try:
            secret = _read(carbon.token_file).strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ConfigError(
                where,
                f"{carbon.token_file!r} cannot be read ({why})",
                remedy="Name a file that holds the token and nothing else",
            ) from None
        if not secret:
            raise ConfigError(
                where, f"{carbon.token_file!r} is empty", remedy="Write the token into it"
            )
    if not (secret.isascii() and secret.isprintable()) or len(secret) > LONGEST_TOKEN:
        raise ConfigError(
            where, "is not one line of printable ASCII", remedy="Put the token there, nothing else"
        )
    return secret


def _read(path: str) -> str:
    """The text of a file, no more than a token may have; never waits, as a pipe would make it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return os.read(descriptor, 2 * LONGEST_TOKEN).decode("utf-8-sig")
    finally:
        os.close(descriptor)


class TokenAuth(httpx.Auth):
    """Sends the token in a header of its own, read anew for each question.

    ``remedy`` is what a user who has none should do.
    """

    def __init__(
        self, carbon: CarbonConfig, header: str, *, prefix: str = "", remedy: str = ""
    ) -> None:
        self._carbon, self._header, self._prefix = carbon, header, prefix
        self._remedy = remedy

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header, once."""
        request.headers[self._header] = self._prefix + needed_token(self._carbon, self._remedy)
        yield request


def needed_token(carbon: CarbonConfig, remedy: str) -> str:
    """The token; without one ``SignalUnavailable`` ("auth"), and ``remedy`` says what to do."""
    secret = token(carbon)
    if not secret:
        raise SignalUnavailable(
            f"no token: {ENV_TOKEN} and carbon.token_file are empty. {remedy}".rstrip(),
            reason="auth",
        )
    return secret


class Http:
    """A client of one service, for one thread at a time.

    Proxies, ``NO_PROXY`` and ``SSL_CERT_FILE`` come from the environment, as httpx reads them.
    Redirects are not followed: the token would go with them.
    """

    def __init__(
        self,
        carbon: CarbonConfig,
        base_url: str,
        *,
        service: str,
        headers: Mapping[str, str] | None = None,
        auth: httpx.Auth | None = None,
    ) -> None:
        self._carbon = carbon
        self._base_url = _checked(base_url)
        self._service = service
        self._headers = {
            "accept": "application/json",
            "accept-encoding": ENCODINGS,
            "user-agent": f"greenserve/{greenserve_version()}",
            **(headers or {}),
        }
        self._auth = auth
        self._verify = _trust(carbon.ca_file)
        self._line: Line | None = None

    def __repr__(self) -> str:
        """Where it asks; headers may hold a secret."""
        return f"Http({self._base_url!r})"

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        reasons: Mapping[int, str] | None = None,
    ) -> Any:
        """The JSON under ``path``, at latest after ``carbon.timeout_s``.

        ``reasons`` says what a status means at this service (``{404: "zone"}``), where that is
        not what it means everywhere. Raises ``SignalUnavailable``, and nothing else.
        """
        answer = self._ask(path, dict(params or {}))
        if answer.status != httpx.codes.OK:
            raise self._refusal(answer, {**_REASONS, **(reasons or {})})
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            what = _kind_of(answer)
            raise self._error(f"answered {what} where JSON was expected", "malformed") from None

    def close(self) -> None:
        """Close the connection, if one is open; a question under way fails at once."""
        if self._line is not None:
            self._line.close()
            self._line = None

    # --- asking ---------------------------------------------------------------------------

    def _ask(self, path: str, params: dict[str, str]) -> Answer:
        line = self._line
        if line is None or line.is_given_up:
            line = self._line = self._connect()
        timeout_s = self._carbon.timeout_s
        try:
            return line.ask(self._base_url + path, params, timeout_s)
        except SignalUnavailable as error:  # no token
            raise self._error(str(error), error.reason) from None
        except ConfigError as error:  # the token's file
            raise self._error(str(error), "auth") from None
        except Late:
            raise self._error(f"gave no whole answer within {timeout_s:g} s", "timeout") from None
        except Cut as error:
            raise self._error(str(error), "malformed") from None
        except Exception as error:
            proxy = "through the proxy " if isinstance(error, httpx.ProxyError) else ""
            why = self._why(error)
            raise self._error(f"cannot be reached {proxy}({why})", "network") from None

    def _connect(self) -> Line:
        try:
            client = httpx.Client(
                headers=self._headers,
                auth=self._auth,
                verify=self._verify,
                timeout=self._carbon.timeout_s,
                follow_redirects=False,
            )
        except Exception as error:  # the environment's proxies or CA file
            why = self._why(error)
            raise self._error(
                f"cannot be asked: the proxy or CA settings of the environment fail ({why}). "
                "Look at HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY and SSL_CERT_FILE",
                "network",
            ) from None
        return Line(client)

    # --- words ----------------------------------------------------------------------------

    def _refusal(self, answer: Answer, reasons: Mapping[int, str]) -> SignalUnavailable:
        status = answer.status
        if answer.location:
            target = self._words(answer.location, answer.secrets)
            return self._error(
                f"redirects to {target} (HTTP {status}), which is not followed. "
                "Set carbon.url to the address that answers",
                "server_error",
            )
        if status == httpx.codes.NO_CONTENT:
            return self._error("answered without a value (HTTP 204)", "empty")
        says = _SAYS.get(status, "failed" if status >= 500 else "refuses the question")
        own = self._words(_said(answer), answer.secrets)
        return self._error(
            f"{says} (HTTP {status}" + (f': "{own}")' if own else ")"),
            reasons.get(status, "server_error"),
            retry_after_s=_retry_after_s(answer.retry_after),
        )

    def _error(
        self, problem: str, reason: str, *, retry_after_s: float | None = None
    ) -> SignalUnavailable:
        return SignalUnavailable(
            f"{self._service}: {problem}", reason=reason, retry_after_s=retry_after_s
        )

    def _why(self, error: Exception) -> str:
        """The error's own words, unless they may quote a part of a URL or header with a secret."""
        if isinstance(error, httpx.InvalidURL | httpx.LocalProtocolError):
            return type(error).__name__
        return self._words(str(error)) or type(error).__name__

    def _words(self, text: str, secrets: tuple[str, ...] = ()) -> str:
        """Somebody else's words on one printable line, without what is secret."""
        with contextlib.suppress(ConfigError):
            secrets = (*secrets, token(self._carbon))
        for secret in filter(None, secrets):
            text = text.replace(secret, "...")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= WORDS else line[: WORDS - 3] + "..."


def _checked(base_url: str) -> str:
    """The URL without a slash at its end; ``ConfigError`` when it is none, or holds a secret."""
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host or url.query or url.fragment:
        raise ConfigError(
            "carbon.url",
            "is not the base URL of a service",
            remedy='Write it like "https://carbon.example.org:8443/base"',
        )
    if url.userinfo:
        raise ConfigError(
            "carbon.url",
            "holds a user name or password",
            remedy=f"Move the secret into carbon.token_file or {ENV_TOKEN}",
        )
    return base_url.rstrip("/")


def _trust(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # SSLError is one
        raise ConfigError(
            "carbon.ca_file",
            f"{ca_file!r} cannot be used ({error.strerror or error})",
            remedy="Name a readable PEM file with the certificates to trust",
        ) from error


def _retry_after_s(text: str) -> float | None:
    """Seconds until the service wants to be asked again; it says seconds or an HTTP date."""
    text = text.strip()
    try:
        wait_s = (
            float(text)
            if text.isascii() and text.isdigit()
            else parsedate_to_datetime(text).timestamp() - time.time()
        )
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, wait_s), MOST_RETRY_S)


def _said(answer: Answer) -> str:
    """What a refusal says for itself; nothing of an HTML page."""
    text = answer.body[:65_536].decode("utf-8", "replace")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return "" if _kind_of(answer) == "an HTML page" else text
    while isinstance(tree, dict):
        keys = ("message", "error", "detail", "title", "description", "code")
        tree = next((tree[key] for key in keys if tree.get(key)), "")
    return tree if isinstance(tree, str) else json.dumps(tree)


def _kind_of(answer: Answer) -> str:
    if not answer.body.strip():
        return "nothing"
    if "html" in answer.content_type.lower() or answer.body.lstrip()[:1] == b"<":
        return "an HTML page"
    return "something else, or cut JSON,"
