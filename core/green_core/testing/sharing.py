"""Engine processes that share one device, in one process and on a clock that stands still."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from green_core.energy.sharing import PATIENCE_S, share
from green_core.values import Meter, MeterReading

METHOD = "measured:nvml-counter"


class SharedDevice:
    """A counter in exact joules, and the clock. While ``is_away`` nobody can read it."""

    def __init__(self, counter_j: float = 1000.0) -> None:
        self.at_s = 100.0
        self.counter_j = counter_j
        self.is_away = False

    def run(self, seconds: float, watts: float = 0.0) -> None:
        """Let time pass at a power."""
        self.at_s += seconds
        self.counter_j += seconds * watts


class SharingEngine:
    """A process at the device: what it worked and what it was told.

    ``behind_j`` is what it does not see yet of the counter.
    """

    def __init__(
        self, device: SharedDevice, folder: Path, *, absolute: bool = True, method: str = METHOD
    ) -> None:
        self.device = device
        self.start_j = 0.0 if absolute else device.counter_j
        self.behind_j = 0.0
        self.work_j = 0.0
        self.closed = False
        self.meter = share(
            Meter("GPU-1", method, 0.1, self._raw, self._close, is_absolute=absolute),
            folder=folder,
            now_s=lambda: device.at_s,
            steady_s=lambda: device.at_s,
        )
        self.first_j: float | None = None
        self.last: MeterReading | None = None

    def _raw(self) -> MeterReading | None:
        if self.device.is_away:
            return None
        return MeterReading(self.device.at_s, self.device.counter_j - self.start_j - self.behind_j)

    def _close(self) -> None:
        self.closed = True

    def work(self, joules: float) -> None:
        """Do work worth so much by the step model."""
        self.work_j += joules

    def read(self) -> MeterReading | None:
        """Look at the meter, as the books do."""
        if self.meter.note_work is not None:
            self.meter.note_work(self.work_j)
        reading = self.meter.read()
        if reading is not None:
            self.last = reading
            self.first_j = reading.energy_j if self.first_j is None else self.first_j
        return reading

    @property
    def got_j(self) -> float:
        """What it was given since its first reading."""
        if self.last is None or self.first_j is None:
            return 0.0
        return self.last.energy_j - self.first_j

    @property
    def desk(self) -> Any:
        """What stands behind the meter."""
        return self.meter.read.__self__  # type: ignore[attr-defined]

    def killed(self) -> None:
        """Do what the kernel does at the process's end."""
        self.desk._life.release()


def settle(device: SharedDevice, *engines: SharingEngine) -> None:
    """Time passes without energy until everything is divided."""
    for _ in range(8):
        device.run(PATIENCE_S / 5)
        for engine in engines:
            engine.read()
