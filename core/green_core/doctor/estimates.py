"""What a trap costs: joules a day from the load that was seen, and grams at the present signal.

Where the meter or the books know a figure it is taken from there; where only the device model does,
the estimate's text says so. A figure that nobody has is ``None``, never a guess.
"""

from __future__ import annotations

from typing import Any

from green_core.config import EnergyConfig
from green_core.doctor.facts import Finding, Status
from green_core.energy.devices import METHOD_UNKNOWN_DEVICE, DeviceModel, device_model
from green_core.values import JOULES_PER_KWH

DAY_S = 86_400.0
_IDLE_MIN_S = 30.0  # idle power rests on at least this much idle time
_OVERRIDES = ("static_w", "flop_j", "byte_j")


def window_s(status: Status) -> float:
    """Engine seconds that the books cover: their span, times the engines that were added up."""
    engines = sum(process.role == "engine" for process in status.processes)
    return max(status.load.until_s - status.load.since_s, 0.0) * max(engines, 1)


def busy_ratio(status: Status) -> float:
    """Share of the time in which a step was under way; 0.0 without any time."""
    seen_s = window_s(status)
    return min(status.load.busy_s / seen_s, 1.0) if seen_s else 0.0


def per_day(status: Status, amount: float) -> float:
    """An amount that the books saw, scaled to a day of the same load."""
    seen_s = status.load.until_s - status.load.since_s
    return amount * DAY_S / seen_s if seen_s > 0 else 0.0


def idle_w(status: Status) -> float | None:
    """Power without a step under way, from the books; ``None`` after too little idle time."""
    idle_s = window_s(status) - status.load.busy_s
    if idle_s < _IDLE_MIN_S or status.load.idle_j <= 0:
        return None
    return status.load.idle_j / idle_s


def device(status: Status) -> DeviceModel | None:
    """The device model that the server uses; ``None`` for a device that nobody has described.

    Only its costs per FLOP and per byte are meant to be used: the static power of a CPU depends
    on the machine that asks.
    """
    given: dict[str, Any] = {
        key: float(fact.value)
        for key in _OVERRIDES
        if (fact := status.settings.get(f"energy.{key}")) and isinstance(fact.value, int | float)
    }
    config = EnergyConfig(**given)
    found = device_model(status.engine.info.device, config, cores=1)
    return None if found.method == METHOD_UNKNOWN_DEVICE else found


def weights_j(status: Status) -> float | None:
    """What the books' steps spent on reading the weights, by the device model.

    At most all active energy. ``None`` where the device or the model's size is unknown.
    """
    model, load = device(status), status.load
    if model is None or status.engine.info.weight_bytes <= 0 or load.active_j <= 0:
        return None
    return min(load.steps * status.engine.info.weight_bytes * model.byte_j, load.active_j)


def finding(
    status: Status,
    *,
    trap: str,
    title: str,
    evidence: str,
    remedy: str,
    estimate: str,
    energy_j_per_day: float | None = None,
) -> Finding:
    """A finding with its carbon: energy times PUE times the signal's present intensity."""
    carbon_g = None
    if energy_j_per_day is not None:
        facility_kwh = energy_j_per_day / JOULES_PER_KWH * _pue(status)
        carbon_g = facility_kwh * status.signal.view.intensity_g_per_kwh
    return Finding(trap, title, evidence, remedy, estimate, energy_j_per_day, carbon_g)


def _pue(status: Status) -> float:
    fact = status.settings.get("energy.pue")
    usable = fact is not None and isinstance(fact.value, int | float)
    return float(fact.value) if fact and usable else EnergyConfig().pue
