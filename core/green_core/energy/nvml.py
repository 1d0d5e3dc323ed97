"""NVIDIA devices through NVML: the total energy counter, or power samples where there is none.

NVML does not survive a fork (FIELD E16), so nothing here touches it before :func:`nvml_meters`
is called, and a process that finds itself forked opens NVML again. While the driver is away a
meter answers ``None`` and tries again with growing pauses; nothing raises after the start
(FIELD E4, E17).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from green_core.clock import SteadyClock
from green_core.energy.visible import VARIABLE, visible_devices
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter, MeterReading

METHOD_COUNTER = "measured:nvml-counter"
METHOD_POWER = "measured:nvml-power"
COUNTER_PERIOD_S = 0.1  # how often the counter moves, A100 and H100 alike
RETRY_S, MAX_RETRY_S = 1.0, 60.0


class NvmlSession:
    """NVML as one process holds it: opened late, and again after a fork or a lost driver."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        import pynvml  # loads no driver library by itself

        self.nvml: Any = pynvml
        self.now_s = now_s
        self._pid = 0
        self._handles: dict[str, Any] = {}
        self._retry_at_s = 0.0
        self._pause_s = RETRY_S

    def open(self) -> None:
        """Initialise NVML in this process; raises ``NVMLError``."""
        if self._pid:
            # What is open belongs to a driver that went away, or to the parent process.
            with contextlib.suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()
        self._pid = 0
        self._handles = {}
        self.nvml.nvmlInit()
        self._pid = os.getpid()

    def close(self) -> None:
        """Give NVML back, if this very process holds it."""
        if self._pid == os.getpid():
            with contextlib.suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()
        self._pid = 0

    def query(self, uuid: str, function: Callable[[Any], int]) -> int | None:
        """``function(handle)``, or ``None`` for a gap.

        One failure is asked again at once ("not in ready state" passes); a second one closes
        NVML until the pause is over.
        """
        for _ in range(2):
            if not self._ready():
                return None
            try:
                handle = self._handles.get(uuid)
                if handle is None:
                    handle = self._handles[uuid] = self.nvml.nvmlDeviceGetHandleByUUID(uuid)
                answer = function(handle)
            except self.nvml.NVMLError:
                continue
            self._pause_s = RETRY_S
            return answer
        self._lose()
        return None

    def _ready(self) -> bool:
        if self._pid == os.getpid():
            return True
        if not self._pid and self.now_s() < self._retry_at_s:
            return False
        try:
            self.open()
        except self.nvml.NVMLError:
            self._lose()
            return False
        return True

    def _lose(self) -> None:
        self.close()
        self._handles = {}
        self._retry_at_s = self.now_s() + self._pause_s
        self._pause_s = min(2.0 * self._pause_s, MAX_RETRY_S)


def nvml_meters(engine: EngineInfo, *, now_s: Callable[[], float] | None = None) -> list[Meter]:
    """One meter per visible device, the first ``engine.device_count`` of them.

    A meter's ``name`` is the device's UUID. ``now_s`` is the clock that stamps readings, by
    default one of its own. Raises ``MeterUnavailable`` when a device cannot be metered. The
    meters share NVML: it is given back when the last one is closed.
    """
    try:
        session = NvmlSession(now_s or SteadyClock().now)
    except ImportError as error:
        raise MeterUnavailable(
            "The Python package nvidia-ml-py cannot be imported. Install it, or set "
            'energy.meter = "model"'
        ) from error
    nvml = session.nvml
    try:
        session.open()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        uuids = [nvml.nvmlDeviceGetUUID(handle) for handle in handles]
    except nvml.NVMLError as error:
        session.close()
        raise _unavailable(nvml, error) from error
    try:
        chosen = visible_devices(os.environ.get(VARIABLE), uuids)[: max(1, engine.device_count)]
        if len(chosen) < max(1, engine.device_count):
            raise MeterUnavailable(
                f"The engine uses {engine.device_count} device(s), but {VARIABLE}="
                f"{os.environ.get(VARIABLE)!r} shows {len(chosen)} of the {len(uuids)} that NVML "
                "lists. Check that variable"
            )
        readers = [_reader(session, uuids[i]) for i in chosen]
    except MeterUnavailable:
        session.close()
        raise
    open_meters = set(range(len(readers)))

    def closer(number: int) -> Callable[[], None]:
        def close() -> None:
            open_meters.discard(number)
            if not open_meters:
                session.close()

        return close

    return [
        Meter(
            name=uuids[i],
            method=method,
            period_s=COUNTER_PERIOD_S,
            read=read,
            close=closer(number),
        )
        for number, (i, (method, read)) in enumerate(zip(chosen, readers, strict=True))
    ]


