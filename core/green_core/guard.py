"""The circuit breaker around a policy.

A policy runs in a worker thread, never in the engine's: one that stalls cannot hold a step. It is
switched off for good, counted and logged once when it raises, exceeds its time budget or answers
something that is not a decision (FIELD P9, P25). Stock behaviour then goes on.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from green_core.errors import PolicyFailed

logger = logging.getLogger("greenserve")

Answer = TypeVar("Answer")
_SLICE_S = 0.02
_MAX_IN_LINE = 1000
_FOLLOW_S = 0.02  # how often the worker looks for an offer while the caller is busy
_FOLLOW_LOOKS = 50  # looks without an offer before it sleeps until called


class Job:
    """One call handed to the worker."""

    __slots__ = ("args", "awaited", "done", "error", "result")

    def __init__(self, args: tuple[Any, ...], *, awaited: bool = True) -> None:
        self.args = args
        self.awaited = awaited
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class Guard(Generic[Answer]):
    """Wraps one policy callable.

    ``valid`` judges an answer: it returns a problem in words, or ``None``. ``stock`` is what is
    answered once the policy is off. ``on_trip`` is told the reason, once.
    """

    def __init__(
        self,
        name: str,
        policy: Callable[..., Answer],
        *,
        stock: Answer,
        valid: Callable[[Any], str | None],
        budget_s: float,
        on_trip: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self._policy = policy
        self._stock = stock
        self._valid = valid
        self._budget_s = budget_s
        self._on_trip = on_trip
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._offer: tuple[Any, ...] | None = None
        self._latest: Answer = stock
        self._following = False  # the worker looks at offers by itself
        self._working = False
        self._overdue_s = self._seen_at_s = 0.0
        self._lock = threading.Lock()
        self.tripped: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"green-{name}", daemon=True)
        self._thread.start()

    def ask(self, *args: Any) -> Answer:
        """Call the policy and wait for its answer, at most for the budget."""
        if self.tripped is not None:
            return self._stock
        job = Job(args)
        self._inbox.put(job)
        # Slices, so that a pause of the whole process counts as one slice and not as a stall.
        for _ in range(max(1, round(self._budget_s / _SLICE_S))):
            if job.done.wait(_SLICE_S):
                return self._accept(job)
        if job.done.is_set():
            return self._accept(job)
        self._trip_late()
        return self._stock

    def latest(self, *args: Any) -> Answer:
        """The newest answer, without waiting; offers ``args`` as what to decide on next.

        A busy caller offers often; the worker then looks by itself every few milliseconds, so
        that an offer costs the caller an assignment and no wake-up of another thread.
        """
        if self.tripped is not None:
            return self._stock
        self._offer = args
        if self._working:
            self._watch()
        else:
            self._overdue_s = 0.0
            if not self._following:
                self._following = True
                self._inbox.put(_FOLLOW)
        return self._latest

    def tell(self, *args: Any) -> None:
        """Hand ``args`` over and forget the answer; dropped when too many are in line."""
        if self.tripped is None and self._inbox.qsize() < _MAX_IN_LINE:
            self._inbox.put(Job(args, awaited=False))

    def trip(self, reason: str) -> None:
        """Switch the policy off for good."""
        with self._lock:
            if self.tripped is not None:
                return
            self.tripped = reason
        self._latest = self._stock
        self._inbox.put(None)
        error = PolicyFailed(
            f"policy {self.name} {reason}; it is switched off and the engine's own behaviour "
            "goes on. Mend the policy and restart, or remove it from the config"
        )
        logger.error("%s", error)
        if self._on_trip is not None:
            self._on_trip(reason)

    def close(self) -> None:
        """Let the worker end."""
        self._inbox.put(None)

    def _watch(self) -> None:
        """Notice a stall from the caller's thread; a long pause counts as one slice (see ask)."""
        now_s = time.monotonic()
        if self._overdue_s == 0.0:
            self._seen_at_s = now_s
        self._overdue_s += min(now_s - self._seen_at_s, _SLICE_S) or 1e-9
        self._seen_at_s = now_s
        if self._overdue_s > self._budget_s:
            self._trip_late()

    def _trip_late(self) -> None:
        self.trip(f"did not answer within {self._budget_s * 1e3:.0f} ms")

    def _accept(self, job: Job) -> Answer:
        if job.error is not None:
            self.trip(f"raised {type(job.error).__name__}: {job.error}")
            return self._stock
        problem = self._valid(job.result)
        if problem is not None:
            self.trip(f"answered {problem}")
            return self._stock
        answer: Answer = job.result
        return answer

    # --- worker's thread ------------------------------------------------------------------

    def _run(self) -> None:
        idle_looks = 0
        while True:
            try:
                job = self._inbox.get(timeout=_FOLLOW_S if self._following else None)
            except queue.Empty:
                idle_looks = 0 if self._decide() else idle_looks + 1
                if idle_looks > _FOLLOW_LOOKS:
                    idle_looks = 0
                    self._following = False
                    self._decide()  # offered between the last look and the line above
                continue
            if job is None:
                return
            if job is _FOLLOW:
                self._decide()
                continue
            self._call(job)
            if not job.awaited:
                self._accept(job)

    def _decide(self) -> bool:
        """Decide on the newest offer, if there is one."""
        args, self._offer = self._offer, None
        if args is None:
            return False
        self._working = True
        job = Job(args)
        self._call(job)
        self._working = False
        if self.tripped is None:
            self._latest = self._accept(job)
        return True

    def _call(self, job: Job) -> None:
        try:
            job.result = self._policy(*job.args)
        except BaseException as error:  # a policy may raise anything, SystemExit too
            job.error = error
        job.done.set()


_FOLLOW = Job(())
