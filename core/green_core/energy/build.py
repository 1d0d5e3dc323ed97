"""Chooses meter and step model from the config."""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec

from green_core.config import EnergyConfig
from green_core.energy.devices import device_model
from green_core.energy.model import StepModel
from green_core.energy.nvml import combine, nvml_meters
from green_core.energy.ownership import claim
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter

logger = logging.getLogger("greenserve")


class MeterSource(Protocol):
    """Whoever can ask the plugin named by ``energy.meter`` (the plugin manager)."""

    def meters(self, engine: EngineInfo) -> list[Meter]:
        """The plugin's meters."""


def build_model(config: EnergyConfig, engine: EngineInfo) -> StepModel:
    """The step model for the engine's device, with the config's overrides."""
    return StepModel(device_model(engine.device, config), engine)


def build_meter(
    config: EnergyConfig, engine: EngineInfo, plugins: MeterSource | None = None
) -> Meter | None:
    """The meter that ``energy.meter`` asks for; ``None``: the step model alone.

    Call after any fork. ``auto`` falls back to the model and logs why; a meter that was asked
    for by name and cannot be had raises ``MeterUnavailable``.
    """
    if config.meter == "model":
        return None
    if config.meter == "auto":
        try:
            return _nvml(engine)
        except MeterUnavailable as reason:
            logger.info("greenserve: energy is estimated by the model. %s", reason)
            return None
    if config.meter == "nvml":
        return _nvml(engine)
    meters = plugins.meters(engine) if plugins else []
    if not meters:
        raise MeterUnavailable(
            f"The plugin {config.meter!r} (energy.meter) offers no meter for device "
            f'{engine.device!r}. Use "auto", "nvml" or "model", or mend the plugin'
        )
    return _owned(meters)


def _nvml(engine: EngineInfo) -> Meter:
    if engine.device.strip().lower() == "cpu":
        raise MeterUnavailable(
            "The engine runs on the CPU, which NVML does not meter. Set energy.meter to "
            '"model" or to a plugin that reads the CPU\'s counters'
        )
    return _owned(nvml_meters(engine))


def _owned(meters: list[Meter]) -> Meter:
    """All meters as one, with their devices claimed for as long as it is open (FIELD E8)."""
    meter = combine(meters)
    try:
        held = claim(each.name for each in meters)
    except MeterUnavailable:
        meter.close()
        raise

    def close() -> None:
        meter.close()
        held.release()

    return msgspec.structs.replace(meter, close=close)
