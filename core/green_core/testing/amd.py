"""A scripted ``amdsmi`` for machines without an AMD device.

It has the functions, keys and exceptions of the real package that greenserve uses, in the shape of
a chosen release, and is put in its place::

    smi = FakeAmdSmi([FakeDevice()])
    monkeypatch.setitem(sys.modules, "amdsmi", smi.module())
    smi.devices[0].energy_j = 1500.0
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import msgspec

RETRY, NO_PERM, NOT_SUPPORTED, NOT_INIT, DRIVER_NOT_LOADED = 9, 10, 2, 32, 34
NOT_AVAILABLE = "N/A"  # what the package answers where a device has no such reading


class AmdSmiException(Exception):
    """Base of all."""


class AmdSmiLibraryException(AmdSmiException):
    """A status other than success."""

    def __init__(self, err_code: int) -> None:
        super().__init__(err_code)
        self.err_code = err_code

    def __str__(self) -> str:
        return f"Error code:\n\t{self.err_code} | scripted"


class FakeDevice(msgspec.Struct):
    """One device. ``energy_j`` and the two powers answer "N/A" where they are ``None``.

    ``hip_id`` is its place in HIP's order; by default the order of the list.
    """

    energy_j: float | None = 1000.0
    current_w: float | None = 300.0
    average_w: float | None = None
    hip_id: int | None = None


class FakeAmdSmi:
    """The library's state. ``release`` decides on names: (6, 2), (6, 3) or (6, 4) and later.

    ``errors`` maps a function's name to the status that it answers instead.
    """

    RESOLUTION_UJ = 15.259

    def __init__(self, devices: list[FakeDevice], *, release: tuple[int, int] = (7, 0)) -> None:
        self.devices = devices
        self.release = release
        self.errors: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self._pid = 0

    @staticmethod
    def uuid(index: int) -> str:
        """The UUID of a device, as ``amdsmi_get_gpu_device_uuid`` gives it."""
        return f"{index:02x}ff74a1-0000-1000-8000-00000000{index:04x}"

    @staticmethod
    def rocm_name(index: int) -> str:
        """The name that ``ROCR_VISIBLE_DEVICES`` takes."""
        return f"GPU-{0xABC0 + index:016x}"

    @property
    def is_open(self) -> bool:
        """Whether this process has the library open."""
        return self._pid == os.getpid()

    def lose(self) -> None:
        """The driver goes away and comes back: what was open is open no longer."""
        self._pid = 0

    def module(self) -> ModuleType:
        """What ``import amdsmi`` shall find."""
        found = ModuleType("amdsmi")
        public: dict[str, Any] = {
            "AmdSmiException": AmdSmiException,
            "AmdSmiLibraryException": AmdSmiLibraryException,
            "amdsmi_init": self._init,
            "amdsmi_shut_down": self._shut_down,
            "amdsmi_get_processor_handles": self._handles,
            "amdsmi_get_gpu_device_uuid": self._uuid,
            "amdsmi_get_gpu_asic_info": self._asic_info,
            "amdsmi_get_energy_count": self._energy_count,
            "amdsmi_get_power_info": self._power_info,
        }
        if self.release >= (6, 4):
            public["amdsmi_get_gpu_enumeration_info"] = self._enumeration_info
        vars(found).update(public)
        return found

    def _check(self, function: str, *, opened: bool = True) -> None:
        self.calls[function] = self.calls.get(function, 0) + 1
        if function in self.errors:
            raise AmdSmiLibraryException(self.errors[function])
        if opened and not self.is_open:
            raise AmdSmiLibraryException(NOT_INIT)

    def _init(self) -> None:
        self._check("amdsmi_init", opened=False)
        self._pid = os.getpid()

    def _shut_down(self) -> None:
        self._check("amdsmi_shut_down")
        self._pid = 0

    def _handles(self) -> list[int]:
        self._check("amdsmi_get_processor_handles")
        return list(range(len(self.devices)))

    def _uuid(self, handle: int) -> str:
        self._check("amdsmi_get_gpu_device_uuid")
        return self.uuid(handle)

    def _asic_info(self, handle: int) -> dict[str, Any]:
        self._check("amdsmi_get_gpu_asic_info")
        return {"market_name": "AMD Instinct MI300X", "asic_serial": f"0x{0xABC0 + handle:016X}"}

    def _enumeration_info(self, handle: int) -> dict[str, Any]:
        self._check("amdsmi_get_gpu_enumeration_info")
        place = self.devices[handle].hip_id
        return {
            "hip_id": handle if place is None else place,
            "hip_uuid": self.rocm_name(handle),
        }

    def _energy_count(self, handle: int) -> dict[str, Any]:
        self._check("amdsmi_get_energy_count")
        energy_j = self.devices[handle].energy_j
        if energy_j is None:
            raise AmdSmiLibraryException(NOT_SUPPORTED)
        steps = round(energy_j * 1e6 / self.RESOLUTION_UJ)
        answer: dict[str, Any] = {"counter_resolution": self.RESOLUTION_UJ, "timestamp": 0}
        if self.release < (6, 4):
            answer["power"] = steps
        if self.release >= (6, 3):
            answer["energy_accumulator"] = steps
        return answer

    def _power_info(self, handle: int) -> dict[str, Any]:
        self._check("amdsmi_get_power_info")
        device = self.devices[handle]
        powers = {
            "current_socket_power": device.current_w,
            "average_socket_power": device.average_w,
        }
        return {key: NOT_AVAILABLE if w is None else round(w) for key, w in powers.items()}
