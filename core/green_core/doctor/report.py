"""What the doctor reports. These structs are its JSON."""

from __future__ import annotations

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
from green_core.doctor.secrets import without_secrets
from green_core.doctor.traps import look


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
