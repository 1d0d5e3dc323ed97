"""Energy constants per device model: ``E = static_w * t + flop_j * FLOPs + byte_j * bytes``.

Only devices with published figures are listed (:mod:`green_core.energy.figures`). Where no
measurement of served tokens was at hand, the constants are carried over from the H100's fit (see
``_carried_over``) and ``is_measured`` is false. A device that is not listed gets generic constants
whose method string says so: it is never taken for a similar one. Overrides in the ``[energy]``
table win over everything here.
"""

from __future__ import annotations

import os
from functools import cache

import msgspec

from green_core.config import EnergyConfig
from green_core.energy.figures import Figure, figure, figures, listed

METHOD_MODEL = "estimated:model"
METHOD_UNKNOWN_DEVICE = "estimated:model(unknown device)"


class DeviceModel(msgspec.Struct, frozen=True):
    """Energy constants of one device, in joules, watts and bytes.

    ``static_w`` is drawn whether or not it works (a loaded engine included), ``flop_j`` and
    ``byte_j`` are the marginal cost of one useful FLOP and of one byte moved from memory.
    ``max_w`` is the board's or package's power limit. ``is_measured`` is true where the
    constants were fitted to measured energy; ``uncertainty_ratio`` is then the largest relative
    error of that fit (``None``: nobody knows). ``embodied_g`` is what making the device emitted,
    in gCO2e (``None``: not published).
    """

    name: str
    static_w: float
    flop_j: float
    byte_j: float
    max_w: float
    source: str
    year: int
    is_measured: bool
    method: str = METHOD_MODEL
    embodied_g: float | None = None
    uncertainty_ratio: float | None = None


# The fit: ML.ENERGY benchmark v3 (2025), Llama 3.1 8B in bfloat16 on one H100 SXM, chat, batch 8
# to 512: 0.455 down to 0.070 J per output token. static_w is held at 120 W (71.8 W idle plus a CUDA
# context: 121.7 W measured) and flop_j at 1.4 pJ, since the three are almost collinear in the data
# and a free fit puts a compute-bound prefill above the board's 700 W (which at peak rate is 0.7
# pJ/FLOP, but prefill reaches about 400 TFLOP/s). byte_j is then the least-squares value. Error per
# point: 11 % at most, 7 % on average. The data do not give prompt lengths; 250 tokens are assumed
# (22 % at most, 16 % on average with 100 tokens).
_FITTED = "NVIDIA H100 80GB HBM3"
_CARRIED = ("power_limit_w", "peak_flops", "memory_bytes_per_s")

# One core of a server CPU: 32 float32 FLOP per cycle (two 256-bit FMA units) at base clock. A third
# of the package power is taken as static; the rest is spent at peak rate. DRAM: 18 pJ/bit, the
# middle of the 15-20 pJ/bit that DDR4 takes with its interface.
_CPU = "AMD EPYC 7763"
_CPU_FLOP_PER_CYCLE = 32
_CPU_STATIC_SHARE = 1 / 3
_DRAM_J_PER_BYTE = 18e-12 * 8

# An accelerator nobody has described: round numbers of a data-centre GPU's order of magnitude.
_UNKNOWN = DeviceModel(
    name="unknown",
    static_w=75.0,
    flop_j=2e-12,
    byte_j=2e-10,
    max_w=1000.0,
    source="generic order of magnitude",
    year=2025,
    is_measured=False,
    method=METHOD_UNKNOWN_DEVICE,
)


@cache
def known_devices() -> tuple[DeviceModel, ...]:
    """Every device with energy constants; the ``cpu`` entry is that of one core."""
    models = (_fitted(name) or _carried_over(name) for name in listed())
    return (*(model for model in models if model is not None), _cpu_core())


