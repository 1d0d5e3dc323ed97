"""The boards that NVML lists, with the MIG slices that are set up on them."""

from __future__ import annotations

from typing import Any

from green_core.energy.visible import Board, Slice


def list_boards(nvml: Any) -> list[Board]:
    """All boards of the machine (or container) in NVML's order, which is that of the PCI bus.

    ``nvml`` is the ``pynvml`` module, initialised. Raises ``NVMLError``.
    """
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    return [_board(nvml, handle) for handle in handles]


def _board(nvml: Any, handle: Any) -> Board:
    has_mig_on = _has_mig_on(nvml, handle)
    return Board(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        model=_text(nvml.nvmlDeviceGetName(handle)),
        has_mig_on=has_mig_on,
        slices=_slices(nvml, handle) if has_mig_on else (),
    )


def _has_mig_on(nvml: Any, handle: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return False  # a board, or a driver, from before MIG
        raise
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _slices(nvml: Any, board: Any) -> tuple[Slice, ...]:
    """Slices in NVML's order; places without one, or out of this container's sight, are left out.

    A board has as many compute slices as it can have MIG devices, since the smallest has one.
    """
    absent = (
        nvml.NVML_ERROR_NOT_FOUND,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        nvml.NVML_ERROR_NO_PERMISSION,
    )
    total = nvml.nvmlDeviceGetMaxMigDeviceCount(board)
    found = []
    for place in range(total):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, place)
        except nvml.NVMLError as error:
            if error.value in absent:
                continue
            raise
        own = nvml.nvmlDeviceGetAttributes(handle).computeInstanceSliceCount
        found.append(
            Slice(
                uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                gpu_instance=nvml.nvmlDeviceGetGpuInstanceId(handle),
                compute_instance=nvml.nvmlDeviceGetComputeInstanceId(handle),
                share=min(1.0, own / total),
            )
        )
    return tuple(found)


def _text(answer: str | bytes) -> str:
    """Older releases of nvidia-ml-py answer bytes."""
    return answer.decode() if isinstance(answer, bytes) else answer
