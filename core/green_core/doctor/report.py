"""What the doctor reports. These structs are its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from green_core.doctor.facts import (
    Finding,
    HostFacts,
    NotChecked,
    SettingFacts,
    SignalFacts,
    StartFacts,
    Status,
)
from green_core.doctor.problems import problems
from green_core.doctor.traps import look

_SECRET_WORDS = ("token", "password", "secret", "key", "credential")
_HIDDEN = "(hidden)"


class SeamReport(msgspec.Struct, frozen=True):
    """A symbol of the installed engine that an adapter builds on."""

    target: str
    ok: bool
    problem: str = ""


class EngineReport(msgspec.Struct, frozen=True):
    """An engine that is installed here. ``problem``: it could not be looked at."""

    engine: str
    distribution: str = ""
    version: str = ""
    verified: tuple[str, ...] = ()
    supported: bool = False
    seams: tuple[SeamReport, ...] = ()
    problem: str = ""


class MeterReport(msgspec.Struct, frozen=True):
    """A kind of meter: its ``method`` where it can be read here, else the ``problem``."""

    meter: str
    method: str = ""
    name: str = ""
    uncertainty_ratio: float | None = None
    problem: str = ""


class LiveReport(msgspec.Struct, frozen=True):
    """A running server."""

    url: str
    health: str
    status: Status
    problems: tuple[str, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]


class HostReport(msgspec.Struct, frozen=True):
    """This machine with the config that a server started here would use."""

    greenserve_version: str
    at_s: float
    host: HostFacts
    engines: tuple[EngineReport, ...]
    meters: tuple[MeterReport, ...]
    signal: SignalFacts | None
    settings: dict[str, SettingFacts]
    starts: tuple[StartFacts, ...]
    problems: tuple[str, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]


def live_report(status: Status, earlier: Status | None, *, url: str, health: str) -> LiveReport:
    """Judge a server by two looks at it."""
    findings, not_checked = look(status, earlier)
    return LiveReport(
        url=url,
        health=health,
        status=msgspec.structs.replace(status, settings=without_secrets(status.settings)),
        problems=problems(status),
        findings=findings,
        not_checked=not_checked,
    )


def is_clean(report: LiveReport | HostReport) -> bool:
    """Whether nothing was found."""
    return not report.problems and not report.findings


def without_secrets(settings: Mapping[str, SettingFacts]) -> dict[str, SettingFacts]:
    """The settings with passwords in URLs hidden, and policies' parameters that sound secret."""
    return {
        key: msgspec.structs.replace(fact, value=_hidden(fact.value))
        for key, fact in settings.items()
    }


def _hidden(value: object, name: str = "") -> object:
    if isinstance(value, Mapping):
        return {key: _hidden(each, str(key)) for key, each in value.items()}
    if not isinstance(value, str) or not value:
        return value
    if any(word in name.lower() for word in _SECRET_WORDS):
        return _HIDDEN
    if "://" in value and "@" in value:
        try:
            url = urlsplit(value)
        except ValueError:
            return _HIDDEN
        user, _, place = url.netloc.rpartition("@")
        if user:
            return url._replace(netloc=f"{_HIDDEN}@{place}").geturl()
    return value
