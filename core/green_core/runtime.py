"""The one door for an adapter's engine loop: signal, policies, metering, ledger, metrics.

Threads: the engine's own thread calls :meth:`Runtime.plan`, :meth:`admit`, :meth:`step` and
:meth:`finish`; each returns at once and never raises. One housekeeping thread reads meters,
settles energy, writes the ledger and publishes metrics; it sleeps without a time-out while the
engine is idle. A watcher thread, blocked in the kernel, tells of config changes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from green_core import config as configuration
from green_core.clock import SteadyClock
from green_core.config import GreenConfig, Resolved
from green_core.decisions import Decisions
from green_core.energy.attribution import Attributor
from green_core.energy.build import build_meter, build_model
from green_core.errors import ConfigError, GreenError, LedgerUnavailable
from green_core.estimate import RunTimeEstimator
from green_core.export.ledger import Ledger
from green_core.export.prometheus import EngineMetrics
from green_core.grid.build import build_signal
from green_core.manager import GreenManager
from green_core.switch import is_off
from green_core.values import (
    Admission,
    Admit,
    BatchPlan,
    EngineInfo,
    GridView,
    QueueView,
    RequestFacts,
    RequestRecord,
    RequestView,
    Settled,
    StepView,
)
from green_core.watch import Watcher

logger = logging.getLogger("greenserve")

PRICE_PERIOD_S = 0.05  # while the engine is busy
SETTLE_PERIOD_S = 1.0  # without a meter; with one, its own period
METRICS_FOLDER = "metrics"
POKE_FILE = "poke"  # touched by a scrape
# Tables that a running process reads once; a change there needs a restart, and is said to.
FIXED_TABLES = ("carbon", "energy", "ledger")


class Runtime:
    """One per process that runs an engine's loop.

    ``run_dir`` is shared with the API servers (metrics, switch); ``anchor_s`` is the epoch time
    that a replayed signal counts from, the same in all processes. ``on_wake`` is called from the
    housekeeping thread when held requests are due, with true when grid, config or switch changed
    and all of them should be asked again. Raises ``GreenError`` when
    something that was asked for cannot be had.
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
    ) -> None:
        self.engine = engine
        self.clock = clock or SteadyClock()
        self.on_wake = on_wake
        self._resolved = resolved
        self._run_dir = run_dir
        self._plugins = plugins
        self.pid = os.getpid()
        config = resolved.config
        self._manager = GreenManager(config, plugins)
        now_s = self.clock.now()
        self._signal = (
            build_signal(config.carbon, anchor_s=anchor_s, now_s=now_s)
            if config.carbon.source in ("static", "file")
            else self._manager.carbon_source()
        )
        self._meter = build_meter(config.energy, engine, self._manager)
        self._attributor = Attributor(
            engine=engine,
            config=config.energy,
            model=build_model(config.energy, engine),
            signal=self._signal,
            meter=self._meter,
            start_s=now_s,
        )
        self._ledger = (
            Ledger.open(config.ledger.path, engine=engine, keep_days=config.ledger.keep_days)
            if config.ledger.path
            else None
        )
        self.metrics = EngineMetrics(engine, max_tenants=config.telemetry.max_tenants)
        self._estimator = RunTimeEstimator()
        self._overhead_s: deque[float] = deque(maxlen=10_000)
        self._unpriced: deque[StepView] = deque()
        self._pricing = threading.Lock()
        self._observed: deque[StepView] = deque(maxlen=10_000)
        self._last_step: StepView | None = None
        self._broken: set[str] = set()
        self._limits = (engine.max_running, engine.max_tokens)
        self._held = 0
        self._wake_at_s = math.inf
        self._dirty = True
        self._published_at_s = 0.0
        self._sleeping = False
        self._reload = False
        self._closing = False
        self._kick = threading.Event()
        self._settling = threading.Lock()
        self._manager.configure(engine)
        self._observes_steps = self._manager.has_observers("green_on_step")
        self._decisions = Decisions(self._manager, on_trip=self._tripped)
        self._off = is_off(resolved.file, run_dir)
        self._describe()
        watched = {str(run_dir)}
        if resolved.file:
            watched.add(os.path.dirname(resolved.file))
        self._watcher = Watcher(watched, self._files_changed)
        self._thread = threading.Thread(target=self._housekeep, name="green-runtime", daemon=True)
        self._thread.start()

    # --- what the engine's loop calls ---------------------------------------------------

    @property
    def config(self) -> GreenConfig:
        """The configuration in force."""
        return self._resolved.config

    @property
    def last_step(self) -> StepView | None:
        """The newest finished step, priced."""
        return self._last_step

    @property
    def plans(self) -> bool:
        """Whether a batch policy has a say."""
        return not self._off and self._decisions.plans

    @property
    def may_hold(self) -> bool:
        """Whether a request could be held now: a policy asks for it and the switch is on."""
        return not self._off and self._decisions.may_hold

    def grid(self) -> GridView:
        """The signal now, from memory."""
        view: GridView = self._signal.view(self.clock.now())
        return view

    def estimate_run_s(self, prompt_tokens: int, max_tokens: int) -> float:
        """Seconds a request will need once it runs; 0.0 while nothing is known."""
        return self._estimator.run_s(prompt_tokens, max_tokens)

    def plan(self, queue: QueueView) -> BatchPlan:
        """Limits for the next step."""
        return self._decisions.plan(queue, self._signal.view(queue.now_s))

    def admit_all(self, requests: list[RequestView]) -> list[Admission]:
        """Whether requests may be scheduled now."""
        if self._off:
            return [Admit(reason="off")] * len(requests)
        return self._decisions.admit_all(requests, self._signal.view(self.clock.now()))

    def step(self, step: StepView) -> None:
        """Account for a finished step; it is priced beside the engine's loop."""
        self._unpriced.append(step)
        self._touch()

    def finish(self, facts: RequestFacts) -> RequestRecord | None:
        """Close a request's account; ``None`` once metering broke."""
        self._price()
        try:
            record = self._attributor.finish(facts)
        except Exception:
            self._break("metering")
            return None
        self._touch()
        return record

    def peek(self, facts: RequestFacts) -> RequestRecord | None:
        """A running request's account so far."""
        self._price()
        try:
            return self._attributor.peek(facts)
        except Exception:
            self._break("metering")
            return None

    def overhead(self, seconds: float) -> None:
        """Note what greenserve itself cost in one step."""
        self._overhead_s.append(seconds)

    def wake_at(self, at_s: float) -> None:
        """Call ``on_wake`` no later than ``at_s`` (epoch seconds of the runtime's clock)."""
        if at_s < self._wake_at_s:
            self._wake_at_s = at_s
            self._kick.set()

    def note_limits(self, *, running: int, tokens: int) -> None:
        """The limits in force, for /metrics."""
        self._limits = (running, tokens)

    def note_held(self, held: int) -> None:
        """How many requests are held, for /metrics."""
        self._held = held
        self._touch()

    def released(self, urgency: str, held_s: float, reason: str) -> None:
        """Note the end of a hold."""
        self.metrics.observe("greenserve_hold_seconds", held_s, urgency=urgency)
        self.metrics.add("greenserve_holds_released_total", 1, reason=reason)
        self._touch()

    def no_progress(self) -> None:
        """The engine schedules nothing although it has work: batch limits are switched off."""
        self._decisions.trip("batch", "left the engine without progress")

    def close(self) -> None:
        """Settle what can be settled, write it, and stop; within two seconds (FIELD P29)."""
        if self._closing:
            return
        self._closing = True
        self._kick.set()
        self._thread.join(timeout=1.0)
        self._watcher.close()
        if not self._thread.is_alive():
            now_s = self.clock.now()
            reading = self._meter.read() if self._meter else None
            self._deliver(self._attributor.close(now_s, reading))
            self._publish(now_s)
            if self._ledger is not None:
                with contextlib.suppress(LedgerUnavailable):
                    self._ledger.close()
        self._decisions.close()
        self._manager.unconfigure()
        if self._meter is not None:
            self._meter.close()
        self._signal.close()
        self.metrics.withdraw(self._run_dir / METRICS_FOLDER)

    # --- housekeeping -------------------------------------------------------------------

    def _price(self) -> None:
        """Price the steps handed over so far."""
        with self._pricing:
            while self._unpriced:
                try:
                    self._last_step = priced = self._attributor.on_step(self._unpriced.popleft())
                    self._estimator.observe(priced)
                    if self._observes_steps:
                        self._observed.append(priced)
                except Exception:
                    self._break("metering")

    def _touch(self) -> None:
        self._dirty = True
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
                return
            try:
                self._tick()
            except Exception:
                self._break("housekeeping")
                time.sleep(SETTLE_PERIOD_S)  # a fault that repeats must not spin

    def _due_in_s(self) -> float | None:
        """Seconds until there is something to do; ``None``: until somebody kicks."""
        now_s = self.clock.now()
        due = [self._wake_at_s - now_s] if math.isfinite(self._wake_at_s) else []
        if self._dirty:
            due.append(PRICE_PERIOD_S)
        return max(min(due), 0.0) if due else None

    def _tick(self) -> None:
        if self._reload:
            self._reload = False
            self._load_again()
        now_s = self.clock.now()
        if self._dirty:
            self._price()
            if self._settled_all or now_s - self._settled_at_s >= self._settle_period_s:
                self._dirty = False
                self._settle()
                self._settled_at_s = now_s
        if now_s >= self._wake_at_s:
            self._wake_at_s = math.inf
            self.on_wake(False)

    def _settle(self) -> None:
        with self._settling:
            reading = self._meter.read() if self._meter else None
            now_s = self.clock.now()
            settled = self._attributor.advance(now_s, reading)
            self._deliver(settled)
            if self._attributor.pending:
                self._dirty = True
            if not self._dirty or now_s - self._published_at_s >= SETTLE_PERIOD_S:
                self._publish(now_s)

    def _deliver(self, settled: Settled) -> None:
        self.metrics.settled(settled)
        while self._observed:
            self._manager.observe_step(self._observed.popleft())
        for record in settled.records:
            self._manager.observe_request(record)
        if self._ledger is not None and (settled.records or settled.intervals):
            try:
                self._ledger.write(settled)
            except LedgerUnavailable as error:
                self.metrics.add("greenserve_ledger_failures_total", 1)
                self._ledger = None
                logger.error("%s. The ledger is switched off; serving goes on", error)

    def _publish(self, now_s: float) -> None:
        self._published_at_s = now_s
        if not self.config.telemetry.metrics:
            return
        grid = self._signal.view(now_s)
        metrics = self.metrics
        metrics.set("greenserve_held_requests", self._held)
        metrics.set("greenserve_batch_limit", self._limits[0])
        metrics.set("greenserve_token_limit", self._limits[1])
        metrics.set(
            "greenserve_carbon_intensity_grams_per_kwh",
            grid.intensity_g_per_kwh,
            zone=grid.zone,
            kind=grid.kind,
            source=grid.source,
        )
        metrics.set("greenserve_carbon_signal_age_seconds", max(now_s - grid.observed_at_s, 0.0))
        while self._overhead_s:
            metrics.observe("greenserve_step_overhead_seconds", self._overhead_s.popleft())
        for family, report in self._decisions.shadow_reports().items():
            metrics.shadow(family, report)
        active = {} if self._off else self._decisions.active
        for family in ("batch", "admission"):
            name = self.config.policies.choice(family)
            if name:
                metrics.set(
                    "greenserve_policy_active", int(family in active), family=family, policy=name
                )
        metrics.totals(self._attributor.totals())
        try:
            metrics.publish(self._run_dir / METRICS_FOLDER)
        except OSError:
            self._break("metrics")

    # --- change and failure -------------------------------------------------------------

    def _files_changed(self) -> None:
        self._reload = True
        self._dirty = True
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
        except ConfigError as error:
            if "reload" not in self._broken:
                self._broken.add("reload")
                logger.error("%s. The configuration in force stays", error)
            return
        self._broken.discard("reload")
        if fresh.config == self.config:
            return
        try:
            manager = GreenManager(fresh.config, self._plugins)
            decisions = Decisions(manager, on_trip=self._tripped)
        except GreenError as error:
            logger.error("%s. The configuration in force stays", error)
            return
        for table in FIXED_TABLES:
            if getattr(fresh.config, table) != getattr(self.config, table):
                logger.warning("greenserve: the change under [%s] needs a restart", table)
        manager.configure(self.engine)
        old, self._decisions = self._decisions, decisions
        self._resolved, self._manager = fresh, manager
        old.close()
        self._describe()
        logger.info("greenserve: configuration reloaded from %s", fresh.file)
        self.on_wake(True)

    def _describe(self) -> None:
        self.metrics.describe(
            profile=self.config.profile,
            method=self._attributor.method,
        )

    def _tripped(self, family: str, policy: str, reason: str) -> None:
        self.metrics.add("greenserve_policy_failures_total", 1, family=family, policy=policy)
        self._touch()
        self.on_wake(True)

    def _break(self, part: str) -> None:
        """Log a fault of ours once; serving goes on."""
        if part not in self._broken:
            self._broken.add(part)
            logger.exception("greenserve: %s failed; serving goes on without it", part)
