"""From the meter's joules to requests: **sum of requests + idle = what the meter counted**.

Two threads. The engine thread calls :meth:`Attributor.on_step`, :meth:`~Attributor.finish` and
:meth:`~Attributor.peek`; it only appends to queues and to its own accounts. One housekeeping
thread calls :meth:`~Attributor.advance` and :meth:`~Attributor.close` and owns everything behind
the queues. Nothing here locks, blocks or reads a clock or a meter by itself.

A counter lags behind the work, so an answer leaves with an estimate (``settled=False``) and the
final record follows from ``advance``. Each stretch of time between two moves of the counter is
split between idle time and the parts of steps that fall into it; a step that straddles the
border is split by time. A stretch that no meter vouches for is priced by the step model and says
so in ``method``.

A step is known once it has ended, so time is settled only up to where no unknown step can reach
back. An adapter says since when the engine has been at work; for one that does not, a lag is
guessed from recent steps, and time that passed for idle by mistake is paid back.
"""

from __future__ import annotations

import math
from collections import deque

import msgspec

from green_core.config import EnergyConfig
from green_core.energy.accounts import Account, PricedStep, Tally, build_record, join_methods
from green_core.energy.fit import Fit
from green_core.energy.model import StepModel
from green_core.energy.settling import Settler
from green_core.energy.track import CounterTrack, Stretch
from green_core.grid.signal import CarbonSignal
from green_core.values import (
    JOULES_PER_KWH,
    EngineInfo,
    Meter,
    MeterReading,
    RequestFacts,
    RequestRecord,
    Settled,
    StepView,
)

SECONDS_PER_YEAR = 365.25 * 86_400.0
MAX_GAP_S = 10.0
# Above this a reading is not believed: times the devices' power limit as the table has it, and
# never less than what any single device draws, since a meter may see more than the model does
# (a whole CPU package where the engine was given a few cores).
PLAUSIBLE_POWER = 3.0
PLAUSIBLE_W = 3000.0
MIN_LAG_S, MAX_LAG_S = 0.2, 30.0
# A step under way for longer was lost by a fault, or is one whose time is paid back later.
MAX_STEP_S = 60.0


class Totals(msgspec.Struct, frozen=True):
    """Sums since the start: settled energy (J), finished requests, tokens computed, gaps."""

    active_j: float
    idle_j: float
    requests: int
    prefill_tokens: int
    decode_tokens: int
    gaps: int
    method: str


