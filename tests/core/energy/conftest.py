from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from green_core.config import EnergyConfig
from green_core.energy.attribution import Attributor
from green_core.energy.devices import DeviceModel
from green_core.energy.model import StepModel
from green_core.testing.builders import engine_info, grid_view, request_facts
from green_core.values import (
    GridView,
    Meter,
    MeterReading,
    RequestFacts,
    RequestRecord,
    Settled,
    StepShare,
    StepView,
)


class Signal:
    def __init__(self, intensity: Callable[[float], float]) -> None:
        self._intensity = intensity

    def view(self, now_s: float) -> GridView:
        return grid_view(self._intensity(now_s), observed_at_s=now_s, valid_until_s=math.inf)

    def intensity_at(self, at_s: float) -> float:
        return self._intensity(at_s)

    def next_change_s(self, now_s: float) -> float:
        return math.inf

    def close(self) -> None:
        pass


class Kit:
    """Builders shared by the tests of this folder."""

    METER = "measured:test-counter"
    MODEL = "estimated:model"
    GAP = "estimated:model(meter gap)"
    engine = engine_info(device="test")
    device = DeviceModel("test", 100.0, 1e-12, 1e-10, 700.0, "test", 2025, False)

    def model(self) -> StepModel:
        return StepModel(self.device, self.engine)

    @staticmethod
    def signal(intensity: Callable[[float], float] = lambda at_s: 400.0) -> Signal:
        return Signal(intensity)

    def attributor(
        self,
        *,
        metered: bool = False,
        config: EnergyConfig | None = None,
        intensity: Callable[[float], float] = lambda at_s: 400.0,
        start_s: float = 0.0,
        model: StepModel | None = None,
        **options: float,
    ) -> Attributor:
        meter = Meter("t", self.METER, 0.1, lambda: None, lambda: None) if metered else None
        return Attributor(
            engine=self.engine,
            config=config or EnergyConfig(pue=1.25),
            model=model or self.model(),
            signal=Signal(intensity),
            meter=meter,
            start_s=start_s,
            **options,
        )

    @staticmethod
    def share(name: str, prefill: int = 0, decode: int = 0, context: int = 0) -> StepShare:
        return StepShare(name, prefill, decode, context or prefill + decode)

    @staticmethod
    def step(start_s: float, end_s: float, *shares: StepShare) -> StepView:
        return StepView(start_s, end_s, shares)

    @staticmethod
    def facts(name: str, *, finished_s: float = 1.0, cached: int = 0) -> RequestFacts:
        return request_facts(
            request_id=name,
            arrival_s=0.0,
            finished_s=finished_s,
            wait_s=0.0,
            held_s=0.0,
            prompt_tokens=10,
            cached_tokens=cached,
            output_tokens=1,
        )

    @staticmethod
    def reading(at_s: float, energy_j: float) -> MeterReading:
        return MeterReading(at_s, energy_j)

    @staticmethod
    def join(*settled: Settled) -> Settled:
        return Settled(
            tuple(r for each in settled for r in each.records),
            tuple(i for each in settled for i in each.intervals),
        )

    @staticmethod
    def by_id(settled: Settled) -> dict[str, RequestRecord]:
        return {record.request_id: record for record in settled.records}


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit()
