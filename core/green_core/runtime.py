"""The one door for an adapter's engine loop: signal, policies, metering, ledger, metrics.

Threads: the engine's own thread calls :meth:`Runtime.plan`, :meth:`admit_all`,
:meth:`busy_since`, :meth:`step` and :meth:`finish`; each returns at once and never raises. One
housekeeping thread prices steps, reads meters, settles energy, writes the ledger and publishes
metrics; it sleeps without a time-out while the engine is idle. A watcher thread, blocked in the
kernel, tells of config changes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from green_core import config as configuration
from green_core.books import Books
from green_core.clock import SteadyClock
from green_core.config import GreenConfig, Resolved
from green_core.decisions import Decisions
from green_core.errors import GreenError
from green_core.faults import Faults
from green_core.grid.build import build_signal
from green_core.manager import GreenManager
from green_core.marks import MarkReader
from green_core.switch import is_off
from green_core.values import (
    Admission,
    Admit,
    BatchPlan,
    EngineInfo,
    QueueView,
    RequestFacts,
    RequestRecord,
    RequestView,
    StepView,
)
from green_core.watch import Watcher, folders_of

logger = logging.getLogger("greenserve")

BUSY_PERIOD_S = 0.05  # how often steps are priced while the engine works
CLOSE_S = 1.5
METRICS_FOLDER = "metrics"
POKE_FILE = "poke"  # touched by a scrape
# Tables that a running process reads once; a change there needs a restart, and is said to.
FIXED_TABLES = ("carbon", "energy", "ledger")


class Runtime:
    """One per process that runs an engine's loop.

    ``run_dir`` is shared with the API servers (metrics, switch); ``anchor_s`` is the epoch time
    that a replayed signal counts from, the same in all processes. ``on_wake`` is called from the
    housekeeping thread when held requests are due, with true when grid, config or switch changed
    and all of them should be asked again. ``check`` may refuse a config, at the start and when
    it is edited. Raises ``GreenError`` when something that was asked for cannot be had.
    """

    def __init__(
        self,
        resolved: Resolved,
        engine: EngineInfo,
        *,
        run_dir: Path,
        anchor_s: float,
        on_wake: Callable[[bool], None] = lambda changed: None,
        plugins: Mapping[str, Any] | None = None,
        clock: SteadyClock | None = None,
        check: Callable[[GreenConfig], None] = lambda config: None,
    ) -> None:
        check(resolved.config)
        self._check = check
        self.engine = engine
        self.clock = clock or SteadyClock()
        self.on_wake = on_wake
        self._resolved = resolved
        self._run_dir = run_dir
        self._plugins = plugins
        self._faults = Faults()
        config = resolved.config
        now_s = self.clock.now()
        self._manager = GreenManager(config, plugins)
        self._signal = build_signal(
            config.carbon,
            anchor_s=anchor_s,
            now_s=now_s,
            factory=lambda name: self._manager.carbon_source(),
        )
        self._books = Books(
            config,
            engine,
            signal=self._signal,
            manager=self._manager,
            metrics_dir=run_dir / METRICS_FOLDER,
            now_s=now_s,
            faults=self._faults,
        )
        self._limits = (engine.max_running, engine.max_tokens)
        self._held = 0
        self._chosen: set[tuple[str, str]] = set()
        self._wake_at_s = math.inf
        self._waking = threading.Lock()
        self._sleeping = self._reload = self._closing = False
        self._kick = threading.Event()
        self._manager.configure(engine)
        self._decisions = Decisions(self._manager, on_trip=self._tripped)
        self._off = is_off(resolved.file, run_dir)
        self._watcher = Watcher(
            lambda: [str(run_dir), *(folders_of(resolved.file) if resolved.file else ())],
            self._files_changed,
        )
        self._reload = True  # what changed between load and watch
        self._kick.set()
        self._thread = threading.Thread(target=self._housekeep, name="green-runtime", daemon=True)
        self._thread.start()
        logger.info("greenserve: %s", self._in_words())

    # --- what the engine's loop calls ---------------------------------------------------

    @property
    def config(self) -> GreenConfig:
        """The configuration in force."""
        return self._resolved.config

    @property
    def last_step(self) -> StepView | None:
        """The newest step that was priced."""
        return self._books.last_step

    @property
    def plans(self) -> bool:
        """Whether a batch policy has a say."""
        return not self._off and self._decisions.plans

    @property
    def may_hold(self) -> bool:
        """Whether a request could be held now: a policy asks for it and the switch is on."""
        return not self._off and self._decisions.may_hold

    @property
    def decides(self) -> bool:
        """Whether an admission policy wants to be asked, be it in shadow."""
        return not self._off and self._decisions.decides

    def estimate_run_s(
        self, prompt_tokens: int, max_tokens: int, *, open_ended: bool = False
    ) -> float:
        """Seconds a request will need once it runs; 0.0 while nothing is known.

        ``open_ended``: the client named no ``max_tokens``, so the usual answer length counts.
        """
        return self._books.estimator.run_s(prompt_tokens, max_tokens, open_ended=open_ended)

    def plan(self, queue: QueueView) -> BatchPlan:
        """Limits for the next step."""
        return self._decisions.plan(queue, self._signal.view(queue.now_s))

    def admit_all(self, requests: list[RequestView]) -> list[Admission]:
        """Whether requests may be scheduled now."""
        if self._off:
            return [Admit(reason="off")] * len(requests)
        return self._decisions.admit_all(requests, self._signal.view(self.clock.now()))

    def step(self, step: StepView, overhead_s: float = 0.0) -> None:
        """Account for a finished step; ``overhead_s`` is what greenserve itself cost in it."""
        self._books.step(step, overhead_s)
        self._touch()

    def busy_since(self, at_s: float | None) -> None:
        """When the oldest step under way began; ``None``: none is under way.

        Say so when a step begins, and again after each :meth:`step`. Its time is then never
        taken for idle while it runs, however long that is.
        """
        self._books.busy_since_s = at_s

    def finish(self, facts: RequestFacts) -> RequestRecord | None:
        """Close a request's account; ``None`` once metering broke."""
        record = self._books.finish(facts)
        self._touch()
        return record

    def peek(self, facts: RequestFacts) -> RequestRecord | None:
        """A running request's account so far; ``None`` once metering broke."""
        return self._books.peek(facts)

    def wake_at(self, at_s: float) -> None:
        """Call ``on_wake`` at ``at_s`` (epoch seconds of the runtime's clock).

        It replaces an earlier call's time: a holder knows its next time, and one that was put
        off must not be forgotten when the old time comes.
        """
        with self._waking:
            self._wake_at_s = at_s
        self._kick.set()

    def note_limits(self, *, running: int, tokens: int) -> None:
        """The limits in force, for /metrics."""
        self._limits = (running, tokens)

    def note_held(self, held: int) -> None:
        """How many requests are held, for /metrics."""
        self._held = held
        self._books.dirty = True
        self._touch()

    def released(self, urgency: str, held_s: float, reason: str) -> None:
        """Note the end of a hold."""
        metrics = self._books.metrics
        metrics.observe("greenserve_hold_seconds", held_s, urgency=urgency)
        metrics.add("greenserve_holds_released_total", 1, reason=reason)

    def no_progress(self) -> None:
        """The engine schedules nothing although it has work: batch limits are switched off."""
        self._decisions.trip("batch", "left the engine without progress")

    def close(self) -> None:
        """Settle what can be settled, write it, and stop; within two seconds (FIELD P29).

        The housekeeping thread does it; what hangs there (a meter, a plugin) is left behind.
        """
        if self._closing:
            return
        self._closing = True
        self._kick.set()
        self._watcher.close()
        self._decisions.close()
        self._thread.join(timeout=CLOSE_S)

    # --- housekeeping -------------------------------------------------------------------

    def _touch(self) -> None:
        if self._sleeping:
            self._kick.set()

    def _housekeep(self) -> None:
        while not self._closing:
            # Set before looking, so that a step between look and wait still kicks.
            self._sleeping = True
            due_in_s = self._due_in_s()
            self._sleeping = due_in_s is None
            self._kick.wait(due_in_s)
            self._sleeping = False
            self._kick.clear()
            if self._closing:
                break
            try:
                self._tick()
            except Exception:
                self._faults.note("housekeeping")
                time.sleep(1.0)  # a fault that repeats must not spin
        try:
            self._books.close(self.clock.now())
            self._manager.unconfigure()
            self._signal.close()
        except Exception:
            self._faults.note("the end of housekeeping")

    def _due_in_s(self) -> float | None:
        """Seconds until there is something to do; ``None``: until somebody kicks."""
        due_s = self._wake_at_s - self.clock.now()
        if self._books.dirty:
            due_s = min(due_s, BUSY_PERIOD_S)
        return min(max(due_s, 0.0), threading.TIMEOUT_MAX) if math.isfinite(due_s) else None

    def _tick(self) -> None:
        poked, self._reload = self._reload, False
        if poked:
            self._load_again()
        now_s = self.clock.now()
        if self._books.dirty or poked:
            self._books.settle(now_s, at_once=poked)
            self._books.publish(now_s, self._gauges(), self._decisions.shadow_reports())
        with self._waking:
            due = now_s >= self._wake_at_s
            if due:
                self._wake_at_s = math.inf
        if due:
            self.on_wake(False)

    def _gauges(self) -> dict[str, float]:
        metrics = self._books.metrics
        active = {} if self._off else self._decisions.active
        for family in ("batch", "admission"):
            if name := self.config.policies.choice(family):
                self._chosen.add((family, name))
        for family, name in self._chosen:  # those of an earlier config fall to 0
            alive = int(active.get(family) == name)
            metrics.set("greenserve_policy_active", alive, family=family, policy=name)
        return {
            "greenserve_held_requests": self._held,
            "greenserve_batch_limit": self._limits[0],
            "greenserve_token_limit": self._limits[1],
        }

    def _in_words(self) -> str:
        """What is in force, for the log."""
        grid = self._signal.view(self.clock.now())
        chosen = [
            f"{family} {name}" + (" (shadow)" if family in self.config.policies.shadow else "")
            for family, name in self._decisions.active.items()
        ]
        return (
            f"profile {self.config.profile}; energy {self._books.method}; "
            f"{grid.intensity_g_per_kwh:g} g/kWh ({grid.kind}) in {grid.zone}; "
            f"policies: {', '.join(chosen) if chosen else 'none'}"
            f"{' (switched off)' if self._off else ''}; run folder {self._run_dir}"
        )

    # --- change and failure -------------------------------------------------------------

    def _files_changed(self) -> None:
        self._reload = True
        self._kick.set()

    def _load_again(self) -> None:
        off = is_off(self._resolved.file, self._run_dir)
        if off != self._off:
            self._off = off
            logger.info("greenserve: switched %s", "off: stock behaviour" if off else "on")
            self.on_wake(True)
        try:
            fresh = configuration.load(
                self._resolved.file or None, overrides=self._resolved.overrides
            )
            if fresh.config == self.config:
                self._faults.parts.discard("reload")
                return
            self._check(fresh.config)
            MarkReader(fresh.config.marks)
            manager = GreenManager(fresh.config, self._plugins)
            decisions = Decisions(manager, on_trip=self._tripped)
        except GreenError as error:
            if "reload" not in self._faults.parts:
                self._faults.parts.add("reload")
                logger.error("%s. The configuration in force stays", error)
            return
        self._faults.parts.discard("reload")
        for table in FIXED_TABLES:
            if getattr(fresh.config, table) != getattr(self.config, table):
                logger.warning("greenserve: the change under [%s] needs a restart", table)
        self._manager.unconfigure()
        manager.configure(self.engine)
        old, self._decisions = self._decisions, decisions
        self._resolved, self._manager = fresh, manager
        self._books.config, self._books.manager = fresh.config, manager
        old.close()
        self._books.describe()
        logger.info("greenserve: configuration reloaded; %s", self._in_words())
        self.on_wake(True)

    def _tripped(self, family: str, policy: str, reason: str) -> None:
        self._books.metrics.add("greenserve_policy_failures_total", 1, family=family, policy=policy)
        self._books.dirty = True
        self._touch()
        self.on_wake(True)
