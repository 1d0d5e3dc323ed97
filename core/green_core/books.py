"""The books of one engine process: steps and requests in, settled joules and grams out."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from green_core.config import GreenConfig
from green_core.doctor.facts import LoadFacts, MeterFacts
from green_core.energy.attribution import MAX_STEP_S, Attributor
from green_core.energy.build import build_model, open_meter
from green_core.estimate import RunTimeEstimator
from green_core.export.ledger import Ledger, PatientLedger
from green_core.export.prometheus import EngineMetrics
from green_core.faults import Faults
from green_core.grid.signal import CarbonSignal
from green_core.load import LoadGauge, LoadWatch
from green_core.manager import GreenManager
from green_core.policies.shadow import ShadowReport
from green_core.signal_watch import SignalWatch
from green_core.values import (
    EngineInfo,
    LoadView,
    MeterReading,
    RequestFacts,
    RequestRecord,
    Settled,
    StepView,
)

logger = logging.getLogger("greenserve")

# A meter is read once a step, but no faster than its counter moves and no slower than this.
SETTLE_PERIOD_S = 1.0
PUBLISH_PERIOD_S = 1.0
_WEIGHT = 0.05
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
        watch: SignalWatch,
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
        self.load = LoadWatch(now_s, engine.max_running)
        self._gauge = LoadGauge(now_s)
        self._signal = signal
        self._watch = watch
        self._faults = faults
        self._metrics_dir = metrics_dir
        choice = open_meter(config.energy, engine, manager)
        self._meter, self._meter_problem = choice.meter, choice.problem
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
        self._unpriced: deque[tuple[StepView, int]] = deque()
        self._pricing = threading.Lock()
        self._observed: deque[StepView] = deque(maxlen=10_000)
        self._overhead_s: deque[float] = deque(maxlen=10_000)
        self._step_s = 0.0  # running mean
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

    def step(self, step: StepView, overhead_s: float, waiting: int) -> None:
        """Note a finished step, what greenserve itself cost in it and who waited meanwhile."""
        self._unpriced.append((step, waiting))
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

    def released(self, now_s: float, urgency: str, held_s: float, reason: str) -> None:
        """Note the end of a hold."""
        if urgency == "standard":
            self.load.note_company(now_s, held_s)
        self.metrics.observe("greenserve_hold_seconds", held_s, urgency=urgency)
        self.metrics.add("greenserve_holds_released_total", 1, reason=reason)

    # --- housekeeping thread --------------------------------------------------------------

    @property
    def at_work(self) -> bool:
        """Whether a step is under way, or one that ended is not settled yet."""
        return self.dirty or self.busy_since_s is not None

    def load_view(self, now_s: float) -> LoadView:
        """What a power policy sees: the device since it was last asked."""
        totals = self._attributor.totals()
        return self._gauge.look(
            now_s,
            energy_j=totals.active_j + totals.idle_j,
            busy_s=self.load.busy_s,
            itl_s=self.estimator.decode_step_s,
            ttft_s=self.load.ttft_s,
        )

    def price(self) -> None:
        """Price the steps noted so far."""
        observes = self.manager.has_observers("green_on_step")
        with self._pricing:
            while self._unpriced:
                step, waiting = self._unpriced.popleft()
                self.load.step(step, waiting)
                self._step_s += _WEIGHT * (step.duration_s - self._step_s)
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
        if not at_once and now_s - self._settled_at_s < self._settle_period_s():
            return False
        self._settled_at_s = now_s
        self.dirty = False
        settled = self._attributor.advance(now_s, self._read(), busy_since_s)
        self._tell(settled)
        if self._ledger is not None:
            self._ledger.write(settled, now_s)
        behind = self._ledger is not None and self._ledger.behind
        if self._attributor.pending or behind or self._must_sample(now_s):
            self.dirty = True
        return True

    def _must_sample(self, now_s: float) -> bool:
        """Whether to look again before the step under way ends: a sum of samples knows nothing of
        the time between them, while a counter goes on by itself.
        """
        since_s, meter = self.busy_since_s, self._meter
        samples = meter is not None and not meter.is_absolute
        return samples and since_s is not None and now_s - since_s < MAX_STEP_S

    def publish(self, now_s: float, shadows: Mapping[str, ShadowReport]) -> None:
        """Bring /metrics up to date, at most once a second while work goes on."""
        if self.dirty and now_s - self._published_at_s < PUBLISH_PERIOD_S:
            return
        self._published_at_s = now_s
        if not self.config.telemetry.metrics:
            return
        metrics = self.metrics
        self._watch.show(metrics, self._signal.view(now_s), now_s)
        while self._overhead_s:
            metrics.observe("greenserve_step_overhead_seconds", self._overhead_s.popleft())
        for family, report in shadows.items():
            metrics.shadow(family, report)
        metrics.totals(self._attributor.totals())
        if self._meter is not None and self._meter.rest_j is not None:
            metrics.set_total("greenserve_rest_energy_joules_total", self._meter.rest_j())
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
        settled = self._attributor.close(now_s, self._read())
        self._tell(settled)
        if self._ledger is not None:
            self._ledger.close(settled)
        if self._meter is not None:
            self._meter.close()
        self.metrics.withdraw(self._metrics_dir)

    def load_facts(self, now_s: float) -> LoadFacts:
        """What the engine had to do so far."""
        self.load.look_at_prompts()
        if self.busy_since_s is None:  # no step told of those that have ended since
            self.load.running = self.load.waiting = 0
        totals = self._attributor.totals()
        return self.load.facts(now_s, active_j=totals.active_j, idle_j=totals.idle_j)

    def meter_facts(self) -> MeterFacts:
        """How energy is known."""
        meter, totals = self._meter, self._attributor.totals()
        if meter is None:
            return MeterFacts(
                method=totals.method,
                uncertainty_ratio=self._attributor.uncertainty_ratio,
                problem=self._meter_problem,
            )
        return MeterFacts(
            method=totals.method,
            name=meter.name,
            period_s=meter.period_s,
            uncertainty_ratio=meter.uncertainty_ratio,
            gaps=totals.gaps,
            rest_j=meter.rest_j() if meter.rest_j is not None else None,
        )

    def _settle_period_s(self) -> float:
        if self._meter is None:
            return SETTLE_PERIOD_S
        return max(min(self._step_s, SETTLE_PERIOD_S), self._meter.period_s)

    def _read(self) -> MeterReading | None:
        meter = self._meter
        if meter is None:
            return None
        if meter.note_work is not None:
            meter.note_work(self._attributor.modelled_j)
        return meter.read()

    def _tell(self, settled: Settled) -> None:
        self.metrics.settled(settled)
        for record in settled.records:
            self.load.request(record, self.estimator.prefill_token_s)
        while self._observed:
            self.manager.observe_step(self._observed.popleft())
        for record in settled.records:
            self.manager.observe_request(record)
