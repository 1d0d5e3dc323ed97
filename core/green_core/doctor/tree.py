"""The processes of one server, told by who started whom."""

from __future__ import annotations

import contextlib
from pathlib import Path

from green_core.doctor.facts import ProcessFacts
from green_core.doctor.process import process_facts
from green_core.procfs import parents, tree


def process_tree(root_pid: int) -> list[ProcessFacts]:
    """Facts on each of them, by the name it gives itself; one that ends meanwhile is left out."""
    facts = []
    for pid in sorted(tree(root_pid, parents())):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
            facts.append(process_facts(name, pid))
    return facts
