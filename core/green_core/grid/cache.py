"""What a live source said, on disk: read by every process of the user, written by one.

Two files for each question: ``carbon-KEY.json`` holds the snapshot with its history,
``carbon-KEY.state.json`` how asking went. Both are replaced whole, so a reader sees the old one
or the new one. A file that is damaged, foreign or of another form is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from green_core.config import CarbonConfig
from green_core.errors import SignalUnavailable
from green_core.grid.slots import KEEP_S, checked
from green_core.grid.source import Snapshot
from green_core.locks import runtime_folder

logger = logging.getLogger("greenserve")

T = TypeVar("T")
MAX_BYTES = 16 * 1024 * 1024  # more is none of ours
ABANDONED_S = KEEP_S + 86_400.0  # nothing in a file that old is of use
FORM = "v1"  # part of every key: another form of the files is another name


class PollState(msgspec.Struct, frozen=True):
    """How asking the service went; times are wall times.

    Written at ``at_s``; nobody asks again before ``next_at_s``. ``failures`` in a row, with the
    newest one's ``reason`` (of ``errors.SIGNAL_REASONS``) and words.
    """

    at_s: float
    next_at_s: float
    failures: int = 0
    reason: str = ""
    problem: str = ""


def question_key(carbon: CarbonConfig, token: str) -> str:
    """A name for all that decides what a service answers.

    The token is part of it, so that another token is another question; it cannot be read back.
    """
    parts = (
        FORM,
        carbon.source,
        carbon.url,
        carbon.zone,
        carbon.kind,
        carbon.basis,
        carbon.query,
        carbon.unit,
        carbon.username,
        carbon.allow_synthetic,
        carbon.forecast,
        carbon.forecast_hours,
        carbon.poll_s,
        os.getuid(),  # a folder may be shared, a file is of one user
        hashlib.sha256(token.encode()).hexdigest(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def cache_folder(carbon: CarbonConfig) -> Path:
    """Where live values are kept: ``carbon.cache_dir``, else the user's cache folder, else that
    for locks. Made with mode 0700 where it is missing.

    Raises ``GreenError`` when none of them can be written.
    """
    if carbon.cache_dir:
        wanted = Path(carbon.cache_dir).expanduser()
        if _is_usable(wanted):
            return wanted
        logger.warning(
            "greenserve: carbon.cache_dir %s cannot be written; live values are kept in %s",
            wanted,
            runtime_folder(),
        )
        return runtime_folder()
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    folder = Path(base) / "greenserve"
    return folder if folder.is_absolute() and _is_usable(folder) else runtime_folder()


def _is_usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


class Cache:
    """The two files of one question. For one thread."""

    def __init__(self, carbon: CarbonConfig, key: str) -> None:
        self.folder = cache_folder(carbon)
        self._carbon = carbon
        self._snapshot = self.folder / f"carbon-{key}.json"
        self._state = self.folder / f"carbon-{key}.state.json"
        self._seen: dict[Path, tuple[int, int, int]] = {}

    @property
    def scope(self) -> str:
        """What sets this cache apart from every other one on the machine."""
        return str(self._snapshot.absolute())

    def newer_snapshot(self) -> Snapshot | None:
        """What was written since the last call; ``None``: nothing, or nothing usable."""
        snapshot = self._newer(self._snapshot, Snapshot)
        try:
            return None if snapshot is None else checked(snapshot, self._carbon)
        except SignalUnavailable:
            return None

    def newer_state(self) -> PollState | None:
        """What was written since the last call; ``None``: nothing, or nothing usable."""
        return self._newer(self._state, PollState)

    def write(self, state: PollState, snapshot: Snapshot | None = None) -> None:
        """Replace the state, and before it the snapshot if there is a new one.

        Raises ``OSError``.
        """
        if snapshot is not None:
            self._sweep()
            self._replace(self._snapshot, snapshot)
        self._replace(self._state, state)

    def _newer(self, path: Path, form: type[T]) -> T | None:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(path, flags)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                return None
            if self._seen.get(path) == _stamp(status) or status.st_size > MAX_BYTES:
                return None
            self._seen[path] = _stamp(status)
            with open(descriptor, "rb", closefd=False) as file:
                return msgspec.json.decode(file.read(), type=form)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        finally:
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove what nobody uses any more: answers to old questions, and torn writes."""
        with contextlib.suppress(OSError):
            for pattern in ("carbon-*.json", ".carbon-*.json-*"):
                for path in self.folder.glob(pattern):
                    if time.time() - path.lstat().st_mtime > ABANDONED_S:
                        path.unlink()

    def _replace(self, path: Path, value: msgspec.Struct) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=self.folder)  # 0600
        try:
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode(value))
                file.flush()
                self._seen[path] = _stamp(os.fstat(file.fileno()))
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size
