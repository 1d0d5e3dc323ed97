"""The running limit with the least gCO2 per token that keeps the latency objectives.

Step time and step energy are learned online as functions of the decode batch. Every token of a
step costs ``energy / tokens``, so the fixed part of a step is shared by more tokens in a bigger
batch: on an H100 an 8B model falls from 0.455 J per token at batch 8 to 0.070 J at 512
(ML.ENERGY Benchmark v3, arXiv:2505.06371), while the inter-token latency (ITL) rises from 7 to
47 ms. The least carbon is therefore usually found at the largest batch that keeps the ITL
objective, but here it is looked for on the learned curve, never assumed. Intensity multiplies
all candidates alike; it enters through ``itl_slack``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import msgspec

from green_core import (
    BatchPlan,
    BatchPolicy,
    ConfigError,
    GreenConfig,
    GridState,
    GridView,
    QueueView,
    StepView,
    convert_params,
    hookimpl,
)
from green_core.policies.step_curve import Bucket, Segment, StepCurve

PATH = "policies.slo"
# Steps between two evaluations of the curve; it cannot change much in fewer.
EVALUATE_EVERY = 8
# Candidates whose cost per token is this close to the least count as equal; the largest wins.
EQUAL_COST = 1.01
# After a preemption the limit falls to this share of what is running, then regrows by one
# request per this many plans (FIELD P19).
BACK_OFF = 0.9
REGROW_EVERY = 16
# Below this batch a decode step is bound by reading the weights and hardly gets any faster.
SMALLEST_PROBE = 4
# The spread of step times is learned slower than their means; hiccups count as this much off.
SPREAD_GAIN = 0.01
# Steps with prefill seen before their room is limited: one hiccup among few says nothing.
PREFILLS_TO_KNOW = 8
MAX_OFF = 0.5
TINY_S = 1e-9


class ItlSlack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Factor on the ITL objective by grid state. 1.0 everywhere keeps the objective as it is.

    Above 1 lets batches grow beyond the objective (fewer joules per token, slower tokens). The
    objective is a promise to clients, so nothing is taken from it unless the operator says so.
    """

    clean: float = 1.0
    medium: float = 1.0
    dirty: float = 1.0


class SloParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[policies.slo]``.

    ``min_running``: the limit never falls below it. ``min_prefill_tokens``: nor does the room
    for prefill in a step. ``warmup_steps``: decode steps seen before anything is limited.
    ``headroom``: share of the ITL objective that is aimed at. ``smoothing``: weight of the
    newest step in the learned means.
    """

    min_running: int = 1
    min_prefill_tokens: int = 64
    warmup_steps: int = 32
    headroom: float = 0.9
    smoothing: float = 0.05
    itl_slack: ItlSlack = ItlSlack()


class SloPlan:
    """``(QueueView, GridView) -> BatchPlan``. Learns from ``queue.last_step``, each step once."""

    def __init__(self, params: SloParams, config: GreenConfig) -> None:
        self._params = params
        self._itl_s = config.slo.itl_ms / 1e3
        self._ttft_s = config.slo.latency_ms / 1e3
        self._slack = {
            GridState.CLEAN: params.itl_slack.clean,
            GridState.MEDIUM: params.itl_slack.medium,
            GridState.DIRTY: params.itl_slack.dirty,
        }
        self._curve = StepCurve(params.smoothing)
        self._extra_s = 0.0  # mean time that prefill adds to a step
        self._extra_tokens = 0.0  # mean prefill tokens of those steps
        self._extra_steps = 0  # how many were seen
        self._prompt_tokens = 0.0  # usual length of a prompt
        self._variance = 0.0  # of a step's time relative to the learned one
        self._quantile = NormalDist().inv_cdf(min(max(config.slo.attainment, 0.5), 0.999))
        self._tokens_per_decode = 1.0  # above 1 with speculative decoding
        self._seen_end_s = -math.inf
        self._blocked_since_s: float | None = None
        self._preemptions: int | None = None
        self._back_off = math.inf
        self._plans = 0
        self._evaluated: tuple[int, float, int] | None = None
        self._segments: list[Segment] = []
        self._choice = (0, "")
        self._limit = math.inf  # the limit in force, if it is ours

    def __call__(self, queue: QueueView, grid: GridView) -> BatchPlan:
        """Limits for the next step: at least one request and some prefill, so work never stops."""
        self._plans += 1
        if queue.last_step is not None:
            self._learn(queue.last_step)
        engine_max = queue.engine_max_running
        budget_s = self._budget_s(queue, grid)
        limit, reason = self._running_limit(budget_s, engine_max)
        ceiling = self._backed_off(queue)
        if ceiling < limit:
            limit, reason = ceiling, "backs off after a preemption"
        limit = max(limit, min(self._params.min_running, engine_max))
        ours = limit < engine_max
        self._limit = limit if ours else math.inf
        return BatchPlan(
            max_running=limit if ours else None,
            max_tokens=self._token_limit(queue, budget_s),
            reason=reason,
        )

    def _budget_s(self, queue: QueueView, grid: GridView) -> float:
        """The mean step time to stay below, so that the wanted share of steps keeps ITL."""
        steady = self._tokens_per_decode / (1 + self._quantile * math.sqrt(self._variance))
        # Rounded, so that the curve is not evaluated again for every flicker of the means.
        budget_s = self._itl_s * self._slack[grid.state] * round(steady, 2)
        return budget_s if self._waited_too_long(queue) else budget_s * self._params.headroom

    def _learn(self, step: StepView) -> None:
        if step.end_s <= self._seen_end_s or step.duration_s <= 0:
            return
        self._seen_end_s = step.end_s
        decoding = decoded = prefilled = longest = 0
        for share in step.shares:
            if share.decode_tokens:
                decoding += 1
                decoded += share.decode_tokens
            if share.prefill_tokens:
                prefilled += share.prefill_tokens
                longest = max(longest, share.context_tokens)
        if decoding:
            self._tokens_per_decode += self._params.smoothing * (
                decoded / decoding - self._tokens_per_decode
            )
        if prefilled:
            self._prompt_tokens = self._blend(self._prompt_tokens, longest)
            if self._segments:
                extra_s = max(0.0, step.duration_s - self._time_s(decoding))
                self._extra_s = self._blend(self._extra_s, extra_s)
                self._extra_tokens = self._blend(self._extra_tokens, prefilled)
                self._extra_steps += 1
        elif decoding:
            if self._segments:
                usual_s = max(self._time_s(decoding), TINY_S)
                off = min(MAX_OFF, abs(step.duration_s / usual_s - 1))
                self._variance += SPREAD_GAIN * (off * off - self._variance)
            self._curve.learn(decoding, step.duration_s, step.energy_j)

    def _blend(self, mean: float, value: float) -> float:
        return value if mean == 0 else mean + self._params.smoothing * (value - mean)

    def _running_limit(self, budget_s: float, engine_max: int) -> tuple[int, str]:
        """The limit that the learned curve asks for, evaluated again every few steps."""
        if self._curve.steps < self._params.warmup_steps:
            return engine_max, "learning"
        key = (self._curve.steps // EVALUATE_EVERY, budget_s, engine_max)
        if key != self._evaluated:
            self._evaluated = key
            self._segments = self._curve.segments(1, engine_max)
            self._choice = self._choose(budget_s, engine_max)
        return self._choice

    def _choose(self, budget_s: float, engine_max: int) -> tuple[int, str]:
        seen = self._curve.seen()
        if not seen:
            return engine_max, "learning"
        if len(seen) == 1:
            return self._from_one_size(seen[0], budget_s, engine_max)
        found = candidates(self._segments, budget_s)
        if found:
            least = min(cost for cost, _ in found)
            return max(size for cost, size in found if cost <= least * EQUAL_COST), "slo"
        smallest = next((b.batch for b in seen if self._curve.is_fresh(b)), seen[-1].batch)
        if smallest > SMALLEST_PROBE:
            return min(engine_max, max(1, int(smallest / 2))), "tries a smaller batch"
        # Cutting the batch further would cost joules and still miss the objective.
        return engine_max, "no batch keeps the ITL objective"

    def _from_one_size(self, only: Bucket, budget_s: float, engine_max: int) -> tuple[int, str]:
        """With one batch size seen there is no slope: suppose time grows in proportion.

        That is the most a batch can cost; the other size that follows shows the slope.
        """
        if only.time_s <= budget_s:
            return engine_max, "the only batch seen keeps the ITL objective"
        if only.batch <= SMALLEST_PROBE:
            return engine_max, "no batch keeps the ITL objective"
        size = max(only.batch * budget_s / only.time_s, SMALLEST_PROBE)
        return min(engine_max, int(size)), "tries a smaller batch"

    def _time_s(self, batch: int) -> float:
        """Learned duration of a decode-only step."""
        segment = next((s for s in self._segments if batch <= s.high), self._segments[-1])
        return segment.time.at(batch)

    def _waited_too_long(self, queue: QueueView) -> bool:
        """Whether requests stood behind our limit for longer than the TTFT objective.

        Then the headroom is given up, and with it nothing that the ITL objective asks for.
        """
        if queue.waiting == 0:
            self._blocked_since_s = None
        elif self._blocked_since_s is None and queue.running >= self._limit:
            self._blocked_since_s = queue.now_s
        since_s = self._blocked_since_s
        return since_s is not None and queue.now_s - since_s > self._ttft_s

    def _backed_off(self, queue: QueueView) -> int:
        """A ceiling after preemptions: more requests than the KV pool holds help nobody."""
        before, self._preemptions = self._preemptions, queue.preemptions
        if before is not None and queue.preemptions > before:
            self._back_off = max(1, int(queue.running * BACK_OFF))
        elif self._back_off < queue.engine_max_running and self._plans % REGROW_EVERY == 0:
            self._back_off += 1
        return int(min(self._back_off, queue.engine_max_running))

    def _token_limit(self, queue: QueueView, budget_s: float) -> int | None:
        """Tokens per step with which a prefill chunk keeps the ITL of those that decode.

        A prompt of usual length can still be computed within the TTFT objective, and decoding
        is never squeezed. ``None`` while nothing is at risk or known.
        """
        known = self._extra_steps >= PREFILLS_TO_KNOW and self._extra_s > 0
        if queue.running == 0 or not known or not self._segments:
            return None
        spare_s = max(0.0, budget_s - self._time_s(queue.running))
        room = int(spare_s * self._extra_tokens / self._extra_s)
        for_ttft = math.ceil(self._prompt_tokens * budget_s / self._ttft_s)
        room = max(room, for_ttft, self._params.min_prefill_tokens)
        limit = math.ceil(queue.running * self._tokens_per_decode) + room
        return limit if limit < queue.engine_max_tokens else None


def candidates(segments: list[Segment], budget_s: float) -> list[tuple[float, int]]:
    """``(cost per sequence and step, batch)`` of the batches that keep ``budget_s``.

    Within a segment both curves are straight, so its ends and the last batch that fits are
    enough. Without priced energy the device's time stands for it: static power dominates.
    """
    found: list[tuple[float, int]] = []
    for segment in segments:
        cost = segment.energy or segment.time
        fits = segment.high
        if segment.time.at(fits) > budget_s and segment.time.per_unit > 0:
            # Epoch times carry 0.2 us of rounding; a batch that fits exactly must not fall to it.
            fits = math.floor((budget_s - segment.time.fixed) / segment.time.per_unit + 0.01)
        elif segment.time.at(fits) > budget_s:
            fits = 0
        if fits >= segment.low:
            found += [(cost.at(size) / size, size) for size in {segment.low, fits}]
        if fits < segment.high:
            break  # a bigger batch is not faster, whatever an unseen stretch promises
    return found


class SloBatching:
    """The plugin."""

    @hookimpl
    def green_batch_policy(self, config: GreenConfig, params: Mapping[str, Any]) -> BatchPolicy:
        """Build the policy from ``[policies.slo]`` and ``[slo]``."""
        checked = convert_params(SloParams, params, PATH)
        slack = checked.itl_slack
        for key, value, low, high in (
            ("min_running", checked.min_running, 1, math.inf),
            ("min_prefill_tokens", checked.min_prefill_tokens, 1, math.inf),
            ("warmup_steps", checked.warmup_steps, 1, math.inf),
            ("headroom", checked.headroom, 0.1, 1.0),
            ("smoothing", checked.smoothing, 0.001, 1.0),
            ("itl_slack.clean", slack.clean, 0.1, 10.0),
            ("itl_slack.medium", slack.medium, 0.1, 10.0),
            ("itl_slack.dirty", slack.dirty, 0.1, 10.0),
        ):
            if not low <= value <= high:
                expected = f"at least {low}" if high == math.inf else f"between {low} and {high}"
                raise ConfigError(f"{PATH}.{key}", f"must be {expected}, not {value}")
        return SloPlan(checked, config)
