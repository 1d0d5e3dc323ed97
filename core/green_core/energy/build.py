"""Chooses meter and step model from the config."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Collection
from typing import Protocol

import msgspec

from green_core.config import EnergyConfig, nearest, require
from green_core.energy.combine import combine
from green_core.energy.devices import device_model
from green_core.energy.model import StepModel
from green_core.energy.sharing import share
from green_core.energy.steadfast import steadfast
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter

METERS = ("nvml", "dcgm", "amd", "rapl", "hwmon", "ipmi", "cpu")

_GPU = frozenset({"nvml", "dcgm", "amd"})
_NODE = frozenset({"hwmon", "ipmi"})
_HOST_CPU = frozenset({"rapl", "cpu"})  # what they answer is a part by CPU time already
_AMD_NAMES = ("amd", "instinct", "radeon", "gfx")

logger = logging.getLogger("greenserve")


class MeterSource(Protocol):
    """Whoever can ask the plugin named by ``energy.meter`` (the plugin manager)."""

    @property
    def names(self) -> list[str]:
        """The plugins that could be named."""

    def meters(self, engine: EngineInfo) -> list[Meter]:
        """The plugin's meters."""


class MeterChoice(msgspec.Struct, frozen=True):
    """The meter in use, or ``None`` for the step model; ``problem`` says why it is the model."""

    meter: Meter | None
    problem: str = ""


def build_model(config: EnergyConfig, engine: EngineInfo) -> StepModel:
    """The step model for the engine's device, with the config's overrides."""
    return StepModel(device_model(engine.device, config), engine)


def check_meter(wanted: str, plugins: Collection[str] = ()) -> tuple[str, ...]:
    """The meters that ``energy.meter`` names; empty for ``auto``, ``model`` and a plugin.

    Raises ``ConfigError`` for an unknown name and for meters that would count the same joules
    twice (FIELD E7, E13). Opens nothing.
    """
    if wanted in ("auto", "model"):
        return ()
    names = tuple(wanted.split("+"))
    if len(names) == 1 and wanted not in METERS and wanted in plugins:
        return ()
    for name in names:
        joinable = name in METERS or name in ("auto", "model") or name in plugins
        known = [*METERS, "auto", "model", *plugins]
        require(joinable, "energy.meter", f"unknown meter {name!r}", nearest(name, known))
        require(
            name in METERS,
            "energy.meter",
            f"{name!r} stands alone and cannot be joined to others ({wanted!r})",
            "Meters that can be joined: " + ", ".join(METERS),
        )
    for group, what in ((_GPU, "the same GPU"), (_HOST_CPU, "the same CPU")):
        twice = [name for name in names if name in group]
        require(
            len(twice) < 2,
            "energy.meter",
            f"{' and '.join(twice)} would count {what} twice",
            "Name one of them",
        )
    node = [name for name in names if name in _NODE]
    require(
        not node or len(names) == 1,
        "energy.meter",
        f"{', '.join(node)} measures the whole node, with all that the others measure",
        "Name it alone, or leave it out",
    )
    return names


def open_meter(
    config: EnergyConfig,
    engine: EngineInfo,
    plugins: MeterSource | None = None,
    *,
    shares: bool = True,
) -> MeterChoice:
    """The meter that ``energy.meter`` asks for, with devices that other engines use shared.

    Call after any fork. ``auto`` falls back to the model and logs why; a meter that was asked
    for by name and cannot be had raises ``MeterUnavailable``, a name that cannot be used
    ``ConfigError``. Without ``shares`` the meter takes no part in dividing a device: for a look.
    """
    wanted = config.meter
    names = check_meter(wanted, plugins.names if plugins else ())
    if wanted == "model":
        return MeterChoice(None, 'energy.meter = "model"')
    if wanted == "auto":
        try:
            return MeterChoice(_open((_auto(engine),), config, engine, shares))
        except MeterUnavailable as reason:
            logger.info("greenserve: energy is estimated by the model. %s", reason)
            return MeterChoice(None, str(reason))
    if names:
        return MeterChoice(_open(names, config, engine, shares))
    meters = [steadfast(meter) for meter in plugins.meters(engine)] if plugins else []
    if not meters:
        raise MeterUnavailable(
            f"The plugin {wanted!r} (energy.meter) offers no meter for device "
            f'{engine.device!r}. Use "auto", {", ".join(METERS)} or "model", or mend the plugin'
        )
    return MeterChoice(combine(_shared(meters) if shares else meters))


def _auto(engine: EngineInfo) -> str:
    device = engine.device.strip().lower()
    if device == "cpu":
        return "rapl"
    return "amd" if any(name in device for name in _AMD_NAMES) else "nvml"


def _open(names: tuple[str, ...], config: EnergyConfig, engine: EngineInfo, shares: bool) -> Meter:
    meters: list[Meter] = []
    try:
        for name in names:
            found = [steadfast(meter) for meter in _meters(name, config, engine)]
            meters += _shared(found) if shares and name not in _HOST_CPU else found
    except BaseException:
        for meter in meters:
            meter.close()
        raise
    return combine(meters)


def _meters(name: str, config: EnergyConfig, engine: EngineInfo) -> list[Meter]:
    if name in _GPU and engine.device.strip().lower() == "cpu":
        raise MeterUnavailable(
            f"The engine runs on the CPU, which {name} does not meter. Set energy.meter to "
            '"auto", "rapl", "cpu" or "model"'
        )
    module = importlib.import_module(f"green_core.energy.{name}")
    arguments = (engine, config.dcgm_url) if name == "dcgm" else (engine,)
    found: list[Meter] = getattr(module, f"{name}_meters")(*arguments)
    return found


def _shared(meters: list[Meter]) -> list[Meter]:
    """Each of them as one that may share its device; all closed when one cannot (FIELD E8)."""
    shared: list[Meter] = []
    try:
        for meter in meters:
            shared.append(share(meter))
    except BaseException:
        for meter in [*shared, *meters[len(shared) + 1 :]]:  # the refused one closed itself
            meter.close()
        raise
    return shared