class Attributor:
    """Attributes one engine's energy and carbon. See the module for threads and guarantees.

    ``start_s`` is when accounting begins. After ``max_gap_s`` without a usable reading the time
    is given up to the model; ``max_power_w`` is the most all devices can draw together (by
    default ``PLAUSIBLE_POWER`` times their limit, at least ``PLAUSIBLE_W``).
    """

    def __init__(
        self,
        *,
        engine: EngineInfo,
        config: EnergyConfig,
        model: StepModel,
        signal: CarbonSignal,
        meter: Meter | None,
        start_s: float,
        max_gap_s: float = MAX_GAP_S,
        max_power_w: float | None = None,
    ) -> None:
        self.method = meter.method if meter else model.method
        # Of a request that came by several methods nobody can say it.
        self._uncertainty = {model.method: model.uncertainty_ratio}
        if meter is not None:
            self._uncertainty[meter.method] = meter.uncertainty_ratio
        self._model = model
        self._signal = signal
        self._pue = config.pue
        self._shares_idle = config.idle == "shared"
        # Nothing but shared idle energy comes on top of the estimates then.
        self._final_by_model = meter is None
        self._final_at_finish = meter is None and not self._shares_idle
        embodied_g = config.embodied_g_per_device
        if embodied_g is None:  # by the device table; what it does not know is left out
            embodied_g = model.embodied_g or 0.0
        self._embodied_g_per_s = (
            embodied_g
            * max(1, engine.device_count)
            * config.embodied_share
            / (config.lifetime_years * SECONDS_PER_YEAR)
        )
        self.uncertainty_ratio = self._uncertainty.get(self.method)
        # Engine thread.
        self.modelled_j = 0.0  # of all steps, before any fit to a meter
        self._running: dict[str, Account] = {}
        self._handed_over = 0
        self._last_end_s = -math.inf
        self._longest_s = 0.0
        # Between the threads.
        self._steps: deque[PricedStep] = deque()
        self._finished: deque[tuple[RequestFacts, Account, int, RequestRecord]] = deque()
        # Housekeeping thread.
        self._track = (
            CounterTrack(
                method=meter.method,
                model_method=model.method,
                period_s=meter.period_s,
                max_w=max_power_w or max(PLAUSIBLE_POWER * model.max_w, PLAUSIBLE_W),
                max_gap_s=max_gap_s,
                start_s=start_s,
            )
            if meter
            else None
        )
        self._fit = Fit(model.static_w)
        self._stretches: deque[Stretch] = deque()
        self._settler = Settler(
            config=config,
            signal=signal,
            fit=self._fit,
            embodied_g_per_s=self._embodied_g_per_s,
            start_s=start_s,
            distributes=meter is not None,
        )
        self._requests = 0

    # --- engine thread ------------------------------------------------------------------

    def on_step(self, step: StepView) -> StepView:
        """Price a finished step and queue it for settling; answers it with ``energy_j``."""
        cost = self._model.price(step)
        start_s, end_s = step.start_s, step.end_s
        energy_j = cost.total_j * self._fit.scale
        if step.shares:
            self.modelled_j += cost.total_j
            duration_s = max(0.0, end_s - start_s)
            grams_per_j = self._grams_per_j(0.5 * (start_s + end_s))
            embodied = self._embodied_g_per_s * duration_s / cost.total_j
            per_dynamic = 1.0 + cost.static_per_dynamic
            running = self._running
            accounts: list[Account] = []
            prefill_tokens = decode_tokens = 0
            for share, compute_j, memory_j in zip(
                step.shares, cost.compute_j, cost.memory_j, strict=True
            ):
                account = running.get(share.request_id)
                if account is None:
                    account = running[share.request_id] = Account()
                weight_j = (compute_j + memory_j) * per_dynamic
                account.compute_j += compute_j
                account.memory_j += memory_j
                account.energy_j += weight_j
                account.operational_g += weight_j * grams_per_j
                account.embodied_g += weight_j * embodied
                prefill, decode = share.prefill_tokens, share.decode_tokens
                if prefill:
                    account.prefill_j += weight_j * prefill / (prefill + decode)
                    prefill_tokens += prefill
                decode_tokens += decode
                accounts.append(account)
            self._steps.append(
                PricedStep(
                    step,
                    accounts,
                    cost,
                    grams_per_j=grams_per_j,
                    prefill_tokens=prefill_tokens,
                    decode_tokens=decode_tokens,
                )
            )
            self._handed_over += 1
            self._longest_s = max(duration_s, 0.98 * self._longest_s)
        self._last_end_s = max(end_s, self._last_end_s)
        return StepView(start_s, end_s, step.shares, energy_j)

    def finish(self, facts: RequestFacts) -> RequestRecord:
        """Close a request after its last step. The record is an estimate until settled.

        A request that never ran (aborted while held) costs nothing.
        """
        account = self._running.pop(facts.request_id, None) or Account()
        record = self._estimate(facts, account, settled=self._final_at_finish)
        self._finished.append((facts, account, self._handed_over, record))
        return record

    def peek(self, facts: RequestFacts) -> RequestRecord:
        """The estimate for a request so far; it stays open."""
        account = self._running.get(facts.request_id) or Account()
        return self._estimate(facts, account, settled=False)

    def _grams_per_j(self, at_s: float) -> float:
        """Operational carbon of a joule used at ``at_s``, facility overhead included."""
        return self._pue * self._signal.intensity_at(at_s) / JOULES_PER_KWH

    def _estimate(self, facts: RequestFacts, account: Account, *, settled: bool) -> RequestRecord:
        return self._record(facts, account, self._fit.scale, self._model.method, settled)

    # --- housekeeping thread ------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether a later :meth:`advance` has work or results still to bring."""
        return bool(
            self._steps
            or self._settler.open
            or self._finished
            or self._settler.intervals.active_j > 0.0
        )

    def advance(
        self, now_s: float, reading: MeterReading | None, busy_since_s: float | None = None
    ) -> Settled:
        """Settle all time that is known by now.

        ``reading`` is the meter's, taken just before (``None``: it could not be read; without
        a meter it is not looked at). While the counter has not moved nothing settles.
        ``busy_since_s`` is when the oldest step under way began (``None``: none is, or nobody
        says); read it before the steps that ended are handed over, or one may fall in between.
        """
        last_end_s = self._last_end_s  # before the queue: all steps up to it are then in there
        finished = self._take()
        known_until_s = max(last_end_s, self._no_step_before_s(now_s, busy_since_s))
        if self._track is None:
            end_s = min(now_s, known_until_s)
            if end_s > self._settler.horizon_s:
                self._stretches.append(Stretch(end_s, None, self.method))
        else:
            self._queue(self._track.observe(now_s, reading))
        while self._stretches and self._stretches[0].end_s <= known_until_s:
            self._settler.settle(self._stretches.popleft())
        return self._collect(finished)

    def _no_step_before_s(self, now_s: float, busy_since_s: float | None) -> float:
        """The time that no step reaches back to, as far as can be said before it has ended."""
        # Where nobody says whether one is under way: longer than steps have taken lately.
        lag_s = min(max(MIN_LAG_S, 2.0 * self._longest_s), MAX_LAG_S)
        free_until_s = now_s - lag_s
        if busy_since_s is None or now_s - busy_since_s > MAX_STEP_S:
            return free_until_s
        return min(free_until_s, busy_since_s)

    def close(self, now_s: float, reading: MeterReading | None) -> Settled:
        """Settle everything that was handed over; the tail no counter has seen by the model."""
        finished = self._take()
        end_s = max([now_s, self._settler.horizon_s, *(step.end_s for step in self._settler.open)])
        if self._track is not None:
            self._queue(self._track.observe(now_s, reading))
            self._queue(self._track.close(end_s))
        else:
            self._stretches.append(Stretch(end_s, None, self.method))
        while self._stretches:
            self._settler.settle(self._stretches.popleft())
        if self._settler.open:  # handed over after their own time was settled
            self._settler.settle(Stretch(end_s, None, self._model.method))
        self._settler.intervals.flush()
        return self._collect(finished)

    def totals(self) -> Totals:
        """Sums so far; may be called from any thread."""
        return Totals(
            active_j=self._settler.active_j,
            idle_j=self._settler.idle_j,
            requests=self._requests,
            prefill_tokens=self._settler.prefill_tokens,
            decode_tokens=self._settler.decode_tokens,
            gaps=self._track.gaps if self._track else 0,
            method=self.method,
        )

    def _take(self) -> int:
        """Move new steps behind the queue; answers how many finished requests they cover.

        Counting the requests first makes sure that all steps of each one are here.
        """
        finished = len(self._finished)
        while self._steps:
            self._settler.open.append(self._steps.popleft())
        return finished

    def _queue(self, stretch: Stretch | None) -> None:
        if stretch is not None:
            self._stretches.append(stretch)

    def _collect(self, finished: int) -> Settled:
        records = []
        for _ in range(finished):
            facts, account, steps, estimate = self._finished[0]
            if steps > self._settler.done:
                break
            self._finished.popleft()
            self._requests += 1
            if self._final_at_finish:
                records.append(estimate)
                continue
            if self._final_by_model:
                account.take_idle()
                records.append(self._estimate(facts, account, settled=True))
                continue
            method = join_methods(account.methods, self.method)
            records.append(self._record(facts, account.settled, 1.0, method, True))
        return Settled(tuple(records), self._settler.intervals.take())

    def _record(
        self, facts: RequestFacts, tally: Tally, scale: float, method: str, settled: bool
    ) -> RequestRecord:
        return build_record(
            facts,
            tally,
            scale=scale,
            avoided_j=self._model.prefill_j(facts.cached_tokens) * self._fit.scale,
            pue=self._pue,
            grid=self._signal.view(facts.finished_s),
            method=method,
            uncertainty_ratio=self._uncertainty.get(method),
            settled=settled,
        )
