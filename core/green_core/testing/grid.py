"""A double for a service that tells the carbon intensity of a grid."""

from __future__ import annotations

import threading
from collections.abc import Callable

from green_core.grid.source import Slot, Snapshot
from green_core.values import Basis, SignalKind


def by_slot(start_s: float) -> float:
    """200 to 295 g/kWh, another value for each of two days' half hours."""
    return 200.0 + start_s // 1800.0 % 96


class ScriptedSource:
    """A live source that answers what a test wants.

    It tells ``back`` whole slots before the present one, the present one and ``ahead`` of them as
    a forecast, each worth ``value(start_s)`` g/kWh. While ``failure`` is set it is raised instead.
    ``answers`` is cleared to let questions hang. ``asked`` are the wall times of all questions.
    """

    name = "scripted"

    def __init__(
        self,
        *,
        value: Callable[[float], float] = by_slot,
        slot_s: float = 1800.0,
        back: int = 4,
        ahead: int = 0,
        kind: SignalKind = "average",
        basis: Basis = "lifecycle",
        zone: str = "GB",
    ) -> None:
        self.value = value
        self.back, self.ahead = back, ahead
        self.failure: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.asked: list[float] = []
        self.is_closed = False
        self.renewable_ratio: float | None = None
        self.period_s = self._slot_s = slot_s
        self._kind, self._basis, self._zone = kind, basis, zone

    def fetch(self, now_s: float) -> Snapshot:
        """The scripted answer."""
        self.asked.append(now_s)
        self.answers.wait()
        if self.failure is not None:
            raise self.failure
        present = int(now_s // self._slot_s)
        return Snapshot(
            source="scripted service",
            zone=self._zone,
            kind=self._kind,
            basis=self._basis,
            licence="CC0",
            fetched_at_s=now_s,
            history=self._slots(present - self.back, present + 1),
            forecast=self._slots(present + 1, present + 1 + self.ahead, is_estimate=True),
            renewable_ratio=self.renewable_ratio,
        )

    def close(self) -> None:
        """Note that it was."""
        self.is_closed = True

    def _slots(self, first: int, end: int, *, is_estimate: bool = False) -> tuple[Slot, ...]:
        starts_s = (n * self._slot_s for n in range(first, end))
        return tuple(
            Slot(at_s, at_s + self._slot_s, self.value(at_s), is_estimate) for at_s in starts_s
        )
