"""Meters of NVIDIA devices through NVML, one for each device that the engine uses.

Nothing here touches NVML before :func:`nvml_meters` is called. While the driver is away a meter
answers ``None`` and tries again with growing pauses; nothing raises after the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from green_core.clock import SteadyClock
from green_core.energy.nvidia.boards import list_boards
from green_core.energy.nvidia.library import import_nvml, nvml_session, unavailable
from green_core.energy.nvidia.readers import best_method, reader
from green_core.energy.session import close_together
from green_core.energy.visible import visible_devices
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter

COUNTER_PERIOD_S = 0.1  # how often counter and power move, A100 and H100 alike


def nvml_meters(engine: EngineInfo, *, now_s: Callable[[], float] | None = None) -> list[Meter]:
    """One meter per visible device, the first ``engine.device_count`` of them.

    A meter's ``name`` is the device's UUID. A MIG slice has no counter of its own: its meter is
    the board's times the slice's part of the compute slices, an estimate (FIELD E5). ``now_s`` is
    the clock that stamps readings, by default one of its own. Raises ``MeterUnavailable`` when a
    device cannot be metered. The meters share NVML: it is given back when the last one is closed.
    """
    nvml = import_nvml()
    session = nvml_session(nvml, now_s or SteadyClock().now)
    try:
        session.open()
        devices = visible_devices(os.environ, list_boards(nvml), max(1, engine.device_count))
        methods = [best_method(nvml, device.board_uuid) for device in devices]
    except nvml.NVMLError as error:
        session.close()
        raise unavailable(nvml, error) from error
    except MeterUnavailable:
        session.close()
        raise
    closes = close_together(session.close, len(devices))
    return [
        Meter(
            name=device.uuid,
            method=device.method(method.name),
            period_s=COUNTER_PERIOD_S,
            read=reader(session, device.board_uuid, method, device.share),
            close=close,
            is_absolute=method.is_counter,
        )
        for device, method, close in zip(devices, methods, closes, strict=True)
    ]
