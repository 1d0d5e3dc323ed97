"""Frozen value objects: what hooks are given and what they answer. Units stand in the names.

Times are seconds. ``*_s`` on an instant is seconds since the Unix epoch (UTC), read from the
process's steady clock, which never steps back; on a span it is a length. Energy is in joules at
the device ("IT energy", before PUE). Carbon intensity is in gCO2e/kWh.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Literal, TypeAlias

import msgspec

JOULES_PER_KWH = 3.6e6

SignalKind: TypeAlias = Literal["average", "marginal"]
Urgency: TypeAlias = Literal["interactive", "standard", "flex"]
URGENCIES: tuple[Urgency, ...] = ("interactive", "standard", "flex")


class GridState(Enum):
    """The grid against the two configured thresholds."""

    CLEAN = "clean"
    MEDIUM = "medium"
    DIRTY = "dirty"


class ForecastPoint(msgspec.Struct, frozen=True):
    """Intensity expected from ``start_s`` until the next point's start (or the view's horizon)."""

    start_s: float
    intensity_g_per_kwh: float


class GridView(msgspec.Struct, frozen=True):
    """The carbon signal as a policy sees it: an in-memory snapshot, never a request.

    ``kind`` is part of the value: average and marginal intensities rank regions in opposite
    order and are never mixed. ``forecast`` is ordered by time and may be empty.
    """

    intensity_g_per_kwh: float
    kind: SignalKind
    zone: str
    observed_at_s: float
    valid_until_s: float
    source: str
    is_estimate: bool
    state: GridState
    forecast: tuple[ForecastPoint, ...] = ()
    forecast_end_s: float = 0.0


# --- batching -----------------------------------------------------------------------------


class StepShare(msgspec.Struct, frozen=True, gc=False):
    """One request's part in one engine step. Tokens are those computed in this step.

    ``context_tokens`` is the length attended to, this step's tokens included.
    """

    request_id: str
    prefill_tokens: int
    decode_tokens: int
    context_tokens: int


class StepView(msgspec.Struct, frozen=True):
    """One finished engine step. ``start_s``..``end_s`` never overlaps another step's span.

    ``energy_j`` is the estimate known when the step ended (0.0 until priced).
    """

    start_s: float
    end_s: float
    shares: tuple[StepShare, ...]
    energy_j: float = 0.0

    @property
    def duration_s(self) -> float:
        """Length of the step."""
        return self.end_s - self.start_s


class QueueView(msgspec.Struct, frozen=True):
    """The scheduler's queues just before a step.

    ``engine_max_running`` and ``engine_max_tokens`` are the engine's own limits: a plan can only
    lower them. ``last_step`` holds committed facts only (no run-ahead placeholders).
    """

    now_s: float
    running: int
    waiting: int
    held: int
    engine_max_running: int
    engine_max_tokens: int
    kv_usage: float
    preemptions: int
    last_step: StepView | None


class BatchPlan(msgspec.Struct, frozen=True):
    """Limits for the next step; ``None`` leaves the engine's own. Running requests are kept."""

    max_running: int | None = None
    max_tokens: int | None = None
    reason: str = ""


# --- admission ----------------------------------------------------------------------------


class RequestView(msgspec.Struct, frozen=True):
    """A request that asks to be scheduled. ``deadline_s`` is when its answer must be complete.

    ``estimated_run_s`` is the time it is expected to need once running (0.0 when unknown).
    """

    request_id: str
    tenant: str
    urgency: Urgency
    now_s: float
    arrival_s: float
    deadline_s: float | None
    prompt_tokens: int
    max_tokens: int
    estimated_run_s: float
    running: int = 0
    waiting: int = 0
    held: int = 0


class Admit(msgspec.Struct, frozen=True, tag=True):
    """Schedule it now."""

    reason: str = ""


class Hold(msgspec.Struct, frozen=True, tag=True):
    """Keep it aside until ``until_s``, then ask again. It takes no slot and no CPU."""

    until_s: float
    reason: str = ""


class Refuse(msgspec.Struct, frozen=True, tag=True):
    """Answer "come back later". Only a front door that can still answer 503 may honour it."""

    retry_after_s: float
    reason: str = ""


Admission: TypeAlias = Admit | Hold | Refuse


# --- cache, KV, exit, power ------------------------------------------------------------------


class PoolView(msgspec.Struct, frozen=True):
    """The KV pool, in blocks."""

    now_s: float
    total_blocks: int
    free_blocks: int
    cached_blocks: int
    active_blocks: int


class CacheQuota(msgspec.Struct, frozen=True):
    """Share of the pool that may hold reusable (not running) KV, 0..1."""

    ratio: float
    reason: str = ""


class CacheEntry(msgspec.Struct, frozen=True):
    """A cached block or tree leaf that has become evictable."""

    size_tokens: int
    depth_tokens: int
    last_used_s: float
    hits: int
    request_class: str
    tenant: str
    recompute_j: float
    tier: str = "device"


class KVPlan(msgspec.Struct, frozen=True):
    """What to keep of one request's KV; both ``None`` keeps everything."""

    sink_tokens: int | None = None
    window_tokens: int | None = None
    reason: str = ""


class Progress(msgspec.Struct, frozen=True):
    """Committed output of one request; ``logprobs`` of the newest tokens, oldest first."""

    request_id: str
    output_tokens: int
    min_tokens: int
    max_tokens: int
    temperature: float
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class ExitReason(msgspec.Struct, frozen=True):
    """Stop here; ``stop_reason`` is what the client sees."""

    stop_reason: str


class LoadView(msgspec.Struct, frozen=True):
    """Device load over the last control period."""

    now_s: float
    power_w: float
    utilisation: float
    itl_s: float
    ttft_s: float


class PowerTarget(msgspec.Struct, frozen=True):
    """Clock or power limits to apply; ``None`` restores the operator's own."""

    clock_mhz: int | None = None
    power_limit_w: float | None = None
    reason: str = ""


# --- accounting ---------------------------------------------------------------------------


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


class RequestRecord(msgspec.Struct, frozen=True):
    """One finished request as the ledger, ``usage.green``, traces and observers see it.

    ``energy_j`` is IT energy and equals ``prefill_j + decode_j`` and ``parts.it_j``.
    ``carbon_g`` = operational + embodied. ``intensity_g_per_kwh`` is weighted by the energy of
    each step at that step's time. ``settled`` is true once the meter has passed the last step.
    ``avoided_j`` is the estimated prefill energy that cached tokens saved; it is not in any sum.
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
    """A cumulative energy counter at an instant. ``at_s`` is the steady clock's epoch time."""

    at_s: float
    energy_j: float


class Meter(msgspec.Struct, frozen=True):
    """What is needed to use a meter: ``read`` answers ``None`` for a gap and never raises.

    ``period_s`` is how often the counter itself moves; ``method`` is written on every value
    (for example ``measured:nvml-counter``).
    """

    name: str
    method: str
    period_s: float
    read: Callable[[], MeterReading | None]
    close: Callable[[], None]


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


BatchPolicy: TypeAlias = Callable[[QueueView, GridView], BatchPlan]
AdmissionPolicy: TypeAlias = Callable[[RequestView, GridView], Admission]
CachePolicy: TypeAlias = Callable[[PoolView, GridView], CacheQuota]
EvictionKey: TypeAlias = Callable[[CacheEntry], float]
KVPolicy: TypeAlias = Callable[[RequestView, PoolView, GridView], KVPlan]
ExitPolicy: TypeAlias = Callable[[Progress], ExitReason | None]
PowerPolicy: TypeAlias = Callable[[LoadView, GridView], PowerTarget]
