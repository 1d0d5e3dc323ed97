"""Prompts repeat, and the prefix cache is off or does not hit."""

from __future__ import annotations

from green_core.doctor.estimates import finding, per_day
from green_core.doctor.facts import Finding, NotChecked, Status
from green_core.doctor.remedies import remedy

TRAP = "prefix_cache"
MIN_REQUESTS = 20
MIN_SAMPLED_TOKENS = 1_000
MIN_REPEATED_RATIO = 0.2
# A hit needs whole blocks and an entry that was not evicted: less than half of what repeats is odd.
USED_RATIO = 0.5


def find(status: Status, earlier: Status | None) -> Finding | NotChecked | None:
    """Compare what stood in earlier prompts with what was taken from the cache."""
    load, caching = status.load, status.engine.prefix_caching
    if caching is None:
        return NotChecked(TRAP, "the engine does not say whether it caches prefixes")
    if load.requests < MIN_REQUESTS or load.sampled_tokens < MIN_SAMPLED_TOKENS:
        return NotChecked(
            TRAP,
            f"too little was seen: {load.requests} requests and {load.sampled_tokens} prompt "
            f"tokens looked at ({MIN_REQUESTS} and {MIN_SAMPLED_TOKENS} are needed)",
        )
    repeated = load.repeated_tokens / load.sampled_tokens
    cached = load.cached_tokens / load.prompt_tokens if load.prompt_tokens else 0.0
    if repeated < MIN_REPEATED_RATIO or (caching and cached >= USED_RATIO * repeated):
        return None
    saved_j = None
    if load.prefill_j > 0:
        # Prefill was paid for what was not cached; what repeats of that need not have been.
        saved_j = per_day(status, load.prefill_j * (repeated - cached) / (1 - cached))
    return finding(
        status,
        trap=TRAP,
        title="prompts repeat and the prefix cache is hardly used"
        if caching
        else "prompts repeat and the prefix cache is off",
        evidence=f"{repeated:.0%} of {load.sampled_tokens} prompt tokens looked at stood in an "
        f"earlier prompt's prefix; {cached:.0%} of {load.prompt_tokens} came from the cache",
        remedy=remedy("cache-unused" if caching else "cache-off", status.engine.info.engine),
        estimate="prefill energy of the tokens that repeat, at the load seen; at most, since a "
        "cache must also keep them long enough"
        if saved_j is not None
        else "cannot be told: no prefill energy was booked",
        energy_j_per_day=saved_j,
    )
