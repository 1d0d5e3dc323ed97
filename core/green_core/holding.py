"""Held requests: a side table that the engine never polls.

Adapters keep a request here instead of in the engine's queue. It takes no slot and no CPU; it is
reviewed when its hold ends, when the grid or config changes, or when the engine asks. Order is
stable: the most pressing deadline first, then arrival (FIELD P8, P10).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from green_core.values import Admission, Hold, RequestView, Urgency

Handle = TypeVar("Handle")

# Decisions asked for in one review; the rest follows in the next, so a step is never held up.
REVIEW_LIMIT = 64
# A request is started at the latest this many estimated run times before its deadline.
SAFETY = 1.5


class Door(Protocol):
    """What the table needs of the runtime."""

    def admit_all(self, requests: list[RequestView]) -> list[Admission]:
        """Decide on several requests."""

    def wake_at(self, at_s: float) -> None:
        """Ask for a wake-up; it replaces the one asked for before."""

    def released(self, urgency: Urgency, held_s: float, reason: str) -> None:
        """Note the end of a hold."""


class Held(msgspec.Struct, Generic[Handle]):
    """One held request. ``ready`` once a policy let it go and only room is missing."""

    handle: Handle
    view: RequestView
    since_s: float
    until_s: float
    ready: bool = False

    @property
    def must_start_s(self) -> float:
        """When it has to start, room or not."""
        if self.view.deadline_s is None:
            return math.inf
        return self.view.deadline_s - SAFETY * self.view.estimated_run_s


class HoldTable(Generic[Handle]):
    """The held requests of one scheduler; used from the engine's thread only."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._held: dict[str, Held[Handle]] = {}
        self._next_s = math.inf
        self._ready = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._held

    def hold(self, handle: Handle, view: RequestView, decision: Hold) -> None:
        """Keep a request aside."""
        held = Held(handle, view, view.now_s, decision.until_s)
        self._held[view.request_id] = held
        self._schedule(min(held.until_s, held.must_start_s))

    def drop(self, request_id: str, now_s: float, reason: str) -> float:
        """Forget a request (aborted); answers how long it was held."""
        held = self._held.pop(request_id)
        self._ready -= held.ready
        held_s = max(now_s - held.since_s, 0.0)
        self._door.released(held.view.urgency, held_s, reason)
        return held_s

    def due(self, now_s: float, room: int) -> bool:
        """Whether :meth:`review` has something to do."""
        return now_s >= self._next_s or (room > 0 and self._ready > 0)

    def review_all(self) -> None:
        """Ask again about every request at the next review: grid, config or switch changed."""
        for held in self._held.values():
            held.until_s, held.ready = 0.0, False
        self._ready = 0
        self._next_s = 0.0 if self._held else math.inf

    def review(
        self, now_s: float, room: int, refresh: Callable[[RequestView], RequestView]
    ) -> list[tuple[Handle, float]]:
        """Release what may run: (handle, seconds held), the most pressing first.

        ``room`` bounds how many flexible requests start now; a request whose deadline presses
        starts without. ``refresh`` gives a view its present times and queue lengths.
        """
        self._ask(now_s, refresh)
        released = []
        for held in self._in_order():
            pressed = now_s >= held.must_start_s
            if not (held.ready or pressed):
                continue
            if held.view.urgency == "flex" and not pressed:
                if room <= 0:
                    continue
                room -= 1
            reason = "deadline" if pressed and not held.ready else "policy"
            released.append((held.handle, self.drop(held.view.request_id, now_s, reason)))
        self._reschedule()
        return released

    def release_all(self, now_s: float, reason: str) -> list[tuple[Handle, float]]:
        """Let everything go (shutdown, switched off)."""
        return [
            (held.handle, self.drop(held.view.request_id, now_s, reason))
            for held in self._in_order()
        ]

    def _ask(self, now_s: float, refresh: Callable[[RequestView], RequestView]) -> None:
        asked = [h for h in self._in_order() if not h.ready and h.until_s <= now_s]
        asked = asked[:REVIEW_LIMIT]
        if not asked:
            return
        for held in asked:
            held.view = refresh(held.view)
        answers = self._door.admit_all([held.view for held in asked])
        for held, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Hold) and answer.until_s > now_s:
                held.until_s = answer.until_s
            else:
                held.ready = True

    def _in_order(self) -> list[Held[Handle]]:
        return sorted(self._held.values(), key=lambda h: (h.must_start_s, h.view.arrival_s))

    def _reschedule(self) -> None:
        self._next_s = math.inf
        self._ready = sum(held.ready for held in self._held.values())
        times = [
            held.must_start_s if held.ready else min(held.until_s, held.must_start_s)
            for held in self._held.values()
        ]
        if times:
            self._schedule(min(times))

    def _schedule(self, at_s: float) -> None:
        if at_s < self._next_s:
            self._next_s = at_s
            if math.isfinite(at_s):
                self._door.wake_at(at_s)
