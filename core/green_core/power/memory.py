"""What was found on a device before it was changed, kept where a killed process's successor looks.

A limit outlives the process that set it. So what was found and what is set is written down before
it is set, and whoever takes the device next repairs it. A lock lets only one process steer it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from green_core.locks import FileLock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Change(msgspec.Struct, frozen=True):
    """What may be in force: one of the power limits ``set_mw``, in milliwatts, where ``found_mw``
    was found; and locked clocks. ``boot`` is the machine's boot, whose end undoes all of it.
    """

    found_mw: int = 0
    set_mw: tuple[int, ...] = ()
    has_locked_clocks: bool = False
    boot: str = ""


class DeviceMemory:
    """The record and the lock of one device."""

    def __init__(self, folder: Path, uuid: str) -> None:
        name = quote(uuid, safe="")
        self._path = folder / f"power-{name}.json"
        self._lock = FileLock(folder / f"power-{name}.lock")

    def acquire(self) -> bool:
        """Become the one that steers the device; raises ``OSError``."""
        return self._lock.acquire()

    def release(self) -> None:
        """Let others steer it."""
        self._lock.release()

    def recall(self) -> Change | None:
        """The change that somebody left behind during this boot of the machine."""
        try:
            change = msgspec.json.decode(self._path.read_bytes(), type=Change)
        except (OSError, msgspec.DecodeError):
            return None
        return change if change.boot == _boot() else None

    def write(self, change: Change) -> None:
        """Write down what is about to be in force; raises ``OSError``."""
        draft = self._path.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(msgspec.structs.replace(change, boot=_boot())))
        os.replace(draft, self._path)

    def forget(self) -> None:
        """Nothing of ours is in force."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def has_records(folder: Path) -> bool:
    """Whether any device may still be changed, by a living process or a dead one."""
    return any(folder.glob("power-*.json"))


def _boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
