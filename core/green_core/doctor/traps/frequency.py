"""CPU frequency: no scaling, or a governor that does not fit the load.

Governors and drivers: kernel documentation, admin-guide/pm/cpufreq, intel_pstate and amd-pstate.
"""

from __future__ import annotations

from green_core.doctor.estimates import busy_ratio, finding, window_s
from green_core.doctor.facts import Finding, NotChecked, Status

TRAP = "frequency"
MIN_SEEN_S = 60.0
BUSY = 0.3
IDLE = 0.2
# Their "powersave" scales with load; with any other driver it means the lowest frequency.
_SCALES_ITSELF = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})
_UNKNOWN_COST = "cannot be told in advance: change it and compare joules per token in the ledger"


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Judge the governors of the CPUs against how busy the engine was."""
    host = status.host
    if not host.governors:
        return _without_cpufreq(status)
    slow = host.governors.get("powersave", 0)
    fast = host.governors.get("performance", 0)
    scales_itself = bool(host.drivers) and set(host.drivers) <= _SCALES_ITSELF
    slow = 0 if scales_itself else slow
    if not slow and not fast:
        return None
    if window_s(status) < MIN_SEEN_S:
        return NotChecked(
            TRAP,
            f"{_counts(host.governors)} fits some loads only, and too little load was seen "
            f"({MIN_SEEN_S:.0f} s are needed)",
        )
    busy = busy_ratio(status)
    shown = f"governors: {_counts(host.governors)}; drivers: {_counts(host.drivers)}"
    if slow and busy >= BUSY:
        return finding(
            status,
            trap=TRAP,
            title="the CPU is held at its lowest frequency under load",
            evidence=f"{shown}; the engine was at work {busy:.0%} of the time",
            remedy="Use schedutil: cpupower frequency-set -g schedutil.",
            estimate=_UNKNOWN_COST,
        )
    if fast and busy < IDLE:
        return finding(
            status,
            trap=TRAP,
            title="the CPU is held at full frequency, and the engine is mostly idle",
            evidence=f"{shown}; the engine was at work {busy:.0%} of the time",
            remedy="Use schedutil (cpupower frequency-set -g schedutil), or powersave with the "
            "drivers intel_pstate and amd-pstate-epp.",
            estimate=_UNKNOWN_COST,
        )
    return None


def _without_cpufreq(status: Status) -> Finding | NotChecked:
    host = status.host
    if host.is_virtual is not False:
        where = "this is a virtual machine" if host.is_virtual else "it may be virtual"
        return NotChecked(TRAP, f"no cpufreq is shown; {where}, so its host decides")
    return finding(
        status,
        trap=TRAP,
        title="the CPU's frequency is not scaled",
        evidence=f"{host.cpus} CPUs of a physical machine, and the kernel shows no cpufreq",
        remedy="Enable P-states (EIST, Cool'n'Quiet, CPPC, or OS control of power) in the "
        "firmware and load the kernel's cpufreq driver.",
        estimate=_UNKNOWN_COST,
    )


def _counts(values: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in values.items()) or "unknown"
