"""Cache, KV, early exit and power: what policies see and answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from green_core.values.grid import GridView
from green_core.values.serving import RequestView, Urgency


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
    """Committed output of one request, outside any reasoning block.

    ``token_ids`` and ``logprobs`` (nats) are those of the newest tokens, oldest first; either may
    be shorter than asked for. ``temperature`` is what the logprobs were not divided by yet: the
    sampling temperature, or 1.0 where the engine gives them as sampled.
    """

    request_id: str
    output_tokens: int
    min_tokens: int
    max_tokens: int
    temperature: float
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


STOP_PREFIX = "green:"


class ExitReason(msgspec.Struct, frozen=True):
    """Stop here; ``stop_reason`` is what the client sees. It begins with :data:`STOP_PREFIX`."""

    stop_reason: str


class ExitNeeds(msgspec.Struct, frozen=True):
    """What an exit policy wants to see; it stands in the policy's attribute ``needs``.

    A request is looked at every ``every_tokens``, and its newest ``window_tokens`` are shown.
    ``logprobs``: theirs too, which the engine then has to compute. ``classes`` may be stopped
    without a mark of their own.
    """

    every_tokens: int = 20
    window_tokens: int = 128
    logprobs: bool = False
    classes: tuple[Urgency, ...] = ()


class LoadView(msgspec.Struct, frozen=True):
    """Device load over the last control period.

    ``power_limit_w`` is the operator's own limit per device; ``None``: nobody knows.
    """

    now_s: float
    power_w: float
    utilisation: float
    itl_s: float
    ttft_s: float
    power_limit_w: float | None = None


class PowerTarget(msgspec.Struct, frozen=True):
    """Clock or power limits to apply to each device; ``None`` restores the operator's own."""

    clock_mhz: int | None = None
    power_limit_w: float | None = None
    reason: str = ""


CachePolicy: TypeAlias = Callable[[PoolView, GridView], CacheQuota]
EvictionKey: TypeAlias = Callable[[CacheEntry], float]
KVPolicy: TypeAlias = Callable[[RequestView, PoolView, GridView], KVPlan]
ExitPolicy: TypeAlias = Callable[[Progress], ExitReason | None]
PowerPolicy: TypeAlias = Callable[[LoadView, GridView], PowerTarget]
