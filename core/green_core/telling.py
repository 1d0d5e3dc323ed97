"""What an engine's process says of itself: one line for the log, and its status page."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from green_core.books import Books
from green_core.config import GreenConfig, Resolved
from green_core.doctor.facts import EngineFacts, PolicyFacts, ProcessFacts, StartFacts, Status
from green_core.doctor.host import host_facts
from green_core.doctor.process import process_facts
from green_core.doctor.secrets import setting_facts
from green_core.doctor.starts import note_start, recent_starts
from green_core.export import statusfile
from green_core.export.text import greenserve_version
from green_core.faults import Faults
from green_core.grid.signal import CarbonSignal
from green_core.manager import FAMILIES
from green_core.signal_watch import SignalWatch

_STARTS_S = 7 * 86_400.0  # how far back starts are shown


class Teller:
    """Speaks for one engine process; used by its housekeeping thread."""

    def __init__(
        self,
        facts: EngineFacts,
        *,
        books: Books,
        signal: CarbonSignal,
        watch: SignalWatch,
        faults: Faults,
        run_dir: Path,
        now_s: float,
    ) -> None:
        self._facts = facts
        self._books = books
        self._signal = signal
        self._watch = watch
        self._faults = faults
        self._run_dir = run_dir
        self._chosen: set[tuple[str, str]] = set()
        self._answered_ns = statusfile.asked_ns(run_dir)
        if facts.info.engine_index == 0:  # the others belong to the same start
            note_start(StartFacts(facts.info.model, now_s, facts.load_s, facts.compile_s))

    def words(
        self, resolved: Resolved, active: Mapping[str, str], *, off: bool, now_s: float
    ) -> str:
        """What is in force, for the log."""
        config, grid = resolved.config, self._signal.view(now_s)
        chosen = [
            f"{family} {name}" + (" (shadow)" if family in config.policies.shadow else "")
            for family, name in active.items()
        ]
        doubt = "" if grid.quality == "fresh" else f", {grid.quality}"
        return (
            f"profile {config.profile}; energy {self._books.method}; "
            f"{grid.intensity_g_per_kwh:g} g/kWh ({grid.kind}{doubt}) in {grid.zone}; "
            f"policies: {', '.join(chosen) if chosen else 'none'}"
            f"{' (switched off)' if off else ''}; run folder {self._run_dir}"
        )

    def show(
        self, config: GreenConfig, active: Mapping[str, str], *, limits: tuple[int, int], held: int
    ) -> None:
        """Bring the gauges up to date: which policies decide, what they allow, who is held."""
        metrics = self._books.metrics
        for family in FAMILIES:
            if name := config.policies.choice(family):
                self._chosen.add((family, name))
        for family, name in self._chosen:  # those of an earlier config fall to 0
            alive = int(active.get(family) == name)
            metrics.set("greenserve_policy_active", alive, family=family, policy=name)
        metrics.set("greenserve_held_requests", held)
        metrics.set("greenserve_batch_limit", limits[0])
        metrics.set("greenserve_token_limit", limits[1])

    def answer(
        self,
        resolved: Resolved,
        active: Mapping[str, str],
        *,
        off: bool,
        problem: str,
        now_s: float,
    ) -> None:
        """Write the status page, if somebody has asked since the last time.

        ``active`` are the policies that decide now, ``problem`` is why power is not steered.
        """
        asked_ns = statusfile.asked_ns(self._run_dir)
        if asked_ns == self._answered_ns:  # a clock that was set back makes it the smaller one
            return
        self._answered_ns = asked_ns
        try:
            status = self._status(resolved, active, off=off, problem=problem, now_s=now_s)
            statusfile.answer(self._run_dir, status, asked_ns)
        except Exception:
            self._faults.note("the status page")

    def _status(
        self,
        resolved: Resolved,
        active: Mapping[str, str],
        *,
        off: bool,
        problem: str,
        now_s: float,
    ) -> Status:
        config, grid = resolved.config, self._signal.view(now_s)
        processes: tuple[ProcessFacts, ...] = ()
        with contextlib.suppress(ProcessLookupError):  # no /proc
            processes = (process_facts("engine"),)
        return Status(
            greenserve_version=greenserve_version(),
            at_s=now_s,
            engine=self._facts,
            load=self._books.load_facts(now_s),
            meter=self._books.meter_facts(),
            signal=self._watch.facts(self._signal, grid),
            host=host_facts(),
            profile=config.profile,
            switched_off=off,
            policies=tuple(
                PolicyFacts(
                    family=family,
                    name=name,
                    active=active.get(family) == name,
                    shadow=family in config.policies.shadow,
                    problem=problem if family == "power" else "",
                )
                for family in FAMILIES
                if (name := config.policies.choice(family))
            ),
            processes=processes,
            settings=setting_facts(resolved),
            starts=recent_starts(self._facts.info.model, now_s - _STARTS_S),
            faults=tuple(sorted(self._faults.parts)),
        )
