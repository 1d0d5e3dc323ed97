"""The whole node's energy by a power sensor of the kernel's hwmon class.

Most hwmon sensors measure a part (a drive, a GPU, a voltage rail). Only those count that are known
to stand for the machine: the ACPI power meter, and channels whose label says so. Nothing is guessed
and nothing added up: several such sensors are refused.
(Names and units: Linux, Documentation/hwmon/sysfs-interface.rst and acpi_power_meter.rst.)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from green_core.clock import SteadyClock
from green_core.energy.integral import PowerIntegral
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter, MeterReading

HWMON = Path("/sys/class/hwmon")
METHOD = "measured:hwmon(node)"
PERIOD_S = 1.0  # what the ACPI power meter averages over, as a rule

_NODE_CHIPS = ("power_meter",)  # ACPI 4.0 power meter (ACPI000D)
_NODE_LABELS = ("system", "system power", "total system power", "power total", "vdd_in")
_ENDINGS = ("average", "input")  # the mean since the last sample is worth more than a moment


class Channel(msgspec.Struct, frozen=True):
    """One sensor file that shows a power in microwatts."""

    chip: str
    label: str
    file: Path

    @property
    def is_node(self) -> bool:
        """Whether it stands for the whole machine."""
        return self.chip in _NODE_CHIPS or self.label.lower() in _NODE_LABELS

    def read_w(self) -> float:
        """The power now; raises ``OSError`` or ``ValueError``."""
        return int(self.file.read_text()) * 1e-6

    def __str__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        return f"{self.file} ({self.chip}{label})"


def power_channels(root: Path = HWMON) -> list[Channel]:
    """Every power sensor, one file for each. Some drivers put their files below ``device``."""
    found = []
    for chip in sorted(root.iterdir()) if root.is_dir() else ():
        for folder in (chip, chip / "device"):
            numbers: set[str] = set()
            for ending in _ENDINGS:
                for file in sorted(folder.glob(f"power[0-9]*_{ending}")):
                    number = file.name.split("_")[0]
                    if number not in numbers:
                        numbers.add(number)
                        label = _text(folder / f"{number}_label")
                        found.append(Channel(_text(chip / "name"), label, file))
            if numbers:
                break
    return found


def hwmon_meters(
    engine: EngineInfo, *, now_s: Callable[[], float] | None = None, root: Path = HWMON
) -> list[Meter]:
    """One meter of the whole node. Raises ``MeterUnavailable`` when there is no such sensor."""
    channels = power_channels(root)
    node = [channel for channel in channels if channel.is_node]
    if not node:
        others = ", ".join(map(str, channels)) or "nothing"
        raise MeterUnavailable(
            f"No sensor in {root} measures the whole node (found: {others}). Load the module "
            'acpi_power_meter, or set energy.meter to "ipmi", "rapl" or "model"'
        )
    if len(node) > 1:
        raise MeterUnavailable(
            f"Several sensors claim to measure the node: {', '.join(map(str, node))}. Which of "
            'them add up cannot be told; set energy.meter to "ipmi", "rapl" or "model"'
        )
    (channel,) = node
    clock_s = now_s or SteadyClock().now
    integral = PowerIntegral()
    try:
        last = integral.add(clock_s(), channel.read_w())
    except (OSError, ValueError) as error:
        raise MeterUnavailable(
            f"{channel} cannot be read: {error}. Let this user read it, or set energy.meter to "
            '"rapl" or "model"'
        ) from error

    def read() -> MeterReading | None:
        nonlocal last
        at_s = clock_s()
        if at_s - last.at_s >= PERIOD_S:
            try:
                last = integral.add(at_s, channel.read_w())
            except (OSError, ValueError):
                return None
        return last

    return [Meter("node", METHOD, PERIOD_S, read, lambda: None)]


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
