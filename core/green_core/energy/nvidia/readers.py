"""What a board can tell about its energy, best first, each under a method of its own.

The total energy counter counts whatever happens between two readings. Power is sampled: on A100
and H100 the sensor looks at about a quarter of the time ("Part-time power measurements", arXiv
2312.02741), so what it adds up to is less sure, and the two are never mixed (FIELD E13).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from green_core.energy.integral import PowerIntegral
from green_core.energy.session import DriverSession
from green_core.values import MeterReading

Query = Callable[[Any], int]
Read = Callable[[], MeterReading | None]

# The member of nvmlValue_t that holds a field's value, by the field's value type.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Method(msgspec.Struct, frozen=True):
    """A way to know a board's energy: ``query`` answers millijoules, or else milliwatts."""

    name: str
    is_counter: bool
    query: Query


def methods(nvml: Any) -> list[Method]:
    """All ways, best first. The average field is the mean over a second, the instant field the
    newest sample; ``nvmlDeviceGetPowerUsage`` is either, by the board's generation (NVML API
    reference), so it comes last.
    """
    average, instant = nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_FI_DEV_POWER_INSTANT
    return [
        Method("nvml-counter", True, nvml.nvmlDeviceGetTotalEnergyConsumption),
        Method("nvml-power-average", False, partial(_field, nvml, average)),
        Method("nvml-power-instant", False, partial(_field, nvml, instant)),
        Method("nvml-power", False, nvml.nvmlDeviceGetPowerUsage),
    ]


def best_method(nvml: Any, board_uuid: str) -> Method:
    """The first method that this board answers, probed query by query (FIELD E3).

    One that is not ready yet is taken all the same: it will be (FIELD E4). One that answers zero
    is not: nothing draws no power (FIELD E2). Raises ``NVMLError`` when there is none.
    """
    problem = nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    for method in methods(nvml):
        for _ in range(2):
            try:
                if method.query(nvml.nvmlDeviceGetHandleByUUID(board_uuid)) > 0:
                    return method
            except nvml.NVMLError as error:
                problem = error
                if error.value == nvml.NVML_ERROR_NOT_READY:
                    return method
    raise problem


def reader(session: DriverSession, board_uuid: str, method: Method, share: float) -> Read:
    """What reads ``share`` of the board's energy by ``method``."""

    def counter() -> MeterReading | None:
        millijoules = session.query(board_uuid, method.query)
        if millijoules is None:
            return None
        return MeterReading(session.now_s(), millijoules * 1e-3 * share)

    integral = PowerIntegral()

    def power() -> MeterReading | None:
        milliwatts = session.query(board_uuid, method.query)
        return (
            None if milliwatts is None else integral.add(session.now_s(), milliwatts * 1e-3 * share)
        )

    return counter if method.is_counter else power


def _field(nvml: Any, field: int, handle: Any) -> int:
    (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    if not 0 <= answer.valueType < len(_MEMBERS):
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return int(getattr(answer.value, _MEMBERS[answer.valueType]))
