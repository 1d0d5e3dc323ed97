"""One owner per device: several engine processes never count the same joules (FIELD E8).

A claim is an advisory lock (``flock``) on a file per device in a folder of the user's. The kernel
drops it when the process ends, however it ends, so there is nothing to clean up. The scope is
one user on one machine (or one container): processes that cannot see the folder cannot be known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

from green_core.errors import MeterUnavailable

_open_claims: weakref.WeakSet[Claim] = weakref.WeakSet()


class Claim:
    """Devices that this process alone may meter, until :meth:`release` or its end."""

    def __init__(self, names: tuple[str, ...], descriptors: list[int]) -> None:
        self.names = names
        self._descriptors = descriptors
        _open_claims.add(self)

    def release(self) -> None:
        """Let others claim the devices. Harmless when called again."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


def claim(names: Iterable[str], folder: Path | None = None) -> Claim:
    """Claim all of ``names`` (device UUIDs) or none.

    Raises ``MeterUnavailable`` when another claim holds one, or the folder cannot be used.
    """
    wanted = tuple(dict.fromkeys(names))
    folder = runtime_folder() if folder is None else folder
    descriptors: list[int] = []
    try:
        for name in wanted:
            descriptors.append(_lock(folder, name))
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return Claim(wanted, descriptors)


def runtime_folder() -> Path:
    """The user's own folder for locks, created with mode 0700 where it is missing.

    Raises ``MeterUnavailable`` when it cannot be created or belongs to somebody else.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base and os.access(base, os.W_OK):
        folder = Path(base) / "greenserve"
    else:
        folder = Path(tempfile.gettempdir()) / f"greenserve-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise _unusable(folder, str(error.strerror)) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise _unusable(folder, "it is not a folder of this user")
    if status.st_mode & 0o077:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
    return folder


def _lock(folder: Path, name: str) -> int:
    path = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise MeterUnavailable(
            f"Device {name} is already metered by process {owner}. Each device is counted by one "
            "process only: give this engine devices of its own (CUDA_VISIBLE_DEVICES), or set "
            'energy.meter = "model" here'
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _unusable(path: Path, problem: str) -> MeterUnavailable:
    return MeterUnavailable(
        f"The lock that keeps devices from being counted twice cannot be taken at {path}: "
        f"{problem}. Set XDG_RUNTIME_DIR to a writable folder of your own"
    )


def _drop_in_child() -> None:
    """A forked child must not keep its parent's claims alive; closing does not unlock them."""
    for held in list(_open_claims):
        held.release()


os.register_at_fork(after_in_child=_drop_in_child)
