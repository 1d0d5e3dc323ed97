"""The doctor's report for a terminal of 100 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping

from green_core.cli.common import age, assignment, figure, utc
from green_core.doctor.estimates import busy_ratio
from green_core.doctor.facts import (
    EngineFacts,
    Finding,
    HostFacts,
    LoadFacts,
    MeterFacts,
    NotChecked,
    SeamFacts,
    SettingFacts,
    SignalFacts,
    Status,
)
from green_core.doctor.report import EngineReport, HostReport, LiveReport, MeterReport
from green_core.doctor.traps import HOST_TRAPS, TRAPS
from green_core.export.text import printable
from green_core.values import JOULES_PER_KWH

WIDTH = 100
Section = tuple[str, list[str]]


def live_text(report: LiveReport, *, every_setting: bool) -> str:
    """A running server."""
    status = report.status
    server = [
        f"greenserve {status.greenserve_version} at {report.url}",
        f"/health: {report.health}",
        *_engine(status.engine),
    ]
    if status.switched_off:
        server.append("policies are switched off ('green on' brings them back)")
    policies = [
        f"{p.family}: {p.name}, {'active' if p.active else 'inactive'}{', shadow' * p.shadow}"
        for p in status.policies
    ]
    processes = [
        f"{p.role} {p.pid}: {p.threads} threads, {len(p.cpus) or 'unknown'} CPUs, "
        f"{p.cpu_s:.0f} s of CPU time{_variables(p.environment)}"
        for p in status.processes
    ]
    return _render(
        [
            ("Server and engine", server),
            ("Load", _load(status)),
            ("Seams", _seams(status.seams) or ["none"]),
            ("Processes", processes or ["unknown"]),
            ("Energy", _meter(status.meter)),
            ("Carbon signal", _signal(status.signal, status.at_s)),
            ("Host", _host(status.host)),
            ("Policies", [f"profile {status.profile}", *policies]),
            _settings(status.settings, every_setting),
            *_judgement(report, tuple(TRAPS)),
        ]
    )


def host_text(report: HostReport, *, every_setting: bool) -> str:
    """This machine."""
    engines = [line for engine in report.engines for line in _installed(engine)]
    signal = _signal(report.signal, report.at_s) if report.signal else ["unavailable"]
    newest = {start.model: start for start in report.starts}
    counts = Counter(start.model for start in report.starts)
    starts = [
        f"{model}: {counts[model]}, the last at {utc(start.at_s)}"
        f"{_took(', loaded', start.load_s)}{_took(', compiled', start.compile_s)}"
        for model, start in newest.items()
    ]
    return _render(
        [
            ("Here", [f"greenserve {report.greenserve_version}", *_host(report.host)]),
            ("Engines", engines or ["none is installed beside greenserve"]),
            ("Meters", [_reachable(meter) for meter in report.meters] or ["none"]),
            ("Carbon signal", signal),
            _settings(report.settings, every_setting),
            ("Starts in the last day", starts or ["none is remembered"]),
            *_judgement(report, HOST_TRAPS),
        ]
    )


def _render(sections: list[Section]) -> str:
    lines: list[str] = []
    for title, content in sections:
        lines.append(title)
        for line in content:
            # Names and messages come from servers: control characters are shown, not obeyed.
            text = printable(line)
            indent = "  " + " " * (len(text) - len(text.lstrip()))
            lines += textwrap.wrap(
                text.lstrip(),
                WIDTH,
                initial_indent=indent,
                subsequent_indent=indent + "  ",
                break_on_hyphens=False,
            )
        lines.append("")
    return "\n".join(lines)


# --- server ---------------------------------------------------------------------------------


def _engine(engine: EngineFacts) -> Iterator[str]:
    info = engine.info
    yield f"{info.engine} {info.version}, {info.model} on {info.device_count} x {info.device}"
    yield (
        f"weights {engine.weights_dtype or 'unknown'}, KV {engine.kv_dtype or 'unknown'}, "
        f"quantization {info.quantization}"
    )
    sizes = engine.capture_sizes
    captured = f", captured sizes {min(sizes)} to {max(sizes)}" if sizes else ""
    yield (
        f"at most {info.max_running} requests and {info.max_tokens} tokens a step{captured}; "
        f"prefix cache {_switch(engine.prefix_caching)}"
    )
    compiles = _switch(engine.compiles)
    if engine.compiles:
        compiles += f" (cache {_switch(engine.compile_cache)})"
    yield (
        f"compiler {compiles}{_took('; loaded', engine.load_s)}"
        f"{_took('; compiled', engine.compile_s)}"
    )


def _load(status: Status) -> list[str]:
    load: LoadFacts = status.load
    return [
        f"{load.requests} requests and {load.steps} steps in {age(load.until_s - load.since_s)}, "
        f"at work {busy_ratio(status):.0%} of it with {load.mean_running:.1f} requests on average",
        f"now {load.running} running, {load.waiting} waiting, {load.held} held",
        f"energy {figure(load.active_j)} J at work (prefill {figure(load.prefill_j)}, "
        f"decode {figure(load.decode_j)}) and {figure(load.idle_j)} J idle",
    ]


def _seams(seams: tuple[SeamFacts, ...]) -> list[str]:
    """One line for processes of a role with the same seams: API servers may be many."""
    alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for each in seams:
        alike.setdefault((each.role, each.seams), []).append(each.pid)
    return [
        f"{role} {', '.join(map(str, pids))}: {', '.join(targets) or 'none'}"
        for (role, targets), pids in alike.items()
    ]


def _meter(meter: MeterFacts) -> list[str]:
    name = f" ({meter.name})" if meter.name else ""
    period = f", moves every {meter.period_s:g} s" if meter.period_s else ""
    rest = f"; others on the device: {figure(meter.rest_j)} J" if meter.rest_j is not None else ""
    return [
        f"{meter.method}{name}{period}{_uncertainty(meter.uncertainty_ratio)}",
        f"{meter.gaps} gap(s) in the readings{rest}",
    ]


def _variables(environment: Mapping[str, str]) -> str:
    return "".join(f", {name}={value}" for name, value in environment.items())


# --- machine --------------------------------------------------------------------------------


def _installed(engine: EngineReport) -> Iterator[str]:
    if engine.problem:
        yield f"{engine.engine}: {engine.problem}"
        return
    moved = [seam for seam in engine.seams if not seam.ok]
    verdict = "verified" if engine.version in engine.verified else "not verified"
    yield (
        f"{engine.engine} {engine.version} ({engine.distribution}): {verdict} "
        f"(verified: {', '.join(engine.verified) or 'none'}); "
        f"{len(engine.seams) - len(moved)} of {len(engine.seams)} seams fit"
    )
    for seam in moved:
        yield f"  {seam.target}: {seam.problem}"


def _reachable(meter: MeterReport) -> str:
    if meter.problem:
        return f"{meter.meter}: no. {meter.problem}"
    name = f" ({meter.name})" if meter.name else ""
    return f"{meter.meter}: {meter.method}{name}{_uncertainty(meter.uncertainty_ratio)}"


def _host(host: HostFacts) -> list[str]:
    quota = f", quota {host.cpu_quota:g}" if host.cpu_quota is not None else ""
    kind = {True: "virtual", False: "physical", None: "physical or virtual (unknown)"}
    inside = {True: ", in a container", False: "", None: ""}
    governors = ", ".join(f"{name} ({count})" for name, count in host.governors.items())
    drivers = ", ".join(host.drivers)
    return [
        f"{host.cpus} CPUs on {len(host.nodes) or 'an unknown number of'} NUMA node(s){quota}; "
        f"{kind[host.is_virtual]}{inside[host.in_container]}",
        f"CPU features: {', '.join(host.cpu_flags) or 'unknown'}",
        f"frequency governors: {governors or 'none shown'}{f' by {drivers}' if drivers else ''}",
    ]


# --- both -----------------------------------------------------------------------------------


def _signal(signal: SignalFacts, now_s: float) -> list[str]:
    view = signal.view
    estimate = ", estimate" if view.is_estimate else ""
    lines = [
        f"{view.intensity_g_per_kwh:.1f} gCO2e/kWh ({view.kind}, basis {view.basis}{estimate}) "
        f"in {view.zone or 'no named zone'}: {view.state.value}, {view.quality}",
        f"from {view.source}",
        f"observed {_when(view.observed_at_s)} ({age(now_s - view.observed_at_s)} ago)",
    ]
    if signal.fetches or signal.failures:
        failures = ", ".join(f"{count} {reason}" for reason, count in signal.failures.items())
        lines.append(f"{signal.fetches} usable answer(s); failures: {failures or 'none'}")
    return lines


def _when(at_s: float) -> str:
    try:
        return utc(at_s)
    except (OverflowError, ValueError, OSError):  # beyond any calendar; who knows what answers
        return f"{at_s:g} s after 1970"


def _settings(settings: Mapping[str, SettingFacts], every: bool) -> Section:
    shown = {key: fact for key, fact in settings.items() if every or fact.origin != "default"}
    lines = [f"{assignment(key, fact.value)}  # {fact.origin}" for key, fact in shown.items()]
    title = "Settings" if every else "Settings that differ from their defaults (--all: every one)"
    return title, lines or ["none"]


def _judgement(report: LiveReport | HostReport, names: tuple[str, ...]) -> Iterator[Section]:
    yield "Problems", list(report.problems) or ["none"]
    if report.findings:
        yield "Energy traps", [line for found in report.findings for line in _finding(found)]
    silent = {found.trap for found in report.findings} | {n.trap for n in report.not_checked}
    clear = [name for name in names if name not in silent]
    if clear:
        yield "Looked for and not found", [", ".join(clear)]
    if report.not_checked:
        yield "Not checked", [_unchecked(each) for each in report.not_checked]


def _finding(found: Finding) -> Iterator[str]:
    yield f"{found.title} ({found.trap})"
    yield f"  seen: {found.evidence}"
    if found.energy_j_per_day is not None:
        carbon = (
            f", {figure(found.carbon_g_per_day)} gCO2e"
            if found.carbon_g_per_day is not None
            else ""
        )
        kwh = figure(found.energy_j_per_day / JOULES_PER_KWH)
        yield f"  costs: {kwh} kWh{carbon} a day (estimate: {found.estimate})"
    else:
        yield f"  costs: {found.estimate}"
    yield f"  remedy: {found.remedy}"


def _unchecked(each: NotChecked) -> str:
    return f"{each.trap}: {each.why}"


def _switch(state: bool | None) -> str:
    return {True: "on", False: "off", None: "unknown"}[state]


def _took(what: str, seconds: float | None) -> str:
    return "" if seconds is None else f"{what} in {seconds:.0f} s"


def _uncertainty(ratio: float | None) -> str:
    return "" if ratio is None else f", uncertain by {ratio:.0%}"
