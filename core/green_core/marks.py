"""Marks: what a client says about its request, and who may say it.

Sources, the first wins: headers ``X-Green-Class``, ``X-Green-Deadline-S``, ``X-Green-Tenant``
and ``X-Green-Stop`` (a gateway can set and strip them); body fields ``green_class``,
``green_deadline_s``, ``green_tenant`` and ``green_stop`` among the engine's extra arguments;
``service_tier: "flex"``.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from green_core.config import MarksConfig, nearest
from green_core.errors import ConfigError, MarkError
from green_core.values import URGENCIES, Urgency

# Key under which marks and accounts travel beside the engine's own fields between processes.
WIRE_KEY = "greenserve"
MAX_TENANT_LENGTH = 128
_HEADERS = {
    "x-green-class": "class",
    "x-green-deadline-s": "deadline",
    "x-green-tenant": "tenant",
    "x-green-stop": "stop",
}
_HEADER_PREFIX = "x-green-"
_FIELDS = {
    "green_class": "class",
    "green_deadline_s": "deadline",
    "green_tenant": "tenant",
    "green_stop": "stop",
}
# Some engines turn a JSON true among their extra arguments into a number.
_SWITCH = {"on": True, "true": True, "1": True, "1.0": True}
_SWITCH |= {"off": False, "false": False, "0": False, "0.0": False}


class Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Checked marks; ``None`` where the client said nothing. ``deadline_s`` counts from arrival.

    ``stop``: whether an exit policy may end the answer early.
    """

    urgency: Urgency | None = None
    deadline_s: float | None = None
    tenant: str | None = None
    stop: bool | None = None

    def over(self, weaker: Marks) -> Marks:
        """These marks, completed by ``weaker`` ones."""
        return Marks(
            self.urgency if self.urgency is not None else weaker.urgency,
            self.deadline_s if self.deadline_s is not None else weaker.deadline_s,
            self.tenant if self.tenant is not None else weaker.tenant,
            self.stop if self.stop is not None else weaker.stop,
        )


class MarkReader:
    """Reads marks under one configuration. Bad values raise ``MarkError`` naming the field."""

    def __init__(self, config: MarksConfig) -> None:
        self._config = config
        try:
            _tenant("marks.default_tenant", config.default_tenant)
        except MarkError as error:
            raise ConfigError(error.path, error.problem) from error
        self._any = "any" in config.callers
        self._keys = {_key(c) for c in config.callers if c.startswith("key:")}
        self._networks = [
            _network(c) for c in config.callers if c != "any" and not c.startswith("key:")
        ]

    def may_mark(self, address: str | None, bearer: str | None) -> bool:
        """Whether a caller at ``address`` with this bearer token is allowed to set marks."""
        if self._any:
            return True
        if bearer and self._keys:
            digest = hashlib.sha256(bearer.encode()).hexdigest()
            if digest in self._keys:
                return True
        if address and self._networks:
            try:
                ip = ipaddress.ip_address(address)
            except ValueError:
                return False
            return any(ip in network for network in self._networks)
        return False

    def from_headers(self, headers: Iterable[tuple[str, str]]) -> Marks:
        """Marks from HTTP headers; names in any case."""
        found: dict[str, tuple[str, Any]] = {}
        for name, value in headers:
            kind = _HEADERS.get(name.lower())
            if kind is None and name.lower().startswith(_HEADER_PREFIX):
                known = [_capitals(header) for header in _HEADERS]
                raise MarkError(
                    _capitals(name), "unknown header", remedy=nearest(_capitals(name), known)
                )
            if kind is not None:
                if kind in found:
                    raise MarkError(name, "is given twice", remedy="Send it once")
                found[kind] = (_capitals(name), value.strip())
        return self._marks(found)

    def from_fields(self, fields: Mapping[str, Any] | None) -> Marks:
        """Marks from the engine's extra arguments (``vllm_xargs``, ``custom_params``)."""
        if not fields:
            return Marks()
        found = {kind: (name, fields[name]) for name, kind in _FIELDS.items() if name in fields}
        unknown = [n for n in fields if n.startswith("green_") and n not in _FIELDS]
        if unknown:
            raise MarkError(unknown[0], "unknown field", remedy=nearest(unknown[0], list(_FIELDS)))
        return self._marks(found)

    def from_tier(self, service_tier: str | None) -> Marks:
        """Marks from OpenAI's ``service_tier``; only ``flex`` says anything."""
        flex = service_tier == "flex" and "class" in self._config.allow
        return Marks(urgency="flex") if flex else Marks()

    def _marks(self, found: Mapping[str, tuple[str, Any]]) -> Marks:
        allowed = {kind: pair for kind, pair in found.items() if kind in self._config.allow}
        urgency = deadline_s = tenant = stop = None
        if "class" in allowed:
            urgency = _urgency(*allowed["class"])
        if "deadline" in allowed:
            deadline_s = self._deadline(*allowed["deadline"])
        if "tenant" in allowed:
            tenant = _tenant(*allowed["tenant"])
        if "stop" in allowed:
            stop = _switch(*allowed["stop"])
        if urgency is None and deadline_s is not None:
            urgency = "flex"  # a deadline is what makes a request tolerant
        return Marks(urgency, deadline_s, tenant, stop)

    def _deadline(self, name: str, value: Any) -> float:
        try:
            seconds = float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = math.nan
        if not math.isfinite(seconds) or seconds <= 0:
            raise MarkError(
                name, f"{value!r} is not a number of seconds above 0", remedy="Send for example 600"
            )
        if seconds > self._config.max_deadline_s:
            raise MarkError(
                name,
                f"{seconds:g} s is beyond this server's limit of {self._config.max_deadline_s:g} s",
            )
        return seconds


def _urgency(name: str, value: Any) -> Urgency:
    for known in URGENCIES:
        if value == known:
            return known
    raise MarkError(name, f"unknown class {value!r}", remedy="Known: " + ", ".join(URGENCIES))


def _tenant(name: str, value: Any) -> str:
    text = str(value)
    if not text or len(text) > MAX_TENANT_LENGTH or not text.isprintable():
        raise MarkError(
            name, f"must be 1 to {MAX_TENANT_LENGTH} printable characters, not {text[:40]!r}"
        )
    return text


def _switch(name: str, value: Any) -> bool:
    found = _SWITCH.get(str(value).lower())
    if found is None:
        raise MarkError(name, f"{value!r} is neither on nor off", remedy='Send "on" or "off"')
    return found


def _capitals(header: str) -> str:
    return "-".join(part.capitalize() for part in header.split("-"))


def _key(text: str) -> str:
    digest = text.removeprefix("key:").lower()
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ConfigError(
            "marks.callers",
            f"{text!r} does not hold a SHA-256 (64 hexadecimal digits)",
            remedy='Write "key:" and what `printf %s TOKEN | sha256sum` prints',
        )
    return digest


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(
            "marks.callers",
            f'{text!r} is neither "any", a CIDR block nor "key:SHA256"',
            remedy='Write for example "10.0.0.0/8" or "key:" and the SHA-256 of the bearer token',
        ) from error
