"""Energy and carbon: meters, what an engine is, and the records that the books are made of."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from green_core.values.grid import Basis, SignalKind
from green_core.values.serving import Urgency

JOULES_PER_KWH = 3.6e6


class EnergyParts(msgspec.Struct, frozen=True):
    """A device energy split by cause; ``cooling_j`` comes on top (facility minus IT).

    ``compute_j`` arithmetic, ``memory_j`` data movement, ``idle_j`` the static power the device
    draws whether or not it works. The first three sum to the IT energy.
    """

    compute_j: float = 0.0
    memory_j: float = 0.0
    idle_j: float = 0.0
    cooling_j: float = 0.0

    @property
    def it_j(self) -> float:
        """Energy at the device."""
        return self.compute_j + self.memory_j + self.idle_j


class EarlyStop(msgspec.Struct, frozen=True):
    """An answer that an exit policy ended (``shadow``: would have ended) before its limit.

    ``saved_tokens`` are those up to the client's own limit, which the answer need not have
    reached, and 0 where the client named none. In shadow they are those that came after all.
    ``saved_j`` is an estimate: as many joules as that many of this request's tokens took.
    """

    policy: str
    reason: str
    saved_tokens: int
    saved_j: float = 0.0
    shadow: bool = False


class RequestFacts(msgspec.Struct, frozen=True):
    """What an adapter knows of a request when it ends. ``wait_s`` is arrival to first scheduled
    (``held_s`` of it was ours); ``cached_tokens`` of the prompt were not recomputed.
    """

    request_id: str
    tenant: str
    urgency: Urgency
    arrival_s: float
    finished_s: float
    wait_s: float
    held_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish_reason: str
    early_stop: EarlyStop | None = None


class RequestRecord(msgspec.Struct, frozen=True):
    """One finished request as the ledger, ``usage.green``, traces and observers see it.

    ``energy_j`` is IT energy and equals ``prefill_j + decode_j`` and ``parts.it_j``.
    ``carbon_g`` = operational + embodied. ``intensity_g_per_kwh`` is weighted by the energy of
    each step at that step's time. ``settled`` is true once the meter has passed the last step.
    ``avoided_j`` is the estimated prefill energy that cached tokens saved; it is not in any sum.
    ``uncertainty_ratio`` is the relative error of the meter's or model's total as published, where
    anybody did; the request's share of it rests on the step model and is less sure.
    """

    request_id: str
    tenant: str
    urgency: Urgency
    arrival_s: float
    finished_s: float
    wait_s: float
    held_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    energy_j: float
    prefill_j: float
    decode_j: float
    parts: EnergyParts
    avoided_j: float
    operational_g: float
    embodied_g: float
    intensity_g_per_kwh: float
    kind: SignalKind
    zone: str
    method: str
    settled: bool
    finish_reason: str
    basis: Basis = "unknown"
    uncertainty_ratio: float | None = None
    early_stop: EarlyStop | None = None

    @property
    def carbon_g(self) -> float:
        """Operational and embodied carbon, gCO2e."""
        return self.operational_g + self.embodied_g


class IntervalRecord(msgspec.Struct, frozen=True):
    """One settled stretch of time: all energy the meter saw, split into requests and idle.

    ``active_j + idle_j`` is the meter's delta over ``start_s``..``end_s``.
    """

    start_s: float
    end_s: float
    active_j: float
    idle_j: float
    intensity_g_per_kwh: float
    operational_g: float
    embodied_g: float
    method: str


class Settled(msgspec.Struct, frozen=True):
    """What one settling brought: requests whose energy is final, and the time it covers."""

    records: tuple[RequestRecord, ...] = ()
    intervals: tuple[IntervalRecord, ...] = ()


class MeterReading(msgspec.Struct, frozen=True):
    """A cumulative energy counter at an instant. ``at_s`` is the steady clock's epoch time.

    ``method`` stands for the meter's where this value came about in another way; such a value is
    news whenever ``at_s`` moved, even with no energy added. With ``restarts`` nobody can vouch for
    the energy since the reading before: a gap, and a new beginning to count from.
    """

    at_s: float
    energy_j: float
    method: str | None = None
    restarts: bool = False


class Meter(msgspec.Struct, frozen=True):
    """What is needed to use a meter: ``read`` answers ``None`` for a gap and never raises.

    ``name`` identifies the device on this machine (a UUID), ``period_s`` is how often the counter
    itself moves; ``method`` is written on every value (for example ``measured:nvml-counter``).
    ``uncertainty_ratio`` is the relative error of its totals as the maker or a published study
    states it; ``None``: nobody does. ``note_work`` is told, before each ``read``, the joules that
    the step model has given to this process's requests so far: where several processes share a
    device, its counter is split by them. ``rest_j`` answers the joules of the same devices that
    belong to others since this meter was opened. ``is_absolute``: ``energy_j`` is the device's own
    counter, the same for every process that reads it, and no sum that began with this process.
    """

    name: str
    method: str
    period_s: float
    read: Callable[[], MeterReading | None]
    close: Callable[[], None]
    uncertainty_ratio: float | None = None
    note_work: Callable[[float], None] | None = None
    rest_j: Callable[[], float] | None = None
    is_absolute: bool = False


class EngineInfo(msgspec.Struct, frozen=True):
    """What an adapter tells the core about the process it runs in.

    Model sizes feed the step model: ``parameters`` that are active per token,
    ``weight_bytes`` read per step, ``kv_bytes_per_token`` over all layers.
    """

    engine: str
    version: str
    model: str
    engine_index: int
    max_running: int
    max_tokens: int
    parameters: float
    weight_bytes: float
    kv_bytes_per_token: float
    hidden_size: int
    num_layers: int
    quantization: str = "none"
    device: str = "unknown"
    device_count: int = 1
