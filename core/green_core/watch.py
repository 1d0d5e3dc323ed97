"""Tell of changes in a few directories without waking an idle process.

Linux's inotify wakes a blocked thread, so an idle server stays idle (FIELD P15). Directories are
watched, not files: editors and Kubernetes replace files by rename. Names on the way to them are
watched for their own removal only, which tells of a replaced folder and a retargeted link. While
a directory is missing, and where there is no inotify, a slow poll takes over.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

logger = logging.getLogger("greenserve")

# From <sys/inotify.h>.
_IN_ATTRIB, _IN_CLOSE_WRITE, _IN_MOVED_FROM, _IN_MOVED_TO = 0x4, 0x8, 0x40, 0x80
_IN_CREATE, _IN_DELETE, _IN_DELETE_SELF, _IN_MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_IN_UNMOUNT, _IN_Q_OVERFLOW, _IN_IGNORED = 0x2000, 0x4000, 0x8000
_IN_ONLYDIR, _IN_DONT_FOLLOW, _IN_MASK_ADD = 0x1000000, 0x2000000, 0x20000000
_SELF = _IN_DELETE_SELF | _IN_MOVE_SELF
_ENTRIES = _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
# One inode may be both a directory and a name on the way to another, hence _IN_MASK_ADD.
_NAME_MASK = _SELF | _IN_DONT_FOLLOW | _IN_MASK_ADD
_DIRECTORY_MASK = _SELF | _ENTRIES | _IN_ONLYDIR | _IN_MASK_ADD
_STALE = _SELF | _IN_UNMOUNT | _IN_Q_OVERFLOW | _IN_IGNORED  # the watches may have lost their place
_HEADER = struct.Struct("iIII")  # wd, mask, cookie, length of the name that follows
POLL_S = 1.0
MAX_LINKS = 40  # as the kernel follows
_Places = tuple[list[str], list[str]]  # directories; names on the way to them, parents first


class Watcher:
    """Calls ``on_change`` from its own thread after something changed in a directory.

    ``where`` names the directories, anew after each event, so it may follow links. ``on_change``
    comes after watches were placed again, which covers what happened in between.
    """

    def __init__(self, where: Callable[[], Iterable[str]], on_change: Callable[[], None]) -> None:
        self._where = where
        self._on_change = on_change
        self._closed = self._polling = False
        self._fd: int | None = None
        self._watch()
        self._seen = _stamps(self._places[0]) if self._polling else {}
        self._wake_r, self._wake_w = os.pipe()
        self._thread = threading.Thread(target=self._run, name="green-watch", daemon=True)
        self._thread.start()

    @property
    def polling(self) -> bool:
        """Whether a directory cannot be watched at the moment and the slow poll is in use."""
        return self._polling

    def close(self) -> None:
        """Stop within a second; a listener that hangs is left behind."""
        if self._closed:
            return
        self._closed = True
        os.write(self._wake_w, b"x")
        os.close(self._wake_w)
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        # select lives here so that importing the core stays light.
        import select

        while True:
            poll = select.poll()  # select() refuses descriptors above 1023
            poll.register(self._wake_r, select.POLLIN)
            if self._fd is not None:
                poll.register(self._fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(POLL_S * 1000 if self._polling else None)}
            if self._wake_r in ready:
                break
            told = self._fd in ready
            if not told or self._drain() or self._polling or self._find() != self._places:
                self._watch()
            before, self._seen = self._seen, _stamps(self._places[0]) if self._polling else {}
            if not told and self._polling and self._seen == before:
                continue
            try:
                self._on_change()
            except Exception:  # a listener's fault must not end the watch
                logger.exception("greenserve: reacting to a file change failed")
        os.close(self._wake_r)
        if self._fd is not None:
            os.close(self._fd)

    def _drain(self) -> bool:
        """Take all queued events; whether one says that the watches must be placed anew."""
        assert self._fd is not None
        stale = 0
        with contextlib.suppress(BlockingIOError):
            while events := os.read(self._fd, 64 * 1024):
                at = 0
                while at < len(events):
                    _, mask, _, length = _HEADER.unpack_from(events, at)
                    stale |= mask & _STALE
                    at += _HEADER.size + length
        return bool(stale)

    def _find(self) -> _Places:
        directories = sorted(set(self._where()))
        return directories, [name for path in directories for name in _trail(path)]

    def _watch(self) -> None:
        """Place all watches anew; poll until the next try where one is refused."""
        if self._fd is not None:
            os.close(self._fd)
        self._places = self._find()
        self._fd, complete = _open_inotify(*self._places)
        # A link that moved before its watch was in place has told nobody.
        self._polling = not complete or self._find() != self._places


def folders_of(file: str) -> list[str]:
    """Where a change can alter what ``file`` says: its folder and those of the links behind it."""
    folders = [os.path.dirname(file)]
    with contextlib.suppress(OSError):
        for _ in range(MAX_LINKS):
            file = os.path.join(os.path.dirname(file), os.readlink(file))
            folders.append(os.path.dirname(file))
    return folders


def _trail(path: str) -> list[str]:
    """Every name that leads to ``path``, through links as well, parents first."""
    names: dict[str, None] = {}
    ways = [path]
    for way in ways:  # grows as links are met
        for name in map(str, [*reversed(Path(way).parents), Path(way)]):
            if name not in names and len(ways) <= MAX_LINKS:
                names[name] = None
                with contextlib.suppress(OSError):
                    ways.append(os.path.join(os.path.dirname(name), os.readlink(name)))
    return list(names)


def _open_inotify(directories: list[str], names: list[str]) -> tuple[int | None, bool]:
    """A descriptor that watches what can be watched, and whether all directories are."""
    if not sys.platform.startswith("linux"):
        return None, False
    libc = ctypes.CDLL(None)
    fd = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if fd < 0:
        return None, False
    for name in names:  # a parent that may not be read stays without a watch
        libc.inotify_add_watch(fd, os.fsencode(name), _NAME_MASK)
    added = [libc.inotify_add_watch(fd, os.fsencode(d), _DIRECTORY_MASK) for d in directories]
    return fd, min(added, default=0) >= 0


def _stamps(directories: list[str]) -> dict[str, tuple[int, int, int]]:
    stamps = {}
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)  # a link's target has its own folder
                stamps[entry.path] = (info.st_ino, info.st_mtime_ns, info.st_size)
    return stamps
