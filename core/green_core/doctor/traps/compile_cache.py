"""The model is compiled anew at each start."""

from __future__ import annotations

from green_core.doctor.estimates import finding, idle_w
from green_core.doctor.facts import Finding, NotChecked, Status
from green_core.doctor.remedies import remedy
from green_core.doctor.traps.repeated_loading import one_after_another

TRAP = "compile_cache"
# Reading what was compiled before takes seconds; compiling takes longer than this.
LONG_S = 20.0
MIN_STARTS = 2


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Look whether the cache is on, and whether starts after the first still compiled long."""
    engine = status.engine
    if engine.compiles is None:
        return NotChecked(TRAP, "the engine does not say whether it compiles")
    if not engine.compiles:
        return None
    times = [s.compile_s for s in one_after_another(status) if s.compile_s is not None]
    long = [spent_s for spent_s in times if spent_s >= LONG_S]
    is_off = engine.compile_cache is False
    if not is_off and len(long) < MIN_STARTS:
        if engine.compile_cache is None and not times:
            return NotChecked(TRAP, "neither the cache's state nor compile times are known")
        return None
    wasted_s = sum(long) - max(long, default=0.0)  # one start has to compile
    power_w = idle_w(status)
    told = bool(wasted_s) and power_w is not None
    where = f" (cache folder: {engine.compile_cache_dir})" if engine.compile_cache_dir else ""
    state = "the compile cache is off" if is_off else f"the compile cache is on{where}"
    return finding(
        status,
        trap=TRAP,
        title="compiled code is not kept"
        if is_off
        else "compiled code is kept and not found again",
        evidence=f"{state}; {len(long)} of {len(times)} start(s) of a day compiled for "
        f"{LONG_S:.0f} s or more, {sum(long):.0f} s in all",
        remedy=remedy("cache-disabled" if is_off else "cache-lost", engine.info.engine),
        estimate="compiling of all starts but one, at the power of the idle engine; at least, "
        "since compiling takes more than idling"
        if told
        else "cannot be told yet: it is paid at the next start"
        if not wasted_s
        else "cannot be told: idle power unknown",
        energy_j_per_day=wasted_s * power_w if wasted_s and power_w is not None else None,
    )
