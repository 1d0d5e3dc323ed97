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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from green_core.alarm import Alarm
from green_core.books import Books
from green_core.clock import SteadyClock
from green_core.config import GreenConfig, Resolved
from green_core.decisions import Decisions
from green_core.doctor.facts import EngineFacts
from green_core.errors import GreenError
from green_core.exits import Exits
from green_core.export.runfiles import METRICS_FOLDER
from green_core.faults import Faults
from green_core.grid.build import build_signal
from green_core.manager import GreenManager
from green_core.power.run import PowerRun
from green_core.reloading import LiveConfig
from green_core.signal_watch import SignalWatch
from green_core.switch import is_off
from green_core.telling import Teller
from green_core.values import EngineInfo, RequestFacts, RequestRecord
from green_core.values.serving import Admission, Admit, BatchPlan, QueueView, RequestView, StepView
from green_core.watch import Watcher, folders_of

logger = logging.getLogger("greenserve")

BUSY_PERIOD_S = 0.05  # how often steps are priced while the engine works
CLOSE_S = 1.5
_MIN_CHANGE_S = 0.1  # a signal that changes all the time is looked at no more often


class Runtime:
    """One per process that runs an engine's loop.

    ``run_dir`` is shared with the API servers (metrics, switch); ``anchor_s`` is the epoch time
    that a replayed signal counts from, the same in all processes. ``on_wake`` is called from the
    housekeeping thread when held requests are due, with true when grid, config or switch changed
    and all of them should be asked again. ``check`` may refuse a config, at the start and when
    it is edited; ``facts`` are what the adapter knows of the engine's configuration, for the
    status page. Raises ``GreenError`` when something that was asked for cannot be had.
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
        facts: EngineFacts | None = None,
    ) -> None:
        self._live = LiveConfig(resolved, check)
        self.engine = engine
        self.clock = clock or SteadyClock()
        self.on_wake = on_wake
        self._run_dir = run_dir
        self._plugins = plugins
        self._faults = Faults()
        config = resolved.config
        now_s = self.clock.now()
        self._manager = GreenManager(config, plugins)
        self._kick = threading.Event()
        self._grid_is_news = False
        self._watch = SignalWatch(
            config.carbon.source,
            stock_when_stale=config.carbon.on_stale == "off",
            on_change=self._grid_changed,
        )
        self._signal = build_signal(
            config.carbon,
            anchor_s=anchor_s,
            now_s=now_s,
            factory=lambda name: self._manager.carbon_source(),
            clock=self.clock,
            listener=self._watch,
        )
        self._look_at_grid(now_s)
        self._books = Books(
            config,
            engine,
            signal=self._signal,
            watch=self._watch,
            manager=self._manager,
            metrics_dir=run_dir / METRICS_FOLDER,
            now_s=now_s,
            faults=self._faults,
        )
        self._limits = (engine.max_running, engine.max_tokens)
        self._held = 0
        self._alarm = Alarm()
        self._sleeping = self._reload = self._closing = False
        self._teller = Teller(
            facts or EngineFacts(engine),
            books=self._books,
            signal=self._signal,
            watch=self._watch,
            faults=self._faults,
            run_dir=run_dir,
            now_s=now_s,
        )
        self._manager.configure(engine)
        self._decisions = self._decisions_of(self._manager)
        self._power = PowerRun(engine, self._tripped)
        self._power.follow(self._manager)
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
        return self._live.resolved.config

    @property
    def last_step(self) -> StepView | None:
        """The newest step that was priced."""
        return self._books.last_step

    @property
    def plans(self) -> bool:
        """Whether a batch policy has a say."""
        return self._decisions.plans and not self.is_stock

    @property
    def may_hold(self) -> bool:
        """Whether a request could be held now: a policy asks for it and the switch is on."""
        return self._decisions.may_hold and not self.is_stock

    @property
    def decides(self) -> bool:
        """Whether an admission policy wants to be asked, be it in shadow."""
        return self._decisions.decides and not self.is_stock

    @property
    def exits(self) -> Exits | None:
        """Early stops, where a policy decides on them; switch and signal are heeded inside."""
        return self._decisions.exits

    @property
    def is_stock(self) -> bool:
        """Whether the engine has its own behaviour: switched off, or the signal not believed."""
        return self._off or not self._watch.steers(self._signal.view(self.clock.now()))

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
        grid = self._signal.view(self.clock.now())
        if self._off or not self._watch.steers(grid):
            return [Admit(reason="off" if self._off else f"signal {grid.quality}")] * len(requests)
        return self._decisions.admit_all(requests, grid)

    def step(self, step: StepView, overhead_s: float = 0.0, waiting: int = 0) -> None:
        """Account for a finished step.

        ``overhead_s`` is what greenserve itself cost in it; ``waiting`` requests stood in the
        engine's own queue when it was scheduled.
        """
        self._books.step(step, overhead_s, waiting)
        self._touch()

    def note_prompt(self, token_ids: Sequence[int]) -> None:
        """Show a new request's prompt; it is compared with earlier ones off the step path."""
        self._books.load.note_prompt(token_ids)

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
        self._alarm.set(at_s)
        self._kick.set()

    def note_limits(self, *, running: int, tokens: int) -> None:
        """The limits in force, for /metrics."""
        self._limits = (running, tokens)

    def note_held(self, held: int) -> None:
        """How many requests are held, for /metrics."""
        self._held = self._books.load.held = held
        self._books.dirty = True
        self._touch()

    def released(self, urgency: str, held_s: float, reason: str) -> None:
        """Note the end of a hold."""
        self._books.released(self.clock.now(), urgency, held_s, reason)

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
        if self._thread.is_alive():  # it hangs; no limit of ours may outlive it
            self._power.close_beside()

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
            self._power.close()
            self._books.close(self.clock.now())
            self._manager.unconfigure()
            self._signal.close()
        except Exception:
            self._faults.note("the end of housekeeping")

    def _due_in_s(self) -> float | None:
        """Seconds until there is something to do; ``None``: until somebody kicks."""
        due_s = self._alarm.at_s - self.clock.now()
        if self._books.dirty:
            due_s = min(due_s, BUSY_PERIOD_S)
        if not self._books.at_work:
            due_s = min(due_s, self._power.rests_at_s - self.clock.now())
        if self._held:  # nobody else has to hear of a change of the grid
            due_s = min(due_s, self._grid_changes_s - self.clock.now())
        return min(max(due_s, 0.0), threading.TIMEOUT_MAX) if math.isfinite(due_s) else None

    def _tick(self) -> None:
        poked, self._reload = self._reload, False
        if poked:
            self._load_again()
        now_s = self.clock.now()
        if self._books.at_work:
            self._power.steer(
                is_stock=self.is_stock,
                load=lambda: self._books.load_view(now_s),
                grid=self._signal.view(now_s),
            )
        elif now_s >= self._power.rests_at_s:
            self._power.rest()
        if self._books.dirty or poked:
            self._books.settle(now_s, at_once=poked)
            active = {} if self.is_stock else {**self._decisions.active, **self._power.active}
            self._teller.show(self.config, active, limits=self._limits, held=self._held)
            self._books.metrics.set("greenserve_power_limit_watts", self._power.limit_w)
            self._books.publish(now_s, self._decisions.shadow_reports())
            if poked:
                self._teller.answer(
                    self._live.resolved,
                    active,
                    off=self._off,
                    problem=self._power.problem,
                    now_s=now_s,
                )
        news, self._grid_is_news = self._grid_is_news, False
        changed = news or now_s >= self._grid_changes_s
        if changed:
            self._look_at_grid(now_s)
        due = self._alarm.rings(now_s)
        if self._held and changed:
            self.on_wake(True)
        elif due:
            self.on_wake(False)

    def _in_words(self) -> str:
        now_s = self.clock.now()
        active = {**self._decisions.active, **self._power.active}
        return self._teller.words(self._live.resolved, active, off=self._off, now_s=now_s)

    # --- change and failure -------------------------------------------------------------

    def _decisions_of(self, manager: GreenManager) -> Decisions:
        return Decisions(manager, on_trip=self._tripped, is_stock=lambda: self.is_stock)

    def _grid_changed(self) -> None:
        """From the signal's own thread."""
        self._grid_is_news = True
        self._kick.set()

    def _look_at_grid(self, now_s: float) -> None:
        self._grid_changes_s = max(self._signal.next_change_s(now_s), now_s + _MIN_CHANGE_S)
        self._watch.heed(self._signal.view(now_s))

    def _files_changed(self) -> None:
        self._reload = True
        self._kick.set()

    def _load_again(self) -> None:
        off = is_off(self._live.resolved.file, self._run_dir)
        if off != self._off:
            self._off = off
            logger.info("greenserve: switched %s", "off: stock behaviour" if off else "on")
            self.on_wake(True)
        fresh = self._live.changed()
        if fresh is None:
            return
        try:
            manager = GreenManager(fresh.config, self._plugins)
            decisions = self._decisions_of(manager)
            manager.policy("power")
        except GreenError as error:
            self._live.refuse(error)
            return
        self._manager.unconfigure()
        manager.configure(self.engine)
        old, self._decisions = self._decisions, decisions
        self._live.adopt(fresh)
        self._manager = manager
        self._power.follow(manager)
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
