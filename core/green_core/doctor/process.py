"""Facts of a process, from ``/proc`` (proc(5))."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from green_core.doctor.facts import ProcessFacts
from green_core.doctor.host import cpu_list
from green_core.procfs import stat_fields

_PREFIXES = ("OMP_", "KMP_", "GOMP_")
_NAMES = frozenset(
    {
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "SGLANG_CPU_OMP_THREADS_BIND",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_CPU_NUM_OF_RESERVED_CPU",
        "VLLM_CPU_OMP_THREADS_BIND",
        "VLLM_DISABLE_COMPILE_CACHE",
    }
)
_VALUE_MAX_CHARS = 400  # a list of CPUs on a large host; nothing longer is ours


def process_facts(
    role: str,
    pid: int | None = None,
    *,
    root: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
) -> ProcessFacts:
    """Facts of the process ``pid``, by default this one.

    ``environment`` replaces the variables that ``/proc`` shows, which are those at the start of
    the process; for this process the present ones are taken. Only variables on the list above
    ever leave it. Raises ``ProcessLookupError`` when there is no such process, or no ``/proc``.
    """
    number = os.getpid() if pid is None else pid
    folder = root / "proc" / str(number)
    try:
        fields = stat_fields(number, root / "proc")
        user, system, threads, started = (int(fields[i]) for i in (11, 12, 17, 19))
    except (ValueError, IndexError) as error:
        raise ProcessLookupError(f"{folder}/stat cannot be read: no such process") from error
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    if environment is None:
        environment = os.environ if pid is None else _environment(folder)
    return ProcessFacts(
        role=role,
        pid=number,
        started_s=_boot_s(root) + started / ticks_per_s,
        at_s=time.time(),
        cpu_s=(user + system) / ticks_per_s,
        threads=threads,
        cpus=_cpus(folder),
        environment=_allowed(environment),
    )


def _cpus(folder: Path) -> tuple[int, ...]:
    try:
        text = (folder / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    lists = (line.partition(":")[2] for line in text.splitlines() if "Cpus_allowed_list" in line)
    return cpu_list(next(lists, ""))


def _boot_s(root: Path) -> float:
    """Epoch seconds of the boot, to the second; 0.0 when unknown."""
    try:
        lines = (root / "proc/stat").read_text(encoding="ascii", errors="replace").splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("btime ")))
    except (OSError, ValueError, StopIteration):
        return 0.0


def _environment(folder: Path) -> dict[str, str]:
    try:
        content = (folder / "environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in content.split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs}


def _allowed(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value[:_VALUE_MAX_CHARS]
        for name, value in sorted(environment.items())
        if name in _NAMES or name.startswith(_PREFIXES)
    }