def combine(meters: Sequence[Meter]) -> Meter:
    """One meter over several devices: their sum, and a gap when any of them has one."""
    if len(meters) == 1:
        return meters[0]

    def read() -> MeterReading | None:
        # All are asked, so that each one's power integral and retries go on.
        readings = [meter.read() for meter in meters]
        good = [reading for reading in readings if reading is not None]
        if len(good) < len(readings) or not good:
            return None
        return MeterReading(
            at_s=max(reading.at_s for reading in good),
            energy_j=sum(reading.energy_j for reading in good),
        )

    def close() -> None:
        for meter in meters:
            meter.close()

    return Meter(
        name=",".join(meter.name for meter in meters),
        method="+".join(sorted({meter.method for meter in meters})),
        period_s=max((meter.period_s for meter in meters), default=COUNTER_PERIOD_S),
        read=read,
        close=close,
    )


def _reader(session: NvmlSession, uuid: str) -> tuple[str, Callable[[], MeterReading | None]]:
    """The best that this device can do, probed query by query (FIELD E3)."""
    nvml = session.nvml
    errors = []
    for method, query, make in (
        (METHOD_COUNTER, "nvmlDeviceGetTotalEnergyConsumption", _counter),
        (METHOD_POWER, "nvmlDeviceGetPowerUsage", _power),
    ):
        function = getattr(nvml, query)
        for _ in range(2):
            try:
                function(nvml.nvmlDeviceGetHandleByUUID(uuid))
            except nvml.NVMLError as error:
                errors.append(error)
            else:
                return method, make(session, uuid, function)
    raise _unavailable(nvml, errors[-1])


def _counter(
    session: NvmlSession, uuid: str, function: Callable[[Any], int]
) -> Callable[[], MeterReading | None]:
    def read() -> MeterReading | None:
        millijoules = session.query(uuid, function)
        return None if millijoules is None else MeterReading(session.now_s(), millijoules * 1e-3)

    return read


def _power(
    session: NvmlSession, uuid: str, function: Callable[[Any], int]
) -> Callable[[], MeterReading | None]:
    """Integrate power samples (trapezoids) into a counter that starts at zero."""
    energy_j = 0.0
    last: tuple[float, float] | None = None

    def read() -> MeterReading | None:
        nonlocal energy_j, last
        milliwatts = session.query(uuid, function)
        if milliwatts is None:
            return None
        at_s, watts = session.now_s(), milliwatts * 1e-3
        if last is not None:
            energy_j += 0.5 * (watts + last[1]) * max(0.0, at_s - last[0])
        last = (at_s, watts)
        return MeterReading(at_s, energy_j)

    return read


def _unavailable(nvml: Any, error: Exception) -> MeterUnavailable:
    remedies = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "Install the NVIDIA driver, or give the container "
        "access to it (--gpus all)",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "Load the NVIDIA driver (nvidia-smi must work)",
        nvml.NVML_ERROR_NO_PERMISSION: "Run as a user that may open /dev/nvidia*",
        nvml.NVML_ERROR_NOT_SUPPORTED: "This device reports neither energy nor power",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "Driver and library differ: reload the driver "
        "or restart the container",
    }
    remedy = remedies.get(getattr(error, "value", None), "Check that nvidia-smi works")
    return MeterUnavailable(
        f'NVML cannot be used: {error}. {remedy}; energy.meter = "model" does without a meter'
    )
