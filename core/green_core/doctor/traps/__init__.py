"""The energy traps that ``green doctor`` looks for: pure functions over two looks at a server.

Each module holds one trap: ``find(status, earlier)`` answers a ``Finding``, ``NotChecked`` with the
reason when what is known does not suffice, or ``None`` when it looked and found nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from green_core.doctor.facts import Finding, NotChecked, Status
from green_core.doctor.traps import (
    compile_cache,
    frequency,
    futile_wait,
    idle_spin,
    numa,
    omp_threads,
    padded_batch,
    prefix_cache,
    repeated_loading,
    small_batch,
    wide_numbers,
)

Find: TypeAlias = Callable[[Status, Status | None], Finding | NotChecked | None]
TRAPS: Mapping[str, Find] = {
    module.TRAP: module.find
    for module in (
        prefix_cache,
        wide_numbers,
        padded_batch,
        small_batch,
        futile_wait,
        numa,
        omp_threads,
        frequency,
        repeated_loading,
        compile_cache,
        idle_spin,
    )
}
# Those that only need the machine and its history.
HOST_TRAPS = (frequency.TRAP, repeated_loading.TRAP)


def look(
    status: Status, earlier: Status | None = None, *, names: tuple[str, ...] = tuple(TRAPS)
) -> tuple[tuple[Finding, ...], tuple[NotChecked, ...]]:
    """Look for the traps of these names; what was found, costliest first, and what was not looked
    for.
    """
    answers = [TRAPS[name](status, earlier) for name in names]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    findings.sort(key=lambda found: -(found.energy_j_per_day or 0.0))
    return tuple(findings), tuple(a for a in answers if isinstance(a, NotChecked))
