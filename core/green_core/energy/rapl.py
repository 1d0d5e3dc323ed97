"""The host CPU's energy by RAPL, and this server's part of it by CPU time.

A package's counter counts every process on it. The energy between two readings goes to this
server in proportion to its part of the time in which the package's CPUs were busy; all of it when
none was. The rest is kept apart as that of others (FIELD E8, E10).

RAPL follows measured power in its trend, with an offset that differs between machines; on server
parts since Haswell it is itself a measurement (Desrochers, Paradis and Weaver, "A Validation of
DRAM RAPL Power Measurements", MEMSYS 2016). They state no relative error of a total that would
hold for a server at hand, so none is given.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from green_core.clock import SteadyClock
from green_core.energy.powercap import CPUS, POWERCAP, Zone, cpus_of, zones_of
from green_core.energy.processes import ServerTime
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter, MeterReading

METHOD = "measured:rapl(cpu-time share)"
PERIOD_S = 0.5  # RAPL moves every millisecond, but CPU time is counted in ticks of 10 ms
# Twice what the largest packages are built for. A counter that was not looked at for longer than
# it takes to run through its range at that rate may have begun again unseen.
MAX_ZONE_W = 1000.0
# Without a known range a counter that fell is a gap; one that did not is believed this long, which
# is half of what 32 bits of 15.3 microjoules last at 1000 W.
UNKNOWN_RANGE_S = 30.0

logger = logging.getLogger("greenserve")


class ZoneCounter:
    """The energy of one zone between readings; whatever cannot be vouched for is ``None``."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self._range_uj = zone.range_uj()
        self._last: tuple[float, int] | None = None

    def take_j(self, at_s: float) -> float | None:
        """Joules since the last call, never negative; ``None`` for a gap (FIELD E1)."""
        try:
            value_uj = self.zone.read_uj()
        except (OSError, ValueError):
            self._last = None
            return None
        last, self._last = self._last, (at_s, value_uj)
        if last is None or at_s - last[0] > self._lasts_s():
            return None
        moved_uj = value_uj - last[1]
        if moved_uj < 0:
            if self._range_uj is None:
                return None
            moved_uj += self._range_uj
        return moved_uj * 1e-6 if moved_uj >= 0 else None

    def _lasts_s(self) -> float:
        if self._range_uj is None:
            return UNKNOWN_RANGE_S
        return self._range_uj * 1e-6 / MAX_ZONE_W


class RaplReader:
    """This server's part of some zones' energy, as a counter that starts at zero."""

    def __init__(self, zones: list[Zone], *, times: ServerTime, now_s: Callable[[], float]) -> None:
        self._counters = [ZoneCounter(zone) for zone in zones]
        self._times = times
        self._now_s = now_s
        self._ours_j = self._rest_j = 0.0
        self._lost = False  # joules that were taken and belong to nobody known
        at_s = now_s()
        for counter in self._counters:
            counter.take_j(at_s)
        self._used = times.read()
        self._last = MeterReading(at_s, 0.0)

    def read(self) -> MeterReading | None:
        """The counter; the same reading again until ``PERIOD_S`` has passed."""
        at_s = self._now_s()
        if at_s - self._last.at_s < PERIOD_S:
            return self._last
        moved_j = [counter.take_j(at_s) for counter in self._counters]
        try:
            used = self._times.read()
        except OSError:
            self._lost = True
            return None
        ours_s, busy_s = used.ours_s - self._used.ours_s, used.busy_s - self._used.busy_s
        self._used = used
        known_j = [each for each in moved_j if each is not None]
        if len(known_j) == len(moved_j):
            share = 1.0 / self._times.engine_count if busy_s <= 0.0 else min(1.0, ours_s / busy_s)
            self._ours_j += share * sum(known_j)
            self._rest_j += (1.0 - share) * sum(known_j)
        restarts = self._lost or len(known_j) < len(moved_j)
        self._lost = False
        self._last = MeterReading(at_s, self._ours_j, restarts=restarts)
        return self._last

    def rest_j(self) -> float:
        """What the zones gave to others."""
        return self._rest_j


def rapl_meters(
    engine: EngineInfo,
    *,
    now_s: Callable[[], float] | None = None,
    powercap: Path = POWERCAP,
    tree: Path = CPUS,
    cpus: Collection[int] | None = None,
    times: Callable[[Collection[int] | None], ServerTime] = lambda cpus: ServerTime(cpus=cpus),
) -> list[Meter]:
    """One meter over the packages and DRAM of the CPUs that this process may use.

    ``cpus`` are those CPUs, ``times`` makes the reader of CPU time for the CPUs of the packages.
    A zone that this user may not read is left out, which the log and the meter's name say.
    Raises ``MeterUnavailable`` when none can be read (FIELD E2, E6).
    """
    allowed = os.sched_getaffinity(0) if cpus is None else cpus
    zones = zones_of(allowed, powercap=powercap, tree=tree)
    if not zones:
        raise MeterUnavailable(
            f"No RAPL counter is listed in {powercap} for the CPUs of this process. Load the "
            "module intel_rapl_msr (it serves AMD too). Virtual machines have no such counter, and "
            "containers need the folder mounted (docs/host-meters.md). Or set energy.meter to "
            '"model" or "cpu"'
        )
    readable, problems = _readable(zones)
    if not readable:
        raise MeterUnavailable(
            f"{zones[0].file} cannot be read ({problems[zones[0].name]}). Let this user read it: "
            f"chmod o+r {powercap}/*/energy_uj at each boot, by a udev rule or as "
            'docs/host-meters.md says; or set energy.meter = "model" or "cpu"'
        )
    for name, problem in problems.items():
        logger.warning("greenserve: RAPL does not count %s: %s", name, problem)
    packages = {zone.package for zone in readable if zone.package is not None}
    try:
        reader = RaplReader(
            readable,
            times=times(cpus_of(packages, tree) if packages else None),
            now_s=now_s or SteadyClock().now,
        )
    except OSError as error:
        raise MeterUnavailable(
            f"CPU time cannot be read: {error}. RAPL's joules cannot be told apart by process "
            'without it: mount /proc, or set energy.meter = "model"'
        ) from error
    return [
        Meter(
            name="rapl:" + "+".join(zone.name for zone in readable),
            method=METHOD,
            period_s=PERIOD_S,
            read=reader.read,
            close=lambda: None,
            rest_j=reader.rest_j,
        )
    ]


def _readable(zones: list[Zone]) -> tuple[list[Zone], dict[str, str]]:
    """The zones that can be read, and why the others cannot."""
    readable, problems = [], {}
    for zone in zones:
        try:
            zone.read_uj()
        except (OSError, ValueError) as error:
            problems[zone.name] = getattr(error, "strerror", None) or str(error)
        else:
            readable.append(zone)
    return readable, problems
