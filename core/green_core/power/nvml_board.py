"""Power limit and clocks of one NVIDIA board."""

from __future__ import annotations

import logging
from typing import Any

from green_core.power.memory import Change, DeviceMemory
from green_core.values import PowerTarget

logger = logging.getLogger("greenserve")

_SAME_MW = 1000  # drivers may round a limit to whole watts


class OperatorChanged(Exception):
    """Somebody else changed what we had set; theirs stands."""


class NvmlBoard:
    """One board. Methods raise ``NVMLError``, and ``OSError`` when nothing can be written down.

    ``found_mw`` is the operator's limit in milliwatts, ``None`` where the board has none that can
    be set; ``clocks_mhz`` are the clocks it supports, ascending, empty where NVML does not tell.
    """

    def __init__(self, nvml: Any, uuid: str, memory: DeviceMemory) -> None:
        self.uuid = uuid
        self.found_mw: int | None = None
        self.clocks_mhz: list[int] = []
        self._nvml = nvml
        self._memory = memory
        self._set_mw: tuple[int, ...] = ()  # what may be in force and is ours
        self._locked_mhz: int | None = None

    @property
    def is_changed(self) -> bool:
        """Whether something of ours may be in force."""
        return bool(self._set_mw) or self._locked_mhz is not None

    @property
    def set_w(self) -> float | None:
        """The power limit that is set and ours; ``None``: none is."""
        return self._set_mw[-1] * 1e-3 if self._set_mw else None

    def probe(self) -> None:
        """Repair what a killed process left, then set the present limit: that changes nothing and
        shows whether this process may set limits at all (FIELD E14).
        """
        nvml, handle = self._nvml, self._handle()
        left = self._memory.recall()
        if left is not None:
            self.found_mw, self._set_mw = left.found_mw, left.set_mw
            self._locked_mhz = 0 if left.has_locked_clocks else None
            logger.warning("greenserve: power: taking back what a killed process left: %s", left)
        self.restore()
        self.found_mw = None
        try:
            present = int(nvml.nvmlDeviceGetPowerManagementLimit(handle))
            nvml.nvmlDeviceSetPowerManagementLimit(handle, present)
            self.found_mw = present
        except nvml.NVMLError as error:
            self._pass_unsupported(error)
        try:
            memory_mhz = max(nvml.nvmlDeviceGetSupportedMemoryClocks(handle))
            self.clocks_mhz = sorted(nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz))
        except nvml.NVMLError as error:
            self._pass_unsupported(error)

    def apply(self, target: PowerTarget) -> None:
        """Set what ``target`` asks for; raises ``OperatorChanged`` where ours was changed."""
        if self.found_mw is not None:
            self._apply_limit(target.power_limit_w)
        if self.clocks_mhz and target.clock_mhz != self._locked_mhz:
            self._apply_clock(target.clock_mhz)

    def restore(self) -> bool:
        """Take back what is still ours (FIELD E15), and answer whether nobody had changed it. The
        record stays where that fails.
        """
        was_ours = True
        if self._set_mw and self.found_mw is not None:
            was_ours = self._is_ours()
            if was_ours:
                self._nvml.nvmlDeviceSetPowerManagementLimit(self._handle(), self.found_mw)
            self._set_mw = ()
        if self._locked_mhz is not None:
            self._apply_clock(None)
        self._save()
        return was_ours

    def _apply_limit(self, limit_w: float | None) -> None:
        nvml, handle = self._nvml, self._handle()
        if not self._set_mw:
            if limit_w is None:
                return
            # Until we set one, whatever is there is the operator's, and may have changed.
            found_mw = int(nvml.nvmlDeviceGetPowerManagementLimit(handle))
            self.found_mw = found_mw
        else:
            found_mw = self.found_mw or 0
            if not self._is_ours():
                self._set_mw = ()
                self._save()
                raise OperatorChanged
        wanted_mw = found_mw
        if limit_w is not None:
            low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
            wanted_mw = min(max(round(limit_w * 1e3), int(low)), int(high), found_mw)
        before = self._set_mw
        if (wanted_mw,) == (before or (found_mw,)):
            return
        # Written down first, with both that may be in force after a kill in between.
        self._set_mw = (*before, wanted_mw)
        self._save()
        nvml.nvmlDeviceSetPowerManagementLimit(handle, wanted_mw)
        self._set_mw = () if wanted_mw == found_mw else (wanted_mw,)
        self._save()

    def _apply_clock(self, clock_mhz: int | None) -> None:
        if clock_mhz is None:
            self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle())
            self._locked_mhz = None
            self._save()
            return
        lowest = self.clocks_mhz[0]
        highest = max((each for each in self.clocks_mhz if each <= clock_mhz), default=lowest)
        self._locked_mhz = clock_mhz
        self._save()
        # A range and not one clock: an idle board may still slow down.
        self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle(), lowest, highest)

    def _save(self) -> None:
        if self.is_changed:
            locked = self._locked_mhz is not None
            self._memory.write(Change(self.found_mw or 0, self._set_mw, locked))
        else:
            self._memory.forget()

    def _is_ours(self) -> bool:
        present = int(self._nvml.nvmlDeviceGetPowerManagementLimit(self._handle()))
        return any(abs(present - each) < _SAME_MW for each in self._set_mw)

    def _pass_unsupported(self, error: Any) -> None:
        nvml = self._nvml
        if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            raise error

    def _handle(self) -> Any:
        return self._nvml.nvmlDeviceGetHandleByUUID(self.uuid)
