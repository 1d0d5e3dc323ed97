"""AMD devices through ``amdsmi``: the energy accumulator, or power samples where there is none.

The package is optional (extra ``amd``) and must fit the installed ROCm. Names and units are those
of its releases 6.2 to 7: the accumulator is called ``power`` in 6.2 and ``energy_accumulator``
since, and counts steps of ``counter_resolution`` microjoules. MI300 and later report
``current_socket_power``, earlier ones ``average_socket_power``, in watts.

Of the two dies of an MI250 or MI250X, which are two devices to the driver, only the first one
reports, for both; the second one shows zero and cannot be metered.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from green_core.clock import SteadyClock
from green_core.energy.integral import PowerIntegral
from green_core.energy.session import DriverSession, close_together
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter, MeterReading

METHOD_COUNTER = "measured:amdsmi-counter"
METHOD_POWER = "measured:amdsmi-power"
COUNTER_PERIOD_S = 0.1  # reading it more often brings nothing
# ROCR_VISIBLE_DEVICES cuts the list first; one of the others chooses from what is left.
FIRST, SECOND = "ROCR_VISIBLE_DEVICES", ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_NO_COUNTER, _NO_POWER = (2**64 - 1,), (2**16 - 1, 2**32 - 1)  # all bits set: not supported
_WITHOUT = 'energy.meter = "model" does without a meter'


def amd_meters(engine: EngineInfo, *, now_s: Callable[[], float] | None = None) -> list[Meter]:
    """One meter per visible device, the first ``engine.device_count`` of them.

    A meter's ``name`` is the device's UUID. ``now_s`` is the clock that stamps readings, by
    default one of its own. Raises ``MeterUnavailable`` when a device cannot be metered. The
    meters share the library: it is given back when the last one is closed.
    """
    smi = _import()
    session = DriverSession(
        start=smi.amdsmi_init,
        stop=smi.amdsmi_shut_down,
        find=lambda uuid: _handle(smi, uuid),
        errors=(smi.AmdSmiException, ValueError),
        now_s=now_s or SteadyClock().now,
    )
    try:
        session.open()
        handles = _in_rocm_order(smi)
        uuids = [str(smi.amdsmi_get_gpu_device_uuid(handle)) for handle in handles]
        chosen = _chosen(engine, [_rocm_name(smi, handle) for handle in handles], os.environ)
        readers = [_reader(smi, session, uuids[i]) for i in chosen]
    except (smi.AmdSmiException, ValueError) as error:
        session.close()
        raise _unavailable(error) from error
    except MeterUnavailable:
        session.close()
        raise
    closes = close_together(session.close, len(readers))
    return [
        Meter(
            name=uuids[i],
            method=method,
            period_s=COUNTER_PERIOD_S,
            read=read,
            close=close,
            is_absolute=method == METHOD_COUNTER,
        )
        for i, (method, read), close in zip(chosen, readers, closes, strict=True)
    ]


def _import() -> Any:
    """The package. Without ROCm its import prints to stdout and fails with ``KeyError``."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("amdsmi")
    except ImportError as error:
        raise MeterUnavailable(
            "The Python package amdsmi cannot be imported. Install greenserve[amd] in the release "
            f"that fits the ROCm of this machine; {_WITHOUT}"
        ) from error
    except Exception as error:  # whatever ctypes makes of a library that is missing or too old
        raise MeterUnavailable(
            f"amdsmi finds no usable libamd_smi.so ({type(error).__name__}: {error}). Install "
            "ROCm's amd-smi-lib, give the container access to it, or set ROCM_PATH; "
            f"{_WITHOUT}"
        ) from error


def _in_rocm_order(smi: Any) -> list[Any]:
    """All devices, as HIP numbers them where the release tells, else as they are listed."""
    handles = list(smi.amdsmi_get_processor_handles())
    places = [_enumeration(smi, handle).get("hip_id") for handle in handles]
    numbers = [place for place in places if isinstance(place, int)]
    if len(numbers) < len(handles):
        return handles
    return [handles[i] for i in sorted(range(len(handles)), key=numbers.__getitem__)]


def _enumeration(smi: Any, handle: Any) -> Mapping[str, Any]:
    """HIP's number and name for a device; empty before release 6.4."""
    try:
        found: Mapping[str, Any] = smi.amdsmi_get_gpu_enumeration_info(handle)
    except (AttributeError, smi.AmdSmiException):
        return {}
    return found


