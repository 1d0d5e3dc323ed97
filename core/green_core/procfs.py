"""Processes as ``/proc`` shows them (proc(5)). One that has ended has no fields."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def stat_fields(pid: int, proc: Path = PROC) -> list[bytes]:
    """The fields of ``/proc/PID/stat`` from the third, the state, on; empty when there are none."""
    try:
        text = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    # The command's name stands in parentheses and may itself hold spaces and parentheses.
    return text.rpartition(b")")[2].split()


def parents(proc: Path = PROC) -> dict[int, int]:
    """Every running process and the one that started it; none where there is no ``/proc``."""
    found: dict[int, int] = {}
    for folder in proc.iterdir() if proc.is_dir() else ():
        if folder.name.isdigit() and (fields := stat_fields(int(folder.name), proc)):
            found[int(folder.name)] = int(fields[1])
    return found


def tree(root_pid: int, parents: dict[int, int]) -> set[int]:
    """``root_pid``, where it runs, and all below it."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, todo = set(), [root_pid] if root_pid in parents else []
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found
