"""Energy constants per device model: ``E = static_w * t + flop_j * FLOPs + byte_j * bytes``.

Only devices with a source are listed. Where no measurement of served tokens was at hand, the
constants are carried over from the H100's fit (see ``_from_datasheet``) and ``is_measured`` is
false. A device that is not listed gets generic constants whose method string says so: it is
never taken for a similar one. Overrides in the ``[energy]`` table win over everything here.
"""

from __future__ import annotations

import os

import msgspec

from green_core.config import EnergyConfig

METHOD_MODEL = "estimated:model"
METHOD_UNKNOWN_DEVICE = "estimated:model(unknown device)"


class DeviceModel(msgspec.Struct, frozen=True):
    """Energy constants of one device, in joules, watts and bytes.

    ``static_w`` is drawn whether or not it works (a loaded engine included), ``flop_j`` and
    ``byte_j`` are the marginal cost of one useful FLOP and of one byte moved from memory.
    ``max_w`` is the board's or package's power limit. ``is_measured`` is true where the
    constants were fitted to measured energy.
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


# Fitted to ML.ENERGY benchmark v3 (2025), Llama 3.1 8B in bfloat16 on one H100 SXM, chat, batch 8
# to 512: 0.455 down to 0.070 J per output token. static_w is held at 120 W (about 70 W idle plus
# a CUDA context) and flop_j at 1.4 pJ, since the three are almost collinear in the data and a free
# fit puts a compute-bound prefill above the board's 700 W (which at peak rate is 0.7 pJ/FLOP, but
# prefill reaches about 400 TFLOP/s). byte_j is then the least-squares value. Error per point: 11 %
# at most, 7 % on average. The data do not give prompt lengths; 250 tokens are assumed (22 % at
# most, 16 % on average with 100 tokens).
_H100_SXM = DeviceModel(
    name="NVIDIA H100 80GB HBM3",
    static_w=120.0,
    flop_j=1.4e-12,
    byte_j=1.83e-10,
    max_w=700.0,
    source="fit to ML.ENERGY benchmark v3, Llama 3.1 8B, batch 8-512",
    year=2025,
    is_measured=True,
)
_H100_PEAK_FLOPS = 989.5e12  # dense bfloat16, NVIDIA H100 datasheet, 2023
_H100_BYTES_PER_S = 3.35e12


def _from_datasheet(
    name: str, *, max_w: float, peak_tflops: float, gbytes_per_s: float, year: int
) -> DeviceModel:
    """Carry the H100's fit over by datasheet ratios.

    At full rate every device spends its power limit, so the cost of a FLOP is taken to scale
    with watts per peak (dense bfloat16) FLOP/s, that of a byte with watts per byte/s, and the
    static power with the limit.
    """
    watts = max_w / _H100_SXM.max_w
    return DeviceModel(
        name=name,
        static_w=_H100_SXM.static_w * watts,
        flop_j=_H100_SXM.flop_j * watts * _H100_PEAK_FLOPS / (peak_tflops * 1e12),
        byte_j=_H100_SXM.byte_j * watts * _H100_BYTES_PER_S / (gbytes_per_s * 1e9),
        max_w=max_w,
        source=f"NVIDIA {name.removeprefix('NVIDIA ')} datasheet, scaled from the H100 fit",
        year=year,
        is_measured=False,
    )


# Names are those NVML reports; each variant is listed by itself, since SXM and PCIe boards differ.
_GPUS = (
    _H100_SXM,
    _from_datasheet("NVIDIA H100 PCIe", max_w=350, peak_tflops=756, gbytes_per_s=2000, year=2022),
    _from_datasheet("NVIDIA H100 NVL", max_w=400, peak_tflops=835, gbytes_per_s=3900, year=2024),
    _from_datasheet("NVIDIA H200", max_w=700, peak_tflops=989.5, gbytes_per_s=4800, year=2024),
    _from_datasheet(
        "NVIDIA A100-SXM4-80GB", max_w=400, peak_tflops=312, gbytes_per_s=2039, year=2021
    ),
    _from_datasheet(
        "NVIDIA A100-SXM4-40GB", max_w=400, peak_tflops=312, gbytes_per_s=1555, year=2020
    ),
    _from_datasheet(
        "NVIDIA A100 80GB PCIe", max_w=300, peak_tflops=312, gbytes_per_s=1935, year=2021
    ),
    _from_datasheet("NVIDIA L4", max_w=72, peak_tflops=121, gbytes_per_s=300, year=2023),
    _from_datasheet("NVIDIA L40S", max_w=350, peak_tflops=362, gbytes_per_s=864, year=2023),
)
_BY_NAME = {device.name.lower(): device for device in _GPUS}

# One core of a server CPU, from AMD's EPYC 7763 datasheet (2021): 280 W over 64 cores, 32 float32
# FLOP per cycle (two 256-bit FMA units) at 2.45 GHz. A third of the package power is taken as
# static; the rest is spent at peak rate. DRAM: 18 pJ/bit, the middle of the 15-20 pJ/bit that
# DDR4 takes with its interface.
_CPU_TDP_W_PER_CORE = 280.0 / 64
_CPU_STATIC_SHARE = 1 / 3
_CPU_CORE = DeviceModel(
    name="cpu",
    static_w=_CPU_TDP_W_PER_CORE * _CPU_STATIC_SHARE,
    flop_j=_CPU_TDP_W_PER_CORE * (1 - _CPU_STATIC_SHARE) / (32 * 2.45e9),
    byte_j=18e-12 * 8,
    max_w=_CPU_TDP_W_PER_CORE,
    source="AMD EPYC 7763 datasheet, per core; DDR4 at 18 pJ/bit",
    year=2021,
    is_measured=False,
)

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


def known_devices() -> tuple[DeviceModel, ...]:
    """Every device of the table; the ``cpu`` entry is that of one core."""
    return (*_GPUS, _CPU_CORE)


def device_model(
    name: str, config: EnergyConfig | None = None, *, cores: int | None = None
) -> DeviceModel:
    """Constants for a device by the name its driver reports (``NVIDIA H100 80GB HBM3``, ``cpu``).

    ``cores`` scales the CPU entry's static power and limit; by default the cores this process
    may run on. ``config`` overrides single constants; with all three overridden an unknown
    device is no longer called unknown.
    """
    key = name.strip().lower()
    if key == "cpu":
        count = cores or available_cores()
        found = msgspec.structs.replace(
            _CPU_CORE, static_w=_CPU_CORE.static_w * count, max_w=_CPU_CORE.max_w * count
        )
    else:
        found = (
            _BY_NAME.get(key)
            or _BY_NAME.get("nvidia " + key)
            or msgspec.structs.replace(_UNKNOWN, name=name.strip() or "unknown")
        )
    return _override(found, config) if config else found


def available_cores() -> int:
    """Cores this process may run on; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _override(device: DeviceModel, config: EnergyConfig) -> DeviceModel:
    given = {
        key: value
        for key in ("static_w", "flop_j", "byte_j")
        if (value := getattr(config, key)) is not None
    }
    if not given:
        return device
    method = METHOD_MODEL if len(given) == 3 else device.method
    source = f"config ({', '.join(given)}); {device.source}"
    return msgspec.structs.replace(device, **given, method=method, source=source, is_measured=False)