def _rocm_name(smi: Any, handle: Any) -> str:
    """``GPU-`` and the serial number in hexadecimal, as the visible-devices variables use it."""
    name = str(_enumeration(smi, handle).get("hip_uuid") or "")
    if name.upper().startswith("GPU-"):
        return name
    try:
        serial = str(smi.amdsmi_get_gpu_asic_info(handle)["asic_serial"])
        return f"GPU-{int(serial, 16):016x}"
    except (smi.AmdSmiException, KeyError, ValueError):
        return "GPU-unknown"


def _chosen(engine: EngineInfo, names: Sequence[str], env: Mapping[str, str]) -> list[int]:
    """Indices of the devices that the engine uses (FIELD E10)."""
    left = _listed(env.get(FIRST), names)
    variable = next((each for each in SECOND if each in env), SECOND[0])
    picked = _listed(env.get(variable), [names[i] for i in left])
    count = max(1, engine.device_count)
    if len(picked) < count:
        raise MeterUnavailable(
            f"The engine uses {engine.device_count} device(s), but {FIRST}={env.get(FIRST)!r} and "
            f"{variable}={env.get(variable)!r} show {len(picked)} of the {len(names)} that amdsmi "
            "lists. Check those variables"
        )
    return [left[i] for i in picked[:count]]


def _listed(value: str | None, names: Sequence[str]) -> list[int]:
    """Indices into ``names`` that a variable shows; the first entry that names nothing ends it."""
    if value is None:
        return list(range(len(names)))
    found: list[int] = []
    lowered = [name.lower() for name in names]
    for entry in (part.strip().lower() for part in value.split(",")):
        if entry.isascii() and entry.isdigit() and int(entry) < len(names):
            index = int(entry)
        elif lowered.count(entry) == 1:
            index = lowered.index(entry)
        else:
            break
        if index in found:
            break
        found.append(index)
    return found


def _handle(smi: Any, uuid: str) -> Any:
    for handle in smi.amdsmi_get_processor_handles():
        if str(smi.amdsmi_get_gpu_device_uuid(handle)) == uuid:
            return handle
    raise ValueError(f"the device {uuid} is no longer listed")


def _reader(
    smi: Any, session: DriverSession, uuid: str
) -> tuple[str, Callable[[], MeterReading | None]]:
    """The best that this device can do, probed query by query (FIELD E3)."""
    problem: Exception | None = None
    for method, query, make in (
        (METHOD_COUNTER, partial(_energy_j, smi), _counter),
        (METHOD_POWER, partial(_power_w, smi), _power),
    ):
        for _ in range(2):
            try:
                value = query(_handle(smi, uuid))
            except (smi.AmdSmiException, ValueError) as error:
                problem = error
                continue
            if value > 0.0:
                return method, make(session, uuid, query)
            problem = ValueError("it shows zero, as the second die of a module does")
            break
    raise MeterUnavailable(
        f"The device {uuid} reports neither energy nor power: {_words(problem)}. {_WITHOUT}"
    )


def _energy_j(smi: Any, handle: Any) -> float:
    answer = smi.amdsmi_get_energy_count(handle)
    counter = answer.get("energy_accumulator", answer.get("power"))
    step_uj = _number(answer.get("counter_resolution"))
    return _number(counter, _NO_COUNTER) * step_uj * 1e-6


def _power_w(smi: Any, handle: Any) -> float:
    answer = smi.amdsmi_get_power_info(handle)
    for key in ("current_socket_power", "average_socket_power"):
        with contextlib.suppress(ValueError):
            return _number(answer.get(key), _NO_POWER)
    raise ValueError("no socket power")


def _number(value: Any, absent: tuple[int, ...] = ()) -> float:
    """A reading; ``ValueError`` for what stands for none (``N/A``, or one of ``absent``)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value in absent:
        raise ValueError(f"{value!r} is no reading")
    return float(value)


def _counter(
    session: DriverSession, uuid: str, energy_j: Callable[[Any], float]
) -> Callable[[], MeterReading | None]:
    def read() -> MeterReading | None:
        joules = session.query(uuid, energy_j)
        return None if joules is None else MeterReading(session.now_s(), joules)

    return read


def _power(
    session: DriverSession, uuid: str, power_w: Callable[[Any], float]
) -> Callable[[], MeterReading | None]:
    integral = PowerIntegral()

    def read() -> MeterReading | None:
        watts = session.query(uuid, power_w)
        return None if watts is None else integral.add(session.now_s(), watts)

    return read


def _unavailable(error: Exception) -> MeterUnavailable:
    return MeterUnavailable(
        f"amdsmi cannot be used: {_words(error)}. Load the amdgpu driver, and give the user (and "
        f"the container) access to /dev/kfd and /dev/dri; {_WITHOUT}"
    )


def _words(error: Exception | None) -> str:
    return " ".join(str(error).split())
