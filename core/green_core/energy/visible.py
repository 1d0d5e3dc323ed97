"""Which of a machine's NVIDIA devices belong to this process (FIELD E5, E10).

The rules are CUDA's, from the CUDA programming guide (environment variables) and the MIG user
guide (CUDA device enumeration). Where they leave open which device is meant, nothing is guessed:
``MeterUnavailable`` says how to name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from green_core.errors import MeterUnavailable

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"

_T = TypeVar("_T")


class Slice(msgspec.Struct, frozen=True):
    """A MIG device. ``share`` is its part of the board's compute slices, 0..1."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    share: float


class Board(msgspec.Struct, frozen=True):
    """A physical GPU. With ``has_mig_on`` programs see its ``slices`` instead of itself."""

    uuid: str
    model: str
    has_mig_on: bool = False
    slices: tuple[Slice, ...] = ()


class Device(msgspec.Struct, frozen=True):
    """What a process computes on: a board, or the slice ``uuid`` of it, and its ``share``."""

    uuid: str
    board_uuid: str
    share: float = 1.0

    @property
    def is_slice(self) -> bool:
        """Whether other processes may compute on the rest of the board."""
        return self.uuid != self.board_uuid

    def method(self, source: str) -> str:
        """The method of its energy by ``source`` (``nvml-counter``), which counts the board."""
        return f"estimated:{source}(mig share)" if self.is_slice else f"measured:{source}"


def visible_devices(
    environment: Mapping[str, str], boards: Sequence[Board], count: int
) -> list[Device]:
    """The first ``count`` devices that CUDA shows to a process with this ``environment``.

    ``boards`` are all of the machine (or container) in PCI order. ``CUDA_VISIBLE_DEVICES`` holds
    indices, beginnings of ``GPU-`` UUIDs, ``MIG-`` UUIDs or ``MIG-GPU-uuid/gi/ci``; unset shows
    all, empty none, and the first entry that names no device, or one named before, ends the list.
    Where a slice is shown, no whole board is; and unless slices are named, only the first is.
    Raises ``MeterUnavailable`` when fewer than ``count`` are shown or it is open which.
    """
    value = environment.get(VARIABLE)
    if value is None:
        devices, by_order = _all(boards), True
    else:
        devices, by_order = _listed(value, boards)
    devices = devices[:count]
    if len(devices) < count:
        shown = f"{VARIABLE}={value!r}" if value is not None else f"{VARIABLE} (unset)"
        raise MeterUnavailable(
            f"The engine uses {count} device(s), but {shown} shows {len(devices)} of the "
            f"{len(boards)} board(s) that are listed. Check that variable"
        )
    if by_order:
        _check_order(environment, boards, devices)
    return devices


def _all(boards: Sequence[Board]) -> list[Device]:
    slices = [device for board in boards for device in _slices(board)]
    return slices[:1] or [_whole(board) for board in boards if not board.has_mig_on]


def _listed(value: str, boards: Sequence[Board]) -> tuple[list[Device], bool]:
    """The devices of a list, and whether an index is among its entries."""
    by_order = False
    named: list[Device] = []  # slices named as such
    found: list[Device] = []  # boards, or the slice that CUDA takes of each
    seen: set[str] = set()
    for entry in (part.strip() for part in value.split(",")):
        is_index = entry.isascii() and entry.isdigit()
        if entry.upper().startswith("MIG-"):
            device = _slice(entry, boards)
        elif is_index:
            device = _board_device(int(entry), boards)
        else:
            device = _board_device(_index_of(entry, boards), boards)
        if device is None or device.uuid in seen:
            break
        seen.add(device.uuid)
        (named if entry.upper().startswith("MIG-") else found).append(device)
        by_order = by_order or is_index
    modes = {board.has_mig_on for board in boards}
    if by_order and len(modes) > 1:
        raise MeterUnavailable(
            f"{VARIABLE}={value!r} counts devices on a machine where only some boards have MIG "
            "mode on, so it is open which it means. Name the devices by UUID (nvidia-smi -L)"
        )
    implied = [device for device in found if device.is_slice]
    return named or implied[:1] or found, by_order


def _slice(entry: str, boards: Sequence[Board]) -> Device | None:
    """The slice of an entry that begins with ``MIG-``, in its new or its old form."""
    wanted = entry.lower()
    by_place = [
        device
        for board in boards
        for each, device in zip(board.slices, _slices(board), strict=True)
        if f"mig-{board.uuid}/{each.gpu_instance}/{each.compute_instance}".lower() == wanted
    ]
    return _only(by_place) or _only(
        device
        for board in boards
        for device in _slices(board)
        if device.uuid.lower().startswith(wanted)
    )


def _index_of(entry: str, boards: Sequence[Board]) -> int | None:
    if not entry.upper().startswith("GPU-"):
        return None
    prefix = entry.lower()
    return _only(i for i, board in enumerate(boards) if board.uuid.lower().startswith(prefix))


def _board_device(index: int | None, boards: Sequence[Board]) -> Device | None:
    if index is None or index >= len(boards):
        return None
    board = boards[index]
    if board.has_mig_on:
        return next(iter(_slices(board)), None)
    return _whole(board)


def _check_order(
    environment: Mapping[str, str], boards: Sequence[Board], devices: Sequence[Device]
) -> None:
    """CUDA counts the fastest board first unless it is told otherwise; NVML does not."""
    if environment.get(ORDER_VARIABLE, "").strip() == "PCI_BUS_ID":
        return
    models = {board.model for board in boards}
    if len(models) > 1 and {device.uuid for device in devices} != {b.uuid for b in boards}:
        raise MeterUnavailable(
            f"The boards are of different models ({', '.join(sorted(models))}) and "
            f"{ORDER_VARIABLE} is not PCI_BUS_ID, so CUDA counts them by speed and it is open "
            f"which board an index means. Set {ORDER_VARIABLE}=PCI_BUS_ID, or name UUIDs in "
            f"{VARIABLE}"
        )


def _slices(board: Board) -> list[Device]:
    return [Device(each.uuid, board.uuid, each.share) for each in board.slices]


def _whole(board: Board) -> Device:
    return Device(board.uuid, board.uuid)


def _only(candidates: Iterable[_T]) -> _T | None:
    """The one candidate; ``None`` when there is none, or more than one."""
    found = list(candidates)
    return found[0] if len(found) == 1 else None
