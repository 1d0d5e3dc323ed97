"""Holds a meter to its word: ``read`` answers a reading or ``None``, and nothing of it raises.

A plugin's meter may break in any way. Whatever it does is a gap then, and neither the books nor
what is closed after it suffers.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec

from green_core.values import Meter, MeterReading

logger = logging.getLogger("greenserve")


def steadfast(meter: Meter) -> Meter:
    """``meter`` with ``read`` and ``close`` that never raise; the first fault is logged."""
    is_told = False

    def tell(fault: str, error: Exception | None = None) -> None:
        nonlocal is_told
        if not is_told:
            is_told = True
            logger.error(
                "greenserve: the meter %s %s. What it does not tell is a gap; this is said once",
                meter.name,
                fault,
                exc_info=error,
            )

    def read() -> MeterReading | None:
        try:
            reading = meter.read()
        except Exception as error:
            tell("failed to read", error)
            return None
        if reading is None or _is_reading(reading):
            return reading
        tell(f"answered {reading!r} instead of a MeterReading of finite numbers, or None")
        return None

    def close() -> None:
        try:
            meter.close()
        except Exception as error:
            tell("failed to close", error)

    return msgspec.structs.replace(meter, read=read, close=close)


def _is_reading(answer: Any) -> bool:
    return (
        isinstance(answer, MeterReading)
        and all(_is_number(number) for number in (answer.at_s, answer.energy_j))
        and isinstance(answer.method, str | None)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
