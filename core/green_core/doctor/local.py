"""The report on this machine: what a server started here would find."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from green_core import preflight
from green_core.config import CarbonConfig, Resolved
from green_core.doctor.estimates import DAY_S
from green_core.doctor.facts import (
    EngineFacts,
    Finding,
    LoadFacts,
    MeterFacts,
    NotChecked,
    SettingFacts,
    SignalFacts,
    StartFacts,
    Status,
)
from green_core.doctor.host import host_facts
from green_core.doctor.problems import signal_problems
from green_core.doctor.report import EngineReport, HostReport, MeterReport
from green_core.doctor.secrets import setting_facts
from green_core.doctor.starts import recent_starts
from green_core.doctor.traps import HOST_TRAPS, look
from green_core.energy.build import METERS
from green_core.errors import GreenError
from green_core.export.text import greenserve_version
from green_core.grid.static import static_signal
from green_core.values import EngineInfo


def host_report(
    resolved: Resolved,
    *,
    engines: tuple[EngineReport, ...],
    meters: tuple[MeterReport, ...],
    signal: SignalFacts | None,
    signal_problem: str = "",
) -> HostReport:
    """Judge this machine; ``signal_problem`` says why there is no ``signal``."""
    now_s = time.time()
    starts = recent_starts(None, now_s - DAY_S)
    values = setting_facts(resolved)
    status = _without_server(now_s, signal, values, starts)
    findings, not_checked = _look(status)
    meter = resolved.config.energy.meter
    if not {"auto", "model", *METERS}.issuperset(meter.split("+")):
        why = f"the plugin {meter} (energy.meter) opens its meter in an engine's process only"
        not_checked = (*not_checked, NotChecked("meter", why))
    found = [*_problems(resolved, engines, meters), *(signal_problems(signal) if signal else ())]
    if signal_problem and not any(signal_problem in problem for problem in found):
        found.append(f"no carbon signal: {signal_problem}")
    return HostReport(
        greenserve_version=status.greenserve_version,
        at_s=now_s,
        host=status.host,
        engines=engines,
        meters=meters,
        signal=signal,
        settings=values,
        starts=starts,
        problems=tuple(found),
        findings=findings,
        not_checked=not_checked,
    )


def _problems(
    resolved: Resolved, engines: tuple[EngineReport, ...], meters: tuple[MeterReport, ...]
) -> Iterator[str]:
    try:
        preflight.check(resolved.config)
    except GreenError as error:
        yield f"a server would not start with this configuration: {error}"
    for engine in engines:
        if engine.problem:
            yield f"{engine.engine}: {engine.problem}"
        elif not engine.supported:
            moved = sum(not seam.ok for seam in engine.seams)
            yield (
                f"{engine.engine} {engine.version} cannot be served green: verified are "
                f"{', '.join(engine.verified)}{f'; {moved} seam(s) do not fit' if moved else ''}"
            )
    wanted = resolved.config.energy.meter.split("+")
    for meter in meters:
        if meter.problem and meter.meter in wanted:
            yield f"the meter {meter.meter} (energy.meter) is not there: {meter.problem}"


def _look(status: Status) -> tuple[tuple[Finding, ...], tuple[NotChecked, ...]]:
    """The traps of a host, with each model that was started on it."""
    findings: dict[tuple[str, str], Finding] = {}
    not_checked: dict[str, NotChecked] = {}
    models = sorted({start.model for start in status.starts}) or [""]
    for model in models:
        info = msgspec.structs.replace(status.engine.info, model=model)
        engine = msgspec.structs.replace(status.engine, info=info)
        found, unknown = look(msgspec.structs.replace(status, engine=engine), names=HOST_TRAPS)
        findings.update({(each.trap, each.evidence): each for each in found})
        not_checked.update({each.trap: each for each in unknown})
    return tuple(findings.values()), tuple(not_checked.values())


def _without_server(
    now_s: float,
    signal: SignalFacts | None,
    values: dict[str, SettingFacts],
    starts: tuple[StartFacts, ...],
) -> Status:
    """What a trap is shown where no server runs: nothing of an engine, no load, this host."""
    return Status(
        greenserve_version=greenserve_version(),
        at_s=now_s,
        engine=EngineFacts(
            EngineInfo(
                engine="",
                version="",
                model="",
                engine_index=0,
                max_running=0,
                max_tokens=0,
                parameters=0.0,
                weight_bytes=0.0,
                kv_bytes_per_token=0.0,
                hidden_size=0,
                num_layers=0,
            )
        ),
        load=LoadFacts(now_s, now_s),
        meter=MeterFacts("none"),
        signal=signal or SignalFacts(static_signal(CarbonConfig()).view(now_s)),
        host=host_facts(),
        settings=values,
        starts=starts,
    )
