"""CPU energy estimated from utilisation, where no counter can be read.

``E = static_w * t + core_w * CPU seconds``: the static power of the cores this process may run on,
and the rest of a core's power limit for each second that the server kept one busy. Both are those
of the device table's ``cpu`` entry, so this is an estimate and says so.
"""

from __future__ import annotations

from collections.abc import Callable

from green_core.clock import SteadyClock
from green_core.energy.devices import available_cores, device_model
from green_core.energy.processes import ServerTime
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter, MeterReading

METHOD = "estimated:cpu-utilisation"
PERIOD_S = 0.5  # CPU time is counted in ticks of 10 ms


def cpu_meters(
    engine: EngineInfo,
    *,
    now_s: Callable[[], float] | None = None,
    times: ServerTime | None = None,
    cores: int | None = None,
) -> list[Meter]:
    """One meter of the host CPU's energy for this engine's part of its server.

    ``cores`` is how many cores the static power counts for, by default those this process may
    run on. Raises ``MeterUnavailable`` where there is no ``/proc``.
    """
    clock_s = now_s or SteadyClock().now
    server = times or ServerTime()
    cores = cores or available_cores()
    model = device_model("cpu", cores=cores)
    core_w = (model.max_w - model.static_w) / cores
    try:
        last_used_s = server.read().ours_s
    except OSError as error:
        raise MeterUnavailable(
            f"CPU time cannot be read: {error}. Mount /proc, or set energy.meter to another meter "
            'or to "model"'
        ) from error
    last_s, energy_j = clock_s(), 0.0

    def read() -> MeterReading | None:
        nonlocal last_s, last_used_s, energy_j
        at_s = clock_s()
        if at_s - last_s >= PERIOD_S:
            try:
                used_s = server.read().ours_s
            except OSError:
                return None
            energy_j += model.static_w * (at_s - last_s) / server.engine_count
            energy_j += core_w * (used_s - last_used_s)
            last_s, last_used_s = at_s, used_s
        return MeterReading(last_s, energy_j)

    return [Meter("cpu", METHOD, PERIOD_S, read, lambda: None)]
