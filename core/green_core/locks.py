"""Locks between processes of one user on one machine (or in one container).

A lock is a ``flock`` on a file. The kernel drops it when the process ends, however it ends, so
there is nothing to clean up after a kill.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
import weakref
from pathlib import Path

from green_core.errors import GreenError

_RETRY_S = 0.005
_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An exclusive lock on a file, which is made where it is missing and never removed.

    One object is for one thread. A forked child starts without it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, *, wait_s: float = 0.0) -> bool:
        """Take the lock; false when another process (or object) kept it for ``wait_s``.

        Raises ``OSError`` when the file cannot be opened.
        """
        if self._descriptor is not None:
            return True
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        give_up_s = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_s:
                    os.close(descriptor)
                    return False
                time.sleep(_RETRY_S)
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor = descriptor
        _held.add(self)
        return True

    def release(self) -> None:
        """Let others have it. Harmless when it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def runtime_folder() -> Path:
    """The user's own folder for locks, created with mode 0700 where it is missing.

    Raises ``GreenError`` when it cannot be created or belongs to somebody else.
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


def _unusable(folder: Path, problem: str) -> GreenError:
    return GreenError(
        f"The folder for greenserve's locks cannot be used at {folder}: {problem}. "
        "Set XDG_RUNTIME_DIR to a writable folder of your own"
    )


def _drop_in_child() -> None:
    """Closing does not unlock what the parent still holds."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_drop_in_child)
