"""The lever on NVIDIA devices: power limit and locked clocks, through NVML.

It steers the boards that the engine uses, the same that :mod:`green_core.energy.nvml` meters.
Whether it may is probed once (FIELD E14): without permission it is inert and says so. A limit is
kept within what the board allows and never set above what was found; what was found comes back
when the policy ends, unless somebody else has changed the limit meanwhile (FIELD E15).

NVML is opened for each change and closed after it: a meter in the same process must be able to
open it anew when the driver was away, which needs that nobody else holds it.

NVML does not tell which clocks are locked. So an operator's own lock cannot be found, and setting
clocks replaces it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from green_core.energy.nvidia.boards import list_boards
from green_core.energy.nvidia.library import import_nvml
from green_core.energy.visible import visible_devices
from green_core.errors import GreenError
from green_core.locks import runtime_folder
from green_core.power.lever import InertLever, PowerLever
from green_core.power.memory import DeviceMemory, has_records
from green_core.power.nvml_board import NvmlBoard, OperatorChanged
from green_core.values import EngineInfo, PowerTarget

logger = logging.getLogger("greenserve")

_ONLY_MEASURED = "power policies are only measured"
_OVERRULED = (
    "the power limit was changed by somebody else, or undone by a reload of the driver, and that "
    "stands. Restart the engine, or change its configuration, to let the policy set limits again"
)
_OTHERS = ("cpu", "amd", "intel", "gaudi")


def nvml_lever(engine: EngineInfo, *, folder: Path | None = None) -> PowerLever:
    """The lever for the engine's devices; one that is inert and says why where there is none.

    ``folder`` is where found values are remembered, by default the user's runtime folder. Call
    after any fork.
    """
    device = engine.device.strip().lower()
    if device.startswith(_OTHERS):
        return InertLever(f"there is no lever for {engine.device} yet; {_ONLY_MEASURED}")
    try:
        nvml = import_nvml()
    except GreenError as error:
        return InertLever(f"{error}; {_ONLY_MEASURED}")
    try:
        with _opened(nvml):
            return NvmlLever(nvml, _take(nvml, engine, folder or runtime_folder()))
    except nvml.NVMLError as error:
        return InertLever(_refusal(nvml, error))
    except (GreenError, OSError) as error:
        return InertLever(f"{error}; {_ONLY_MEASURED}")


def repair(engine: EngineInfo) -> None:
    """Undo what a killed process left on the engine's devices, where no policy is named any more.

    A lever does that by itself when it is made. Without a record of any change nothing is opened.
    """
    with contextlib.suppress(GreenError, OSError):
        folder = runtime_folder()
        if has_records(folder):
            nvml_lever(engine, folder=folder).close()


@contextlib.contextmanager
def _opened(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


_Held = tuple[NvmlBoard, DeviceMemory]


def _take(nvml: Any, engine: EngineInfo, folder: Path) -> Sequence[_Held]:
    """Every board, locked and probed; none stays locked when one cannot be had."""
    devices = visible_devices(os.environ, list_boards(nvml), max(1, engine.device_count))
    if any(device.is_slice for device in devices):
        raise GreenError(
            "the engine runs on a MIG slice, and a limit would hold for the whole board. Give it "
            "a whole board to steer its power"
        )
    held: list[_Held] = []
    try:
        for device in devices:
            memory = DeviceMemory(folder, device.board_uuid)
            if not memory.acquire():
                raise GreenError(
                    f"another process steers the power of {device.board_uuid}. Name the power "
                    "policy in one engine per device"
                )
            held.append((NvmlBoard(nvml, device.board_uuid, memory), memory))
        for board, _ in held:
            board.probe()
            if board.found_mw is None and not board.clocks_mhz:
                raise GreenError(f"{board.uuid} supports neither power limits nor locked clocks")
    except BaseException:
        for _, memory in held:
            memory.release()
        raise
    return held


class NvmlLever:
    """Steers boards that are locked and probed; made by :func:`nvml_lever`."""

    def __init__(self, nvml: Any, held: Sequence[_Held]) -> None:
        self.problem = ""
        self.failures = 0
        self._nvml = nvml
        self._held = held
        self._pid = os.getpid()

    @property
    def limit_w(self) -> float | None:
        """The least of the limits found."""
        found = [board.found_mw for board, _ in self._held if board.found_mw is not None]
        return min(found) * 1e-3 if found else None

    @property
    def set_w(self) -> float | None:
        """The least of the limits that are set and ours."""
        return min((board.set_w for board, _ in self._held if board.set_w), default=None)

    def apply(self, target: PowerTarget) -> None:
        """Set limits on every board. The first failure takes all back and ends it for good."""
        if self.problem or self._pid != os.getpid():
            return
        try:
            with _opened(self._nvml):
                for board, _ in self._held:
                    board.apply(target)
        except OperatorChanged:
            self._give_up(_OVERRULED)
        except (self._nvml.NVMLError, OSError) as error:
            self.failures += 1
            self._give_up(_refusal(self._nvml, error))

    def restore(self) -> None:
        """Take back what was set, where it is still ours."""
        changed = [board for board, _ in self._held if board.is_changed]
        if not changed or self._pid != os.getpid():
            return
        # Each board by itself: what one refuses must not leave the others limited.
        for board in changed:
            try:
                with _opened(self._nvml):
                    was_ours = board.restore()
            except (self._nvml.NVMLError, OSError) as error:
                self.failures += 1
                self._end(_refusal(self._nvml, error))
            else:
                if not was_ours:
                    self._end(_OVERRULED)

    def close(self) -> None:
        """Restore, and give the locks back. A forked child leaves both to its parent."""
        self.restore()
        if self._pid == os.getpid():
            self._pid = 0
            for _, memory in self._held:
                memory.release()

    def describe(self) -> str:
        """The limits found, and what can be set."""
        if self.problem:
            return f"none: {self.problem}"
        limits = [f"{b.found_mw * 1e-3:g} W" for b, _ in self._held if b.found_mw is not None]
        clocks = {(b.clocks_mhz[0], b.clocks_mhz[-1]) for b, _ in self._held if b.clocks_mhz}
        parts = [f"power limit (found {', '.join(limits)})"] if limits else []
        parts += [f"clocks {low} to {high} MHz" for low, high in sorted(clocks)]
        return f"{' and '.join(parts)} on {len(self._held)} device(s)"

    def _give_up(self, problem: str) -> None:
        self._end(problem)
        self.restore()

    def _end(self, problem: str) -> None:
        if not self.problem:
            self.problem = problem
            logger.warning("greenserve: power: %s", problem)


def _refusal(nvml: Any, error: Exception) -> str:
    remedies = {
        nvml.NVML_ERROR_NO_PERMISSION: "Setting limits needs root: run the engine's container "
        "with the capability SYS_ADMIN, or set a limit for good with nvidia-smi -pl",
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "Install the NVIDIA driver, or give the container "
        "access to it (--gpus all, driver capability utility)",
    }
    remedy = remedies.get(getattr(error, "value", None), "Check that nvidia-smi works")
    return f"limits cannot be set ({error}). {remedy}; {_ONLY_MEASURED}"
