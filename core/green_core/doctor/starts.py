"""Remembers the starts of engines on this host, in the user's state folder.

A file of JSON lines, oldest first, written whole under a lock and put in place at once. It holds
model names and times, nothing else of the server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from green_core.doctor.facts import StartFacts
from green_core.errors import GreenError
from green_core.export.runfiles import header, is_alive
from green_core.locks import FileLock, runtime_folder

KEEP = 500
_NAME = "starts.jsonl"
_LOCK_WAIT_S = 1.0


class _Line(msgspec.Struct, frozen=True):
    """A start, and the process that noted it: its pid, its header and its pid namespace."""

    start: StartFacts
    pid: int
    process: str
    namespace: str


def state_folder() -> Path:
    """The user's folder for what outlives a server, made where it is missing (XDG base dirs).

    Where there is no usable home it is the runtime folder, which a reboot may empty. Raises
    ``GreenError`` when neither can be had.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    # The specification has relative paths ignored.
    home = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.local/state"))
    if home.is_absolute():
        try:
            folder = home / "greenserve"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return runtime_folder()
        if os.access(folder, os.W_OK):
            return folder
    return runtime_folder()


def note_start(start: StartFacts) -> bool:
    """Remember a start of this process; false when it could not be written (never raises).

    Of older starts the newest ``KEEP`` stay.
    """
    line = _Line(start, os.getpid(), header(os.getpid()).decode(), _namespace())
    try:
        path = state_folder() / _NAME
        lock = FileLock(path.with_suffix(".lock"))
        if not lock.acquire(wait_s=_LOCK_WAIT_S):
            return False
        try:
            _write(path, [*_lines(path), line][-KEEP:])
        finally:
            lock.release()
    except (OSError, GreenError):
        return False
    return True


def recent_starts(model: str | None, since_s: float) -> tuple[StartFacts, ...]:
    """Starts of ``model`` (``None``: any) at or after ``since_s`` (epoch seconds), oldest first.

    Empty when nothing is known.
    """
    try:
        path = state_folder() / _NAME
    except GreenError:
        return ()
    return tuple(
        msgspec.structs.replace(line.start, is_running=_is_running(line))
        for line in _lines(path)
        if line.start.at_s >= since_s and model in (None, line.start.model)
    )


def _lines(path: Path) -> Iterator[_Line]:
    """What can be read; a line that is not ours is passed over and gone at the next write."""
    try:
        content = path.read_bytes()
    except OSError:
        return
    for raw in content.splitlines():
        try:
            yield msgspec.json.decode(raw, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue


def _write(path: Path, lines: list[_Line]) -> None:
    temporary = path.with_name(f".{_NAME}.tmp")  # one writer at a time: the lock is held
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    temporary.replace(path)


def _namespace() -> str:
    """The pid namespace of this process; pids of another one mean nothing here."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _is_running(line: _Line) -> bool | None:
    if line.namespace != _namespace():
        return None
    return is_alive(line.pid, line.process.encode())
