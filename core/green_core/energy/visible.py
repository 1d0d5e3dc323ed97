"""Which of the machine's devices belong to this process (FIELD E10)."""

from __future__ import annotations

from collections.abc import Sequence

from green_core.errors import MeterUnavailable

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(value: str | None, uuids: Sequence[str]) -> list[int]:
    """Indices into ``uuids`` (all devices, in PCI order) that ``CUDA_VISIBLE_DEVICES`` shows.

    ``None`` (unset) shows all and an empty string none. As in CUDA, entries are indices or
    unambiguous beginnings of a UUID, and the first entry that names no device ends the list.
    Indices mean PCI order, as with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. Raises ``MeterUnavailable``
    for MIG slices, whose energy no counter tells apart.
    """
    if value is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for entry in (part.strip() for part in value.split(",")):
        if entry.upper().startswith("MIG-"):
            raise MeterUnavailable(
                f"{VARIABLE} names the MIG slice {entry}; the energy counter covers the whole "
                'board. Use energy.meter = "model", or give the process whole devices'
            )
        index = _index(entry, uuids)
        if index is None or index in found:
            break
        found.append(index)
    return found


def _index(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.isascii() and entry.isdigit():
        return int(entry) if int(entry) < len(uuids) else None
    if not entry.upper().startswith("GPU-"):
        return None
    matches = [i for i, uuid in enumerate(uuids) if uuid.lower().startswith(entry.lower())]
    return matches[0] if len(matches) == 1 else None