def device_model(
    name: str, config: EnergyConfig | None = None, *, cores: int | None = None
) -> DeviceModel:
    """Constants for a device by the name its driver reports (``NVIDIA H100 80GB HBM3``, ``cpu``).

    ``cores`` scales the CPU entry's static power and limit; by default the cores this process
    may run on. ``config`` overrides single constants; with all three overridden an unknown
    device is no longer called unknown.
    """
    if name.strip().lower() == "cpu":
        count, core = cores or available_cores(), _cpu_core()
        found = msgspec.structs.replace(
            core, static_w=core.static_w * count, max_w=core.max_w * count
        )
    else:
        found = (
            _fitted(name)
            or _carried_over(name)
            or msgspec.structs.replace(_UNKNOWN, name=name.strip() or "unknown")
        )
    return _override(found, config) if config else found


def available_cores() -> int:
    """Cores this process may run on; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _fitted(name: str) -> DeviceModel | None:
    """The device's own constants, where the table has them."""
    static, flop, byte = (figure(name, each) for each in ("static_w", "flop_j", "byte_j"))
    limit = figure(name, "power_limit_w")
    if static is None or flop is None or byte is None or limit is None:
        return None
    return DeviceModel(
        name=static.device,
        static_w=static.value,
        flop_j=flop.value,
        byte_j=byte.value,
        max_w=limit.value,
        source=byte.source,
        year=byte.year,
        is_measured=True,
        embodied_g=_value(figure(name, "embodied_g")),
        uncertainty_ratio=_value(figure(name, "model_error_ratio")),
    )


def _carried_over(name: str) -> DeviceModel | None:
    """Carry the H100's fit over by datasheet ratios; ``None`` where one of them is unknown.

    At full rate every device spends its power limit, so the cost of a FLOP is taken to scale
    with watts per peak (dense bfloat16) FLOP/s and that of a byte with watts per byte/s. The
    static power is the measured one of an idle device with a CUDA context, where there is such a
    figure; otherwise it scales with the limit.
    """
    fitted = _fitted(_FITTED)
    mine = [figure(name, each) for each in _CARRIED]
    theirs = [figure(_FITTED, each) for each in _CARRIED]
    (limit, peak, bandwidth), (limit_h, peak_h, bandwidth_h) = mine, theirs
    if fitted is None or not (limit and peak and bandwidth and limit_h and peak_h and bandwidth_h):
        return None
    watts = limit.value / limit_h.value
    idle = figure(name, "idle_context_w")
    return DeviceModel(
        name=limit.device,
        static_w=idle.value if idle else fitted.static_w * watts,
        flop_j=fitted.flop_j * watts * peak_h.value / peak.value,
        byte_j=fitted.byte_j * watts * bandwidth_h.value / bandwidth.value,
        max_w=limit.value,
        source=f"{peak.source}, scaled from the H100 fit",
        year=peak.year,
        is_measured=False,
        embodied_g=_value(figure(name, "embodied_g")),
    )


@cache
def _cpu_core() -> DeviceModel:
    known = {each.quantity: each for each in figures(_CPU)}
    limit = known["power_limit_w"]
    watts = limit.value / known["cores"].value
    return DeviceModel(
        name="cpu",
        static_w=watts * _CPU_STATIC_SHARE,
        flop_j=watts
        * (1 - _CPU_STATIC_SHARE)
        / (_CPU_FLOP_PER_CYCLE * known["base_clock_hz"].value),
        byte_j=_DRAM_J_PER_BYTE,
        max_w=watts,
        source=f"{limit.source}, per core; DDR4 at 18 pJ/bit",
        year=limit.year,
        is_measured=False,
    )


def _value(found: Figure | None) -> float | None:
    return None if found is None else found.value


def _override(device: DeviceModel, config: EnergyConfig) -> DeviceModel:
    given = {
        key: value
        for key in ("static_w", "flop_j", "byte_j")
        if (value := getattr(config, key)) is not None
    }
    if not given:
        return device
    return msgspec.structs.replace(
        device,
        **given,
        method=METHOD_MODEL if len(given) == 3 else device.method,
        source=f"config ({', '.join(given)}); {device.source}",
        is_measured=False,
        uncertainty_ratio=None,
    )
