"""Meters of NVIDIA devices by the page of a DCGM exporter, where NVML itself cannot be used.

The page is fetched in a background thread, at most once a second while the engine works. While
it cannot be had a meter answers ``None``, and attempts come with growing pauses (FIELD E17).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from green_core.clock import SteadyClock
from green_core.energy.background import BackgroundReader
from green_core.energy.dcgm_devices import dcgm_devices
from green_core.energy.dcgm_page import TIMEOUT_S, Entry, fetch_page
from green_core.energy.dcgm_times import LOOK_S, CounterTimes
from green_core.energy.integral import PowerIntegral
from green_core.energy.session import close_together
from green_core.energy.visible import Device
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter, MeterReading

_LATE_S = TIMEOUT_S + 2.0  # how much later than it was due a page may be


class _Look(msgspec.Struct, frozen=True):
    """One page: when it was asked for, what it shows, and since when its counters stand there."""

    at_s: float
    boards: dict[str, Entry]
    counters: dict[str, MeterReading]
    stuck_after_s: float


class _Exporter:
    """The pages of one exporter. ``powers``: a power on it is integrated, so none is skipped."""

    def __init__(self, url: str, now_s: Callable[[], float]) -> None:
        self.powers = False
        self.now_s = now_s
        self._url = url
        self._times = CounterTimes()
        self.pages: BackgroundReader[_Look] = BackgroundReader(
            self._look, every_s=LOOK_S, late_s=_LATE_S, now_s=now_s, name="greenserve-dcgm"
        )

    def first(self) -> dict[str, Entry]:
        """The boards on the first page; raises ``MeterUnavailable`` when there is none."""
        look = self.pages.wait(_LATE_S)
        if look is None:
            problem = self.pages.problem or f"no answer within {_LATE_S:g} s"
            raise MeterUnavailable(
                f"The DCGM exporter's page {self._url} (energy.dcgm_url) cannot be used: "
                f"{problem}. Start dcgm-exporter, set the address of its page, or set "
                'energy.meter = "model"'
            )
        return look.boards

    def _look(self) -> _Look:
        at_s = self.now_s()
        boards = fetch_page(self._url)
        times = self._times
        times.observe(at_s, {b.uuid: b.energy_j for b in boards.values() if b.energy_j is not None})
        self.pages.every_s = LOOK_S if self.powers else times.rest_s
        return _Look(at_s, boards, dict(times.readings), times.stuck_after_s)


def dcgm_meters(
    engine: EngineInfo, url: str, *, now_s: Callable[[], float] | None = None
) -> list[Meter]:
    """One meter per device that this process may use, the first ``engine.device_count`` of them.

    Which ones these are is decided as for NVML, and with NVML's help where it can be opened.
    Names are UUIDs, as there. ``period_s`` is how often the page is looked at; that the counters
    on it move more rarely (every 30 s by default) is found out and allowed for. ``now_s`` is the
    clock that stamps readings. Raises ``MeterUnavailable`` when the page or a device on it cannot
    be had.
    """
    exporter = _Exporter(url, now_s or SteadyClock().now)
    try:
        boards = exporter.first()
        devices = dcgm_devices(boards, max(1, engine.device_count))
        closes = close_together(exporter.pages.close, len(devices))
        return [
            _meter(exporter, boards[device.board_uuid], device, close)
            for device, close in zip(devices, closes, strict=True)
        ]
    except BaseException:
        exporter.pages.close()
        raise


def _meter(exporter: _Exporter, entry: Entry, device: Device, close: Callable[[], None]) -> Meter:
    if entry.energy_j:
        source, read = "dcgm-counter", _counter(exporter, device)
    elif entry.power_w:
        source, read = "dcgm-power", _power(exporter, device)
        exporter.powers = True
    else:
        raise MeterUnavailable(
            f"The DCGM exporter shows neither energy nor power of {entry.uuid}. Add "
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION to its counters (option -f)"
        )
    return Meter(
        name=device.uuid,
        method=device.method(source),
        period_s=LOOK_S,
        read=read,
        close=close,
        is_absolute=source == "dcgm-counter",
    )


def _counter(exporter: _Exporter, device: Device) -> Callable[[], MeterReading | None]:
    def read() -> MeterReading | None:
        look = exporter.pages.read()
        reading = look.counters.get(device.board_uuid) if look is not None else None
        if look is None or reading is None:
            return None
        if exporter.now_s() - reading.at_s > look.stuck_after_s:
            return None  # the page is there, but nobody collects any more
        return MeterReading(reading.at_s, reading.energy_j * device.share)

    return read


def _power(exporter: _Exporter, device: Device) -> Callable[[], MeterReading | None]:
    integral = PowerIntegral()
    last: MeterReading | None = None

    def read() -> MeterReading | None:
        nonlocal last
        look = exporter.pages.read()
        entry = look.boards.get(device.board_uuid) if look is not None else None
        if look is None or entry is None or entry.power_w is None:
            return None
        if last is None or look.at_s > last.at_s:
            last = integral.add(look.at_s, entry.power_w * device.share)
        return last

    return read
