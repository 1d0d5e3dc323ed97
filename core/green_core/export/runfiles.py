"""Files that engine processes leave in the run folder for the API servers beside them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from green_core.procfs import stat_fields

METRICS_FOLDER = "metrics"  # in the run folder
POKE_FILE = "poke"  # touched by a scrape

_NAME = re.compile(r"\.?metrics-(?P<index>\d+)-(?P<pid>\d+)\.prom(\.tmp)?")
_HEADER = re.compile(rb"# greenserve pid=(\d+) start=(\d+)\n")


def metrics_path(run_dir: Path, engine_index: int, pid: int) -> Path:
    """Where the engine process ``pid`` publishes its metrics."""
    return run_dir / f"metrics-{engine_index}-{pid}.prom"


def temporary_path(path: Path) -> Path:
    """Where the next version of ``path`` is written before it replaces it."""
    return path.with_name(f".{path.name}.tmp")


def header(pid: int) -> bytes:
    """First line of a metrics file: a comment that names the process beyond doubt."""
    return b"# greenserve pid=%d start=%d\n" % (pid, _start_ticks(pid) or 0)


def owner_pid(path: Path) -> int | None:
    """The process that a file belongs to by its name; ``None`` for files of others."""
    match = _NAME.fullmatch(path.name)
    return int(match["pid"]) if match else None


def engine_index(path: Path) -> int:
    """The engine index in the name of a metrics file."""
    match = _NAME.fullmatch(path.name)
    return int(match["index"]) if match else 0


def is_alive(pid: int, content: bytes) -> bool:
    """Whether the process that wrote ``content`` still runs.

    A pid alone does not tell: it may be a zombie, or another process by now. The start time in
    the header settles it where the system has ``/proc``.
    """
    match = _HEADER.match(content)
    written = int(match[2]) if match else 0
    if not written or not os.path.exists("/proc/self/stat"):
        return _exists(pid)
    return _start_ticks(pid) == written


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _start_ticks(pid: int) -> int | None:
    """Start time of a running process in clock ticks since boot; ``None`` for none or a zombie."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in {b"Z", b"X"} else None
