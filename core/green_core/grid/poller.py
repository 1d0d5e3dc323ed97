"""Asks a live source as often as it publishes: one process per host and user, by a lock.

The others read what that one wrote. When it ends, however it ends, the kernel drops the lock and
the next process that looks takes over.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable

from green_core.clock import SteadyClock
from green_core.config import CarbonConfig
from green_core.errors import GreenError, SignalUnavailable
from green_core.faults import Faults
from green_core.grid.cache import Cache, PollState
from green_core.grid.signal import SignalListener
from green_core.grid.slots import checked, merged, one_line
from green_core.grid.source import Snapshot, Source
from green_core.locks import FileLock, runtime_folder

logger = logging.getLogger("greenserve")

DAY_S = 86_400.0
FIRST_PAUSE_S = 30.0  # after one failure; doubles with each further one
LONGEST_PAUSE_S = 900.0
PERMANENT_PAUSE_S = 1_800.0
REPEAT_S = 60.0  # a new process asks again after a permanent failure that is this old
CLOCK_SLACK_S = 60.0  # what is written further in the future was written by another clock
GRACE_S = 2.0  # what the asking process gets beyond the due time
LATEST_LOOK_S = 60.0  # between looks: for an overdue answer, or whether the clock was set
PATIENCE_S = 300.0  # with an elected process that neither ends nor asks, stopped say
MOST_QUESTIONS = 6  # of one round, logins included
OPENING_LOOK_S = 0.1  # the same while a process starts
CLOSE_S = 1.5
LONGEST_PROBLEM = 2_000  # characters


class Poller:
    """One thread that asks, or reads what another process was answered, and sleeps in between.

    ``take`` is called with each snapshot that is newer than the one before, from that thread.
    Nothing is started before :meth:`open`; a forked child has no thread and must not use it.
    Raises ``GreenError`` when no folder for cache and lock can be had.
    """

    def __init__(
        self,
        carbon: CarbonConfig,
        source: Source,
        cache: Cache,
        *,
        clock: SteadyClock,
        take: Callable[[Snapshot], None],
        listener: SignalListener | None = None,
    ) -> None:
        self._source = source
        self._carbon = carbon
        self._cache = cache
        self._clock = clock
        self._take = take
        self._listener = listener
        self.period_s = carbon.poll_s or source.period_s
        scope = hashlib.sha256(cache.scope.encode()).hexdigest()[:24]
        self._lock_name = f"carbon-{scope}.lock"
        self._lock = FileLock(runtime_folder() / self._lock_name)
        self._deputy = FileLock(runtime_folder() / f"carbon-{scope}.deputy.lock")
        self._faults = Faults()
        self._snapshot: Snapshot | None = None
        self._state: PollState | None = None
        self._asked = False  # whether this process has asked since it started
        self._overdue = 0
        self._waits_since_s = math.inf  # when the answer of the elected process became overdue
        self._logged: set[str] = set()
        self._opened, self._closing = threading.Event(), threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="green-carbon", daemon=True)

    @property
    def error(self) -> SignalUnavailable | None:
        """The newest failure, this process's or another's; ``None`` when all is well."""
        state = self._state
        if state is None or not state.failures:
            return None
        return SignalUnavailable(state.problem, reason=state.reason)

    def open(self) -> bool:
        """Start, and wait for the first answer or failure for ``carbon.timeout_s`` at most.

        False: there was neither in that time.
        """
        self._thread.start()
        return self._opened.wait(self._carbon.timeout_s + OPENING_LOOK_S)

    def close(self) -> None:
        """Stop within two seconds. A question that hangs is left behind and its answer ignored."""
        if os.getpid() != self._pid:
            return
        self._closing.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._lock.release()  # others need not wait for it
        elif self._thread.ident is None:
            self._end()

    def tick(self) -> float:
        """Do what is due; answers in how many seconds there will be something to do."""
        elected = self._is_elected()
        self._look()
        due_in_s = self._due_in_s(elected=elected)
        if elected:
            self._overdue = 0
            return due_in_s if due_in_s > 0 else self._ask()
        if due_in_s > 0:
            self._overdue, self._waits_since_s = 0, math.inf
        else:
            self._overdue = min(self._overdue + 1, 30)
            self._waits_since_s = min(self._waits_since_s, self._clock.now())
            if self._is_deputy():
                try:
                    return self._ask()
                finally:
                    self._deputy.release()
        grace_s = min(GRACE_S, self.period_s / 10)
        return due_in_s + min(grace_s * 2.0**self._overdue, LATEST_LOOK_S)

    # --- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        give_up_s = time.monotonic() + self._carbon.timeout_s
        while not self._closing.is_set():
            try:
                pause_s = self.tick()
            except Exception:
                self._faults.note("the carbon signal's poller")
                pause_s = LATEST_LOOK_S
            if not self._opened.is_set():
                if self._overdue and time.monotonic() < give_up_s:
                    pause_s = OPENING_LOOK_S
                else:
                    self._log_failure()
                    self._opened.set()
            # No longer: this wait does not notice that the machine was suspended.
            self._closing.wait(min(pause_s, LATEST_LOOK_S))
        self._end()

    def _end(self) -> None:
        self._lock.release()
        try:
            self._source.close()
        except Exception:
            self._faults.note("closing the carbon source")

    def _is_elected(self) -> bool:
        """Whether this process is the one that asks."""
        try:
            return self._lock.acquire()
        except OSError:
            pass
        try:  # somebody cleaned up the folder
            self._lock = FileLock(runtime_folder() / self._lock_name)
            return self._lock.acquire()
        except (OSError, GreenError):
            return True  # nobody can be agreed with; a few questions too many do no harm

    def _is_deputy(self) -> bool:
        """Whether this process asks for once, because the elected one does not (FIELD G1)."""
        patience_s = PATIENCE_S + MOST_QUESTIONS * self._carbon.timeout_s
        if self._clock.now() - self._waits_since_s < patience_s:
            return False
        try:
            return self._deputy.acquire()
        except OSError:
            return False

    def _look(self) -> None:
        """Take what another process wrote since the last look."""
        snapshot, state = self._cache.newer_snapshot(), self._cache.newer_state()
        if state is not None:
            self._state = state
            self._log_recovery()
        if snapshot is not None:
            self._adopt(snapshot)

    def _adopt(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._take(snapshot)
        self._tell(lambda listener: listener.signal_changed())

    def _due_in_s(self, *, elected: bool) -> float:
        state = self._state
        if state is None or (self._snapshot is None and not state.failures):
            return 0.0
        age_s = self._wall_s() - state.at_s
        pause_s = min(state.next_at_s - state.at_s, DAY_S)
        if age_s < -CLOCK_SLACK_S:
            return 0.0  # the wall clock was set back since
        error = self.error
        if elected and not self._asked and error is not None and error.is_permanent:
            pause_s = min(pause_s, REPEAT_S)  # somebody may have mended it and started again
        return min(max(pause_s - age_s, 0.0), max(pause_s, 0.0))

    # --- asking ---------------------------------------------------------------------------

    def _ask(self) -> float:
        """One round of questions; answers the pause after it."""
        self._asked, before = True, self._snapshot
        try:
            answer = checked(self._source.fetch(self._wall_s()), self._carbon)
            if self._closing.is_set():
                return 0.0
            self._look()
            if self._has_newer(answer, before):
                return 0.0
            kept_s = self._carbon.stale_after_s
            snapshot = merged(self._snapshot, answer, keep_forecast_s=kept_s)
        except SignalUnavailable as error:
            return self._failed(error)
        except Exception as error:  # its words may hold anything
            what = f"{self._carbon.source}: its reader failed ({type(error).__name__})"
            logger.debug("greenserve: %s", what, exc_info=True)
            return self._failed(SignalUnavailable(what, reason="malformed"))
        pause_s = self.period_s * random.uniform(1.0, 1.1)
        at_s = self._wall_s()
        self._write(PollState(at_s, at_s + pause_s), snapshot)
        self._adopt(snapshot)
        self._log_recovery()
        self._tell(lambda listener: listener.signal_fetched())
        return pause_s

    def _has_newer(self, answer: Snapshot, before: Snapshot | None) -> bool:
        """Whether another process heard something newer while this one was stopped."""
        known = self._snapshot
        if known is None or known is before:
            return False
        return answer.fetched_at_s < known.fetched_at_s <= self._wall_s() + CLOCK_SLACK_S

    def _failed(self, error: SignalUnavailable) -> float:
        if self._closing.is_set():
            return 0.0
        words = one_line(str(error), LONGEST_PROBLEM)
        error = SignalUnavailable(words, reason=error.reason, retry_after_s=error.retry_after_s)
        failures = self._state.failures + 1 if self._state else 1
        pause_s = self._pause_s(error, failures)
        at_s = self._wall_s()
        self._write(PollState(at_s, at_s + pause_s, failures, error.reason, words))
        if self._opened.is_set():
            self._log_failure()
        self._tell(lambda listener: listener.signal_failed(error))
        return pause_s

    def _pause_s(self, error: SignalUnavailable, failures: int) -> float:
        """How long to leave the service alone, at least as long as it asked for (FIELD G1)."""
        asked_for_s = min(max(error.retry_after_s or 0.0, 0.0), DAY_S)
        if error.is_permanent:
            return max(PERMANENT_PAUSE_S, asked_for_s) * random.uniform(1.0, 1.2)
        first_s = min(FIRST_PAUSE_S, self.period_s)
        pause_s = min(first_s * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE_S)
        if error.reason == "rate_limited":
            pause_s = max(pause_s, min(self.period_s, LONGEST_PAUSE_S))
        return max(pause_s * random.uniform(0.75, 1.25), asked_for_s * random.uniform(1.0, 1.05))

    def _write(self, state: PollState, snapshot: Snapshot | None = None) -> None:
        self._state = state
        try:
            self._cache.write(state, snapshot)
        except OSError:
            self._faults.note("writing the carbon cache")

    def _tell(self, call: Callable[[SignalListener], None]) -> None:
        if self._listener is None:
            return
        try:
            call(self._listener)
        except Exception:
            self._faults.note("a listener of the carbon signal")

    def _log_failure(self) -> None:
        """Each kind of failure once until it recovers; one that ends the start is raised."""
        error, state = self.error, self._state
        if error is None or state is None or error.reason in self._logged:
            return
        if error.is_permanent and not self._opened.is_set():
            return
        self._logged.add(error.reason)
        logger.warning(
            "greenserve: carbon.source %s fails (%s): %s. %s meanwhile. Asked again in %.0f s; "
            "further failures of this kind are not logged",
            self._carbon.source,
            error.reason,
            error,
            "The yearly average serves" if self._snapshot is None else "The last word serves",
            state.next_at_s - state.at_s,
        )

    def _log_recovery(self) -> None:
        if self._logged and self.error is None:
            self._logged.clear()
            logger.info("greenserve: carbon.source %s answers again", self._carbon.source)

    def _wall_s(self) -> float:
        """The wall clock, which other processes share; the steady one never follows its steps."""
        return self._clock.now() - self._clock.from_wall(0.0)
