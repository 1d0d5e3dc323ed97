"""float32 where the hardware computes faster in half the width."""

from __future__ import annotations

from green_core.doctor.estimates import finding, per_day, weights_j
from green_core.doctor.facts import Finding, NotChecked, Status
from green_core.doctor.remedies import remedy

TRAP = "fp32"
_WIDE = frozenset({"float32", "fp32", "float"})
# CPU features that multiply bfloat16 in hardware (x86, arm64). AVX2 alone has none: float32 is
# then the faster one.
_CPU_HALF = ("amx_bf16", "avx512_bf16", "svebf16", "bf16")


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Look at the types of weights and KV, and at what the device has for half the width."""
    engine = status.engine
    weights_wide = _is_wide(engine.weights_dtype)
    if not engine.weights_dtype:
        return NotChecked(TRAP, "the engine does not say in which type it holds its weights")
    if not weights_wide and not _is_wide(engine.kv_dtype):
        return None
    device = engine.info.device.strip().lower()
    if device in {"", "unknown"}:
        return NotChecked(TRAP, "it is not known which device the engine runs on")
    hardware = engine.info.device
    if device == "cpu":
        if not status.host.cpu_flags:
            return NotChecked(TRAP, "the CPU's features could not be read")
        feature = next((flag for flag in _CPU_HALF if flag in status.host.cpu_flags), "")
        if not feature:
            return None
        hardware = f"CPU with {feature}"
    quantized = engine.info.quantization not in {"", "none"}
    if weights_wide:
        part, key = ("inputs", "fp32-inputs") if quantized else ("weights", "fp32-weights")
    else:
        part, key = "KV cache", "fp32-kv"
    read_j = weights_j(status) if part == "weights" else None
    return finding(
        status,
        trap=TRAP,
        title=f"float32 {part} on hardware that is faster in bfloat16",
        evidence=f"weights in {engine.weights_dtype}, KV in {engine.kv_dtype or 'an unknown type'}"
        f", quantization {engine.info.quantization}, on {hardware}",
        remedy=remedy(key, engine.info.engine),
        estimate="half of the energy that reading the weights takes, by the device model, at the "
        "load seen; at least, since arithmetic and time are left out"
        if read_j is not None
        else "cannot be told from what is known",
        energy_j_per_day=None if read_j is None else per_day(status, read_j / 2),
    )


def _is_wide(dtype: str) -> bool:
    return dtype.strip().lower().removeprefix("torch.") in _WIDE
