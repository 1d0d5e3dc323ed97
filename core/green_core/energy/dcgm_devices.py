"""Which of the boards on a DCGM exporter's page belong to this process (FIELD E5, E10)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from green_core.clock import SteadyClock
from green_core.energy.dcgm_page import Entry
from green_core.energy.nvidia.boards import list_boards
from green_core.energy.nvidia.library import import_nvml, nvml_session
from green_core.energy.visible import VARIABLE, Board, Device, visible_devices
from green_core.errors import MeterUnavailable

CONTAINER_VARIABLE = "NVIDIA_VISIBLE_DEVICES"


def dcgm_devices(page: Mapping[str, Entry], count: int) -> list[Device]:
    """The first ``count`` devices of this process; each one's board is on the page.

    The page shows the whole node. NVML, where it can be opened, shows what this container has;
    without it the container's variable is asked, and an index means the exporter's ``gpu`` label.
    Raises ``MeterUnavailable`` when it is open which devices are meant.
    """
    boards = _boards_by_nvml()
    if boards is None:
        boards = _boards_by_page(page, count)
    devices = visible_devices(os.environ, boards, count)
    for device in devices:
        if device.board_uuid not in page:
            raise MeterUnavailable(
                f"The DCGM exporter does not show {device.board_uuid}, which this process uses; "
                f"it shows {', '.join(sorted(page))}. Let it watch that device (option -d), or "
                "set energy.dcgm_url to the page of this node's exporter"
            )
    return devices


def _boards_by_nvml() -> list[Board] | None:
    try:
        nvml = import_nvml()
    except MeterUnavailable:
        return None
    session = nvml_session(nvml, SteadyClock().now)
    try:
        session.open()
        return list_boards(nvml)
    except nvml.NVMLError:
        return None
    finally:
        session.close()


def _boards_by_page(page: Mapping[str, Entry], count: int) -> list[Board]:
    listed = os.environ.get(VARIABLE)
    if len({entry.host for entry in page.values()}) > 1:
        raise MeterUnavailable(
            "The DCGM page shows boards of several hosts, and without NVML it is open which are "
            "this one's. Set energy.dcgm_url to the page of this node's exporter"
        )
    if "MIG-" in (listed or "").upper() or all(entry.has_slices for entry in page.values()):
        raise MeterUnavailable(
            "This process uses a MIG slice. The DCGM page does not say which one has which UUID, "
            "and NVML, which does, cannot be opened. Give the container NVML "
            '(NVIDIA_DRIVER_CAPABILITIES=compute,utility), or set energy.meter = "model"'
        )
    granted = _granted(page)
    if granted:
        return granted
    if listed is None and len(page) > count:
        raise MeterUnavailable(
            f"The DCGM page shows {len(page)} boards and nothing says which {count} of them this "
            f"process uses. Set {VARIABLE}, best to UUIDs (nvidia-smi -L)"
        )
    # Boards that the exporter does not watch keep their place; they are taken to be like the rest.
    boards = {int(entry.index): _board(entry) for entry in page.values() if entry.index.isdigit()}
    model = next((board.model for board in boards.values()), "")
    return [
        boards.get(i) or Board(f"the board gpu={i}", model)
        for i in range(max(boards, default=-1) + 1)
    ]


def _granted(page: Mapping[str, Entry]) -> list[Board]:
    """The boards that the container was given by name; empty where it names none."""
    names = {name.strip().lower() for name in os.environ.get(CONTAINER_VARIABLE, "").split(",")}
    uuids = tuple(name for name in names if name.startswith("gpu-"))
    entries = [
        entry
        for entry in page.values()
        if entry.index in names or (uuids and entry.uuid.lower().startswith(uuids))
    ]
    return [_board(entry) for entry in sorted(entries, key=lambda e: (len(e.index), e.index))]


def _board(entry: Entry) -> Board:
    return Board(entry.uuid, entry.model, has_mig_on=entry.has_slices)
