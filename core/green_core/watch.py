"""Tell of changes in a few directories without waking an idle process.

On Linux the kernel's inotify wakes a blocked thread; there is no polling, so an idle server stays
idle (FIELD P15). Directories are watched, not files: editors and Kubernetes replace files by
rename. Elsewhere, or where the kernel refuses, a slow poll takes over.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable

logger = logging.getLogger("greenserve")

# From <sys/inotify.h>.
_IN_ATTRIB, _IN_CLOSE_WRITE = 0x4, 0x8
_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_MASK = _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_IN_CLOEXEC = 0o2000000
POLL_S = 1.0


class Watcher:
    """Calls ``on_change`` from its own thread after something changed in ``directories``."""

    def __init__(self, directories: Iterable[str], on_change: Callable[[], None]) -> None:
        self._directories = sorted(set(directories))
        self._on_change = on_change
        self._stop = threading.Event()
        self._fd = _open_inotify(self._directories)
        self._wake_r, self._wake_w = os.pipe()
        self._thread = threading.Thread(target=self._run, name="green-watch", daemon=True)
        self._thread.start()

    @property
    def polling(self) -> bool:
        """Whether the kernel could not watch and the slow poll is in use."""
        return self._fd is None

    def close(self) -> None:
        """Stop within a second."""
        if self._stop.is_set():
            return
        self._stop.set()
        os.write(self._wake_w, b"x")
        self._thread.join(timeout=1.0)
        for fd in (self._fd, self._wake_r, self._wake_w):
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _run(self) -> None:
        # select lives here so that importing the core stays light.
        import select

        seen = _stamps(self._directories)
        while not self._stop.is_set():
            sources = [self._wake_r] + ([] if self._fd is None else [self._fd])
            ready, _, _ = select.select(sources, [], [], POLL_S if self._fd is None else None)
            if self._stop.is_set():
                return
            if self._fd is not None and self._fd in ready:
                os.read(self._fd, 64 * 1024)
            elif (now := _stamps(self._directories)) != seen:
                seen = now
            else:
                continue
            try:
                self._on_change()
            except Exception:  # a listener's fault must not end the watch
                logger.exception("greenserve: reacting to a file change failed")


def _open_inotify(directories: list[str]) -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(_IN_CLOEXEC)
    if fd < 0:
        return None
    for directory in directories:
        if libc.inotify_add_watch(fd, os.fsencode(directory), _MASK) < 0:
            os.close(fd)
            return None
    return int(fd)


def _stamps(directories: list[str]) -> dict[str, tuple[float, int]]:
    stamps = {}
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    info = entry.stat()
                    stamps[entry.path] = (info.st_mtime, info.st_size)
    return stamps
