"""Doubles for what greenserve reads: a clock, a carbon signal, a meter, and who observes it.

Signal, meter and observer are plugins, so a test switches them on as a user would: by name in the
config, handed to :class:`~green_core.runtime.Runtime` as ``plugins``.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import Any

from green_core.clock import SteadyClock
from green_core.config import GreenConfig
from green_core.spec import hookimpl
from green_core.values import (
    EngineInfo,
    ForecastPoint,
    GridView,
    Meter,
    MeterReading,
    Quality,
    RequestRecord,
    StepView,
)

START_S = 1_750_000_000.0  # 2025-06-15, as good as any


class ScriptedClock(SteadyClock):
    """Stands still until told otherwise. The wall clock can be stepped apart from it."""

    def __init__(self, start_s: float = START_S) -> None:
        self._seconds = 0.0
        self._wall_base_s = start_s
        super().__init__(wall_s=self.wall, steady_s=lambda: self._seconds)

    def wall(self) -> float:
        """What the operator's wall clock shows, in epoch seconds."""
        return self._wall_base_s + self._seconds

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not run backwards; use step_wall()")
        self._seconds += seconds

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock, as NTP or an operator does; no time passes."""
        self._wall_base_s += seconds


class ScriptedSignal:
    """A carbon signal that a test sets (``carbon.source`` names it). It has no forecast of its
    own: ``forecast`` is shown as it is, ``valid_until_s`` bounds the present value.
    """

    def __init__(self, intensity_g_per_kwh: float = 300.0) -> None:
        self.intensity_g_per_kwh = intensity_g_per_kwh
        self.forecast: tuple[ForecastPoint, ...] = ()
        self.valid_until_s = math.inf
        self.quality: Quality = "fresh"
        self._carbon = GreenConfig().carbon

    @hookimpl
    def green_carbon_source(self, config: GreenConfig, params: Mapping[str, Any]) -> ScriptedSignal:
        """Serve this very signal, judged by the config's thresholds."""
        self._carbon = config.carbon
        return self

    def view(self, now_s: float) -> GridView:
        """The value that was set last."""
        return GridView(
            intensity_g_per_kwh=self.intensity_g_per_kwh,
            kind=self._carbon.kind,
            zone=self._carbon.zone or "TEST",
            observed_at_s=now_s,
            valid_until_s=self.valid_until_s,
            source="scripted",
            is_estimate=False,
            state=self._carbon.state(self.intensity_g_per_kwh),
            forecast=self.forecast,
            forecast_end_s=math.inf if self.forecast else 0.0,
            quality=self.quality,
        )

    def intensity_at(self, at_s: float) -> float:
        """The value that was set last."""
        return self.intensity_g_per_kwh

    def next_change_s(self, now_s: float) -> float:
        """As scripted."""
        return self.valid_until_s

    def close(self) -> None:
        """Nothing to stop."""


class ScriptedMeter:
    """A counter that draws ``watts`` on a clock (``energy.meter`` names it).

    ``energy_j`` is where it stands, ``reads`` how often it was read; while ``lost`` it cannot be.
    """

    METHOD = "measured:scripted-counter"

    def __init__(self, clock: SteadyClock, watts: float = 5.0, period_s: float = 0.1) -> None:
        self.lost = False
        self.reads = 0
        self._clock = clock
        self._period_s = period_s
        self._watts = watts
        self._base_j = 1000.0
        self._base_s = clock.now()
        self._name = f"scripted-{uuid.uuid4()}"  # a device of its own for every test

    @property
    def energy_j(self) -> float:
        """The counter, in joules."""
        return self._base_j + self._watts * (self._clock.now() - self._base_s)

    def set_watts(self, watts: float) -> None:
        """Draw another power from now on."""
        self._base_j, self._base_s, self._watts = self.energy_j, self._clock.now(), watts

    @hookimpl
    def green_meters(self, config: GreenConfig, engine: EngineInfo) -> list[Meter]:
        """The one meter."""
        return [Meter(self._name, self.METHOD, self._period_s, self._read, lambda: None)]

    def _read(self) -> MeterReading | None:
        self.reads += 1
        return None if self.lost else MeterReading(self._clock.now(), self.energy_j)


class RecordingObserver:
    """Keeps all that observers are told (``policies.observers`` names it)."""

    def __init__(self) -> None:
        self.steps: list[StepView] = []
        self.records: list[RequestRecord] = []
        self.starts = 0
        self.ends = 0

    @hookimpl
    def green_configure(self, config: GreenConfig, engine: EngineInfo) -> None:
        """Count starts."""
        self.starts += 1

    @hookimpl
    def green_unconfigure(self) -> None:
        """Count ends."""
        self.ends += 1

    @hookimpl
    def green_on_step(self, step: StepView) -> None:
        """Keep the step."""
        self.steps.append(step)

    @hookimpl
    def green_on_request(self, record: RequestRecord) -> None:
        """Keep the record."""
        self.records.append(record)

    def record(self, request_id: str) -> RequestRecord:
        """The one record of a request; ``AssertionError`` unless there is exactly one."""
        found = [record for record in self.records if record.request_id == request_id]
        assert len(found) == 1, f"{len(found)} records of {request_id!r}, expected 1"
        return found[0]


class RaisingObserver:
    """An observer that fails at everything it is told."""

    @hookimpl
    def green_on_step(self, step: StepView) -> None:
        """Fail."""
        raise RuntimeError("an observer failed on purpose")

    @hookimpl
    def green_on_request(self, record: RequestRecord) -> None:
        """Fail."""
        raise RuntimeError("an observer failed on purpose")
