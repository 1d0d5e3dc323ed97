"""The processes of one server, told by who started whom."""

from __future__ import annotations

import contextlib
from pathlib import Path

from green_core.doctor.facts import ProcessFacts
from green_core.doctor.process import process_facts


def descendants(root_pid: int) -> list[int]:
    """``root_pid`` and every running process below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name in parentheses may itself hold spaces and parentheses.
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root_pid]
    for pid in found:
        found += children.get(pid, [])
    return found


def process_tree(root_pid: int) -> list[ProcessFacts]:
    """Facts on each of them, by the name it gives itself; one that ends meanwhile is left out."""
    facts = []
    for pid in descendants(root_pid):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if (found := process_facts(name, pid)) is not None:
                facts.append(found)
    return facts
