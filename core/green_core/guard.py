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
        self._latest: Answer = stock
        self._pending: Job | None = None
        self._overdue = 0.0
        self._seen_at = 0.0
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
        slices = max(1, round(self._budget_s / _SLICE_S))
        for _ in range(slices):
            if job.done.wait(_SLICE_S):
                return self._accept(job)
        if job.done.is_set():
            return self._accept(job)
        self.trip(f"did not answer within {self._budget_s * 1e3:.0f} ms")
        return self._stock

    def latest(self, *args: Any) -> Answer:
        """The newest answer, without waiting; hands ``args`` to the policy if it is free."""
        if self.tripped is not None:
            return self._stock
        job = self._pending
        if job is None or job.done.is_set():
            if job is not None:
                self._latest = self._accept(job)
                if self.tripped is not None:
                    return self._stock
            self._pending = job = Job(args)
            self._overdue, self._seen_at = 0.0, time.monotonic()
            self._inbox.put(job)
            return self._latest
        now = time.monotonic()
        self._overdue += min(now - self._seen_at, _SLICE_S)  # slices again: see ask()
        self._seen_at = now
        if self._overdue > self._budget_s:
            self.trip(f"did not answer within {self._budget_s * 1e3:.0f} ms")
            return self._stock
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

    def _run(self) -> None:
        while (job := self._inbox.get()) is not None:
            try:
                job.result = self._policy(*job.args)
            except BaseException as error:  # a policy may raise anything, SystemExit too
                job.error = error
            job.done.set()
            if not job.awaited:
                self._accept(job)
