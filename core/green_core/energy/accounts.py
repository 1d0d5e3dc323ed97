"""What is kept per request and per step between a step's end and its settling."""

from __future__ import annotations

import msgspec

from green_core.energy.model import StepCost
from green_core.values import (
    JOULES_PER_KWH,
    EarlyStop,
    EnergyParts,
    GridView,
    RequestFacts,
    RequestRecord,
    StepView,
)


class Tally:
    """A running sum of one request's energy (J) and carbon (g).

    ``energy_j`` is that of the request's steps; it includes their static part, which is
    ``energy_j - compute_j - memory_j``. ``idle_j`` comes on top where idle time is shared.
    """

    __slots__ = (
        "compute_j",
        "embodied_g",
        "energy_j",
        "idle_j",
        "memory_j",
        "operational_g",
        "prefill_j",
    )

    def __init__(self) -> None:
        self.compute_j = 0.0
        self.memory_j = 0.0
        self.energy_j = 0.0
        self.idle_j = 0.0
        self.prefill_j = 0.0
        self.operational_g = 0.0
        self.embodied_g = 0.0


class Account(Tally):
    """One request. The tally itself is the engine thread's estimate; ``settled`` belongs to
    the housekeeping thread, as does ``methods``, the methods its settled energy came by.
    """

    __slots__ = ("methods", "settled")

    def __init__(self) -> None:
        super().__init__()
        self.settled = Tally()
        self.methods: set[str] = set()

    def take_idle(self) -> None:
        """Add what settling shared out to the estimate, where that is final by itself."""
        shared = self.settled
        self.idle_j += shared.idle_j
        self.operational_g += shared.operational_g
        self.embodied_g += shared.embodied_g


class PricedStep:
    """A step on its way from the engine thread to settling.

    ``left`` is the part of its modelled energy that is not settled yet (1.0 to 0.0), which
    lies in ``from_s``..``end_s``; ``settled_j`` is what the settled part really took.
    ``grams_per_j`` prices energy at the step's own time.
    """

    __slots__ = (
        "accounts",
        "cost",
        "decode_tokens",
        "end_s",
        "from_s",
        "grams_per_j",
        "left",
        "methods",
        "prefill_tokens",
        "settled_g",
        "settled_j",
        "shares",
    )

    def __init__(
        self,
        step: StepView,
        accounts: list[Account],
        cost: StepCost,
        *,
        grams_per_j: float,
        prefill_tokens: int,
        decode_tokens: int,
    ) -> None:
        self.from_s = step.start_s
        self.end_s = max(step.start_s, step.end_s)
        self.shares = step.shares
        self.accounts = accounts
        self.cost = cost
        self.grams_per_j = grams_per_j
        self.prefill_tokens = prefill_tokens
        self.decode_tokens = decode_tokens
        self.left = 1.0
        self.settled_j = 0.0
        self.settled_g = 0.0  # embodied
        self.methods: set[str] = set()

    def distribute(self) -> None:
        """Hand the settled energy to the requests by the step model's shares."""
        cost = self.cost
        modelled_j = cost.total_j
        scale = self.settled_j / modelled_j
        embodied = self.settled_g / modelled_j
        per_dynamic = 1.0 + cost.static_per_dynamic
        for share, account, compute_j, memory_j in zip(
            self.shares, self.accounts, cost.compute_j, cost.memory_j, strict=True
        ):
            tally = account.settled
            weight_j = (compute_j + memory_j) * per_dynamic
            energy_j = weight_j * scale
            tally.compute_j += compute_j * scale
            tally.memory_j += memory_j * scale
            tally.energy_j += energy_j
            tally.operational_g += energy_j * self.grams_per_j
            tally.embodied_g += weight_j * embodied
            account.methods |= self.methods
            prefill = share.prefill_tokens
            if prefill:
                tally.prefill_j += energy_j * prefill / (prefill + share.decode_tokens)


def join_methods(methods: set[str], default: str) -> str:
    """One string for a value that came by several methods, measured ones first (FIELD E13)."""
    return "+".join(sorted(methods, reverse=True)) if methods else default


def build_record(
    facts: RequestFacts,
    tally: Tally,
    *,
    scale: float,
    avoided_j: float,
    pue: float,
    grid: GridView,
    method: str,
    uncertainty_ratio: float | None,
    settled: bool,
) -> RequestRecord:
    """Turn a tally into the public record; ``scale`` multiplies its energy.

    ``grid`` says of which kind the grams are; its intensity stands in when there was no energy.
    """
    compute_j, memory_j = tally.compute_j * scale, tally.memory_j * scale
    static_j = max(0.0, tally.energy_j - tally.compute_j - tally.memory_j) * scale
    static_j += tally.idle_j * scale
    energy_j = compute_j + memory_j + static_j
    prefill_share = tally.prefill_j / tally.energy_j if tally.energy_j > 0.0 else 0.0
    prefill_j = energy_j * min(prefill_share, 1.0)
    operational_g = tally.operational_g * scale
    intensity_g_per_kwh = grid.intensity_g_per_kwh
    if energy_j > 0.0:
        intensity_g_per_kwh = operational_g * JOULES_PER_KWH / (energy_j * pue)
    return RequestRecord(
        request_id=facts.request_id,
        tenant=facts.tenant,
        urgency=facts.urgency,
        arrival_s=facts.arrival_s,
        finished_s=facts.finished_s,
        wait_s=facts.wait_s,
        held_s=facts.held_s,
        prompt_tokens=facts.prompt_tokens,
        cached_tokens=facts.cached_tokens,
        output_tokens=facts.output_tokens,
        energy_j=energy_j,
        prefill_j=prefill_j,
        decode_j=energy_j - prefill_j,
        parts=EnergyParts(compute_j, memory_j, static_j, energy_j * (pue - 1.0)),
        avoided_j=avoided_j,
        operational_g=operational_g,
        embodied_g=tally.embodied_g,
        intensity_g_per_kwh=intensity_g_per_kwh,
        kind=grid.kind,
        zone=grid.zone,
        method=method,
        settled=settled,
        finish_reason=facts.finish_reason,
        basis=grid.basis,
        uncertainty_ratio=uncertainty_ratio,
        early_stop=_priced(facts, energy_j - prefill_j),
    )


def _priced(facts: RequestFacts, decode_j: float) -> EarlyStop | None:
    """The early stop with what it saved, at what the request's own tokens took so far."""
    stop = facts.early_stop
    if stop is None:
        return None
    token_j = decode_j / max(facts.output_tokens, 1)
    return msgspec.structs.replace(stop, saved_j=stop.saved_tokens * token_j)
