"""The books of one engine process: steps and requests in, settled joules and grams out."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from green_core.config import GreenConfig
from green_core.energy.attribution import Attributor
from green_core.energy.build import build_meter, build_model
from green_core.estimate import RunTimeEstimator
from green_core.export.ledger import Ledger, PatientLedger
from green_core.export.prometheus import EngineMetrics
from green_core.faults import Faults
from green_core.grid.signal import CarbonSignal
from green_core.manager import GreenManager
from green_core.policies.shadow import ShadowReport
from green_core.values import EngineInfo, RequestFacts, RequestRecord, Settled, StepView

logger = logging.getLogger("greenserve")

SETTLE_PERIOD_S = 1.0  # without a meter; with one, its own period
PUBLISH_PERIOD_S = 1.0
# Ends of an answer that say how long answers are; an abort does not.
COMPLETE = ("stop", "length")


class Books:
    """Meter, step model, attribution, ledger and metrics of one engine process.

    The engine's thread calls :meth:`step`, :meth:`finish` and :meth:`peek`; the housekeeping
    thread calls the rest. Steps are priced by whoever comes first: the housekeeping thread, or
    the engine's when it needs an account. Raises ``GreenError`` when a meter or ledger that was
    asked for cannot be had.
    """

    def __init__(
        self,
        config: GreenConfig,
        engine: EngineInfo,
        *,
        signal: CarbonSignal,
        manager: GreenManager,
        metrics_dir: Path,
        now_s: float,
        faults: Faults,
    ) -> None:
        self.manager = manager
        self.config = config
        self.last_step: StepView | None = None
        self.estimator = RunTimeEstimator()
        self.dirty = True
        self.busy_since_s: float | None = None  # when the oldest step under way began
        self._signal = signal
        self._faults = faults
        self._metrics_dir = metrics_dir
        self._meter = build_meter(config.energy, engine, manager)
        self._attributor = Attributor(
            engine=engine,
            config=config.energy,
            model=build_model(config.energy, engine),
            signal=signal,
            meter=self._meter,
            start_s=now_s,
        )
        self.metrics = EngineMetrics(
            engine,
            max_tenants=config.telemetry.max_tenants,
            profile=config.profile,
            method=self._attributor.method,
        )
        self._ledger = self._open_ledger(engine) if config.ledger.path else None
        self._unpriced: deque[StepView] = deque()
        self._pricing = threading.Lock()
        self._observed: deque[StepView] = deque(maxlen=10_000)
        self._overhead_s: deque[float] = deque(maxlen=10_000)
        self._settle_period_s = self._meter.period_s if self._meter else SETTLE_PERIOD_S
        self._settled_at_s = self._published_at_s = 0.0

    def _open_ledger(self, engine: EngineInfo) -> PatientLedger:
        return PatientLedger(
            partial(
                Ledger.open,
                self.config.ledger.path,
                engine=engine,
                keep_days=self.config.ledger.keep_days,
            ),
            on_failure=partial(self.metrics.add, "greenserve_ledger_failures_total", 1),
        )

    # --- engine's thread ------------------------------------------------------------------

    def step(self, step: StepView, overhead_s: float) -> None:
        """Note a finished step and what greenserve itself cost in it."""
        self._unpriced.append(step)
        self._overhead_s.append(overhead_s)
        self.dirty = True

    def finish(self, facts: RequestFacts) -> RequestRecord | None:
        """Close a request's account; ``None`` once metering broke."""
        if facts.finish_reason in COMPLETE:
            self.estimator.observe_answer(facts.output_tokens)
        return self._account(self._attributor.finish, facts)

    def peek(self, facts: RequestFacts) -> RequestRecord | None:
        """A running request's account so far; ``None`` once metering broke."""
        return self._account(self._attributor.peek, facts)

    def _account(
        self, close: Callable[[RequestFacts], RequestRecord], facts: RequestFacts
    ) -> RequestRecord | None:
        self.price()
        self.dirty = True
        try:
            return close(facts)
        except Exception:
            self._faults.note("metering")
            return None

    # --- housekeeping thread --------------------------------------------------------------

    def price(self) -> None:
        """Price the steps noted so far."""
        observes = self.manager.has_observers("green_on_step")
        with self._pricing:
            while self._unpriced:
                step = self._unpriced.popleft()
                try:
                    self.last_step = priced = self._attributor.on_step(step)
                    self.estimator.observe(priced)
                except Exception:
                    self._faults.note("metering")
                    continue
                if observes:
                    self._observed.append(priced)

    def settle(self, now_s: float, *, at_once: bool) -> bool:
        """Settle, write and count what the meter has passed; answers whether anything was due."""
        busy_since_s = self.busy_since_s  # before pricing: that step may end meanwhile
        self.price()
        if not at_once and now_s - self._settled_at_s < self._settle_period_s:
            return False
        self._settled_at_s = now_s
        self.dirty = False
        reading = self._meter.read() if self._meter else None
        settled = self._attributor.advance(now_s, reading, busy_since_s)
        self._tell(settled)
        if self._ledger is not None:
            self._ledger.write(settled, now_s)
        if self._attributor.pending or (self._ledger is not None and self._ledger.behind):
            self.dirty = True
        return True

    def publish(
        self, now_s: float, gauges: Mapping[str, float], shadows: Mapping[str, ShadowReport]
    ) -> None:
        """Bring /metrics up to date, at most once a second while work goes on."""
        if self.dirty and now_s - self._published_at_s < PUBLISH_PERIOD_S:
            return
        self._published_at_s = now_s
        if not self.config.telemetry.metrics:
            return
        metrics, grid = self.metrics, self._signal.view(now_s)
        metrics.set(
            "greenserve_carbon_intensity_grams_per_kwh",
            grid.intensity_g_per_kwh,
            zone=grid.zone,
            kind=grid.kind,
            source=grid.source,
        )
        metrics.set("greenserve_carbon_signal_age_seconds", max(now_s - grid.observed_at_s, 0.0))
        for name, value in gauges.items():
            metrics.set(name, value)
        while self._overhead_s:
            metrics.observe("greenserve_step_overhead_seconds", self._overhead_s.popleft())
        for family, report in shadows.items():
            metrics.shadow(family, report)
        metrics.totals(self._attributor.totals())
        try:
            metrics.publish(self._metrics_dir)
        except OSError:
            self._faults.note("metrics")

    @property
    def method(self) -> str:
        """How energy is known, as every value says it."""
        return self._attributor.method

    def describe(self) -> None:
        """Say again on /metrics which profile and method are in force."""
        self.metrics.describe(profile=self.config.profile, method=self._attributor.method)

    def close(self, now_s: float) -> None:
        """Settle everything, the tail by the model, and let go of files and meters."""
        self.price()
        reading = self._meter.read() if self._meter else None
        settled = self._attributor.close(now_s, reading)
        self._tell(settled)
        if self._ledger is not None:
            self._ledger.close(settled)
        if self._meter is not None:
            self._meter.close()
        self.metrics.withdraw(self._metrics_dir)

    def _tell(self, settled: Settled) -> None:
        self.metrics.settled(settled)
        while self._observed:
            self.manager.observe_step(self._observed.popleft())
        for record in settled.records:
            self.manager.observe_request(record)
