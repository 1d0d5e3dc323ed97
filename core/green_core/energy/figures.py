"""Published figures of devices, each with its own source, year and method (``devices.csv``).

One row is one figure of one device under the name that its driver reports. What nobody has
published, or what could not be traced to a document, has no row: unknown, never guessed.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, cast

import msgspec

Method: TypeAlias = Literal["measured", "datasheet", "estimated"]


class Quantity(msgspec.Struct, frozen=True):
    """What a figure is of: its unit, and how it is shown (divided by ``scale``)."""

    unit: str
    label: str
    shown_unit: str = ""
    scale: float = 1.0


# Peaks are dense bfloat16, without the sparsity that datasheets like to add.
QUANTITIES: Mapping[str, Quantity] = {
    "power_limit_w": Quantity("W", "power limit"),
    "idle_w": Quantity("W", "idle"),
    "idle_context_w": Quantity("W", "idle with a CUDA context"),
    "peak_flops": Quantity("FLOP/s", "peak", "TFLOP/s", 1e12),
    "memory_bytes_per_s": Quantity("B/s", "memory", "GB/s", 1e9),
    "joules_per_token": Quantity("J/token", "energy per output token"),
    "embodied_g": Quantity("gCO2e", "embodied", "kgCO2e", 1e3),
    "static_w": Quantity("W", "model: static"),
    "flop_j": Quantity("J", "model: per FLOP", "pJ", 1e-12),
    "byte_j": Quantity("J", "model: per byte", "pJ", 1e-12),
    "model_error_ratio": Quantity("ratio", "model: error", "%", 1e-2),
    "cores": Quantity("count", "cores", "cores"),
    "base_clock_hz": Quantity("Hz", "base clock", "GHz", 1e9),
}
# Names of the same device that other drivers and shorter habits use.
_ALIASES = {
    "gaudi2": "intel gaudi 2",
    "gaudi3": "intel gaudi 3",
    "hl-225": "intel gaudi 2",
    "nvidia t4": "tesla t4",
    "nvidia v100-sxm2-32gb": "tesla v100-sxm2-32gb",
    "amd instinct mi300x oam": "amd instinct mi300x",
    "amd instinct mi325x oam": "amd instinct mi325x",
    "amd instinct mi250x / mi250": "amd instinct mi250x",
}
_MAKERS = ("", "nvidia ", "nvidia geforce ", "amd ", "amd instinct ", "intel ")


class Figure(msgspec.Struct, frozen=True):
    """One figure of one device.

    ``method`` says how the document came by it: ``measured``, the maker's word (``datasheet``) or
    ``estimated``. ``note`` bounds what it holds for.
    """

    device: str
    quantity: str
    value: float
    unit: str
    method: Method
    year: int
    source: str
    note: str = ""

    @property
    def label(self) -> str:
        """The quantity in words."""
        return QUANTITIES[self.quantity].label

    @property
    def shown(self) -> str:
        """The value with a unit that suits its size."""
        quantity = QUANTITIES[self.quantity]
        return f"{self.value / quantity.scale:.6g} {quantity.shown_unit or quantity.unit}"


@cache
def _table() -> Mapping[str, tuple[Figure, ...]]:
    """Figures by the device's name in lower case, in the file's order."""
    found: dict[str, list[Figure]] = {}
    text = files("green_core.energy").joinpath("devices.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        figure = Figure(
            device=row["device"],
            quantity=row["quantity"],
            value=float(row["value"]),
            unit=row["unit"],
            method=cast(Method, row["method"]),
            year=int(row["year"]),
            source=row["source"],
            note=row["note"],
        )
        found.setdefault(figure.device.lower(), []).append(figure)
    return {name: tuple(figures) for name, figures in found.items()}


def listed() -> tuple[str, ...]:
    """The names of all devices that have figures, in the table's order."""
    return tuple(figures[0].device for figures in _table().values())


def figures(name: str) -> tuple[Figure, ...]:
    """All figures of a device by the name its driver reports; empty: nothing is known.

    Case and a missing maker (``H100 PCIe``) do not matter. No other name is taken for a near one.
    """
    key = " ".join(name.lower().split())
    table = _table()
    for maker in _MAKERS:
        known = table.get(_ALIASES.get(maker + key, maker + key))
        if known is not None:
            return known
    return ()


def figure(name: str, quantity: str) -> Figure | None:
    """The first figure of that quantity, or ``None``."""
    return next((each for each in figures(name) if each.quantity == quantity), None)
