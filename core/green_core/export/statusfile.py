"""The status page between processes: a front asks, each engine process answers with a file.

Nothing is written until somebody asks, so an idle engine has nothing to do for it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from green_core.doctor.facts import LoadFacts, Status
from green_core.errors import GreenError
from green_core.export.runfiles import header, is_alive

ASK_FILE = "status.ask"
_FOLDER = "status"
_POLL_S = 0.02


def ask(run_dir: Path) -> int:
    """Ask every engine process; answers what to compare its files with."""
    try:
        (run_dir / ASK_FILE).touch()
    except OSError as error:
        raise GreenError(
            f"The engine cannot be asked: {error.strerror} (run folder {run_dir}). Make the folder "
            "writable and keep it from being cleaned up; restart the server if it is gone"
        ) from error
    return asked_ns(run_dir)


def asked_ns(run_dir: Path) -> int:
    """When somebody last asked; 0 if nobody did."""
    with contextlib.suppress(OSError):
        return os.stat(run_dir / ASK_FILE).st_mtime_ns
    return 0


def answer(run_dir: Path, status: Status, asked_ns: int) -> None:
    """Write this process's status, as the answer to the question of ``asked_ns``."""
    pid = os.getpid()
    folder = run_dir / _FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{status.engine.info.engine_index}-{pid}.json"
    draft = path.with_suffix(".draft")
    draft.write_bytes(header(pid) + msgspec.json.encode(status))
    os.utime(draft, ns=(asked_ns, asked_ns))
    os.replace(draft, path)


def collect(run_dir: Path, question_ns: int, *, wait_s: float) -> Status:
    """The status of all live engine processes as one; waits for answers to ``question_ns``.

    An engine that does not answer in time is shown as it last was, and ``silent_s`` says so.
    Raises ``GreenError`` when none ever answered.
    """
    give_up_s = time.monotonic() + wait_s
    while True:
        found = _read(run_dir)
        # Beyond the newest question lies an answer from before the clock was set back.
        newest_ns = max(question_ns, asked_ns(run_dir))
        late = [s for at_ns, s in found.values() if not question_ns <= at_ns <= newest_ns]
        if (found and not late) or time.monotonic() >= give_up_s:
            break
        time.sleep(_POLL_S)
    if not found:
        raise GreenError(
            "No engine process has answered. It is starting, or it has ended: see the server's "
            "log, and ask again"
        )
    silent_s = max((max(time.time() - status.at_s, _POLL_S) for status in late), default=0.0)
    merged = _merge([status for _, status in found.values()])
    return msgspec.structs.replace(merged, silent_s=silent_s)


def _read(run_dir: Path) -> dict[Path, tuple[int, Status]]:
    found = {}
    for path in sorted((run_dir / _FOLDER).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            content, at_ns = path.read_bytes(), path.stat().st_mtime_ns
            if is_alive(int(path.stem.partition("-")[2]), content):
                _, _, body = content.partition(b"\n")
                found[path] = (at_ns, msgspec.json.decode(body, type=Status))
    return found


def _merge(statuses: list[Status]) -> Status:
    first, *others = statuses
    if not others:
        return first
    return msgspec.structs.replace(
        first,
        load=_sum([status.load for status in statuses]),
        processes=tuple(p for status in statuses for p in status.processes),
        faults=tuple(dict.fromkeys(f for status in statuses for f in status.faults)),
    )


def _sum(loads: list[LoadFacts]) -> LoadFacts:
    busy_s = sum(load.busy_s for load in loads)
    weighted = sum(load.mean_running * load.busy_s for load in loads)
    sums = {
        name: sum(getattr(load, name) for load in loads)
        for name in LoadFacts.__struct_fields__
        if name not in {"since_s", "until_s", "mean_running", "last_step_s"}
    }
    return LoadFacts(
        since_s=min(load.since_s for load in loads),
        until_s=max(load.until_s for load in loads),
        last_step_s=max(load.last_step_s for load in loads),
        mean_running=weighted / busy_s if busy_s else 0.0,
        **sums,
    )
