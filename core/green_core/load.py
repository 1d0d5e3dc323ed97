"""What an engine had to do: the load that the doctor looks at.

The engine's thread only appends; the housekeeping thread does the counting.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import OrderedDict, deque
from collections.abc import Sequence

from green_core.doctor.facts import LoadFacts
from green_core.values import LoadView, RequestRecord, StepView

PERIOD_S = 1.0
BLOCK_TOKENS = 64  # prompts are compared in blocks of this many tokens
_MAX_PROMPTS = 20  # looked at in one round; the rest goes unseen
_MAX_BLOCKS = 256  # of one prompt
_SAME_MOMENT_S = 0.01
_WEIGHT = 0.1
_MAX_SEEN = 100_000  # blocks remembered, the latest ones


class LoadWatch:
    """Counts steps, waiting, repeated prompts and holds of one engine process."""

    def __init__(self, start_s: float, max_running: int) -> None:
        self.running = self.waiting = self.held = 0
        self._start_s = start_s
        self._max_running = max_running
        self._prompts: deque[Sequence[int]] = deque(maxlen=_MAX_PROMPTS)
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self.busy_s = self.ttft_s = 0.0
        self._steps = 0
        self._last_step_s = 0.0
        self._running_s = self._full_s = 0.0
        self._requests = self._prompt_tokens = self._cached_tokens = 0
        self._sampled_tokens = self._repeated_tokens = 0
        self._company_holds = self._company_gained = 0
        self._company_s = 0.0
        self._let_go_s = -math.inf
        self._prefill_j = self._decode_j = 0.0

    # --- engine's thread ------------------------------------------------------------------

    def note_prompt(self, token_ids: Sequence[int]) -> None:
        """Keep a new request's prompt for a look at how much of it was seen before."""
        self._prompts.append(token_ids)

    def note_company(self, now_s: float, held_s: float) -> None:
        """A request that was held for company is let go; others of the same moment are company."""
        self._company_holds += 1
        self._company_s += held_s
        if now_s - self._let_go_s < _SAME_MOMENT_S:
            self._company_gained += 1
        self._let_go_s = now_s

    # --- housekeeping thread --------------------------------------------------------------

    def step(self, step: StepView, waiting: int) -> None:
        """Count a finished step; ``waiting`` requests were in the engine's queue meanwhile."""
        running, duration_s = len(step.shares), step.duration_s
        self.running, self.waiting = running, waiting
        self._steps += 1
        self._last_step_s = step.end_s
        self.busy_s += duration_s
        self._running_s += running * duration_s
        if waiting and running >= self._max_running:
            self._full_s += duration_s

    def request(self, record: RequestRecord, prefill_token_s: float) -> None:
        """Count a settled request; its TTFT is its wait and the usual time of its prefill."""
        computed = max(0, record.prompt_tokens - record.cached_tokens)
        self.ttft_s += _WEIGHT * (record.wait_s + computed * prefill_token_s - self.ttft_s)
        self._requests += 1
        self._prompt_tokens += record.prompt_tokens
        self._cached_tokens += record.cached_tokens
        self._prefill_j += record.prefill_j
        self._decode_j += record.decode_j

    def look_at_prompts(self) -> None:
        """Count how much of the prompts noted since the last look stood in an earlier one."""
        while self._prompts:
            self._compare(self._prompts.popleft())

    def facts(self, until_s: float, *, active_j: float, idle_j: float) -> LoadFacts:
        """All of it, up to ``until_s``."""
        return LoadFacts(
            since_s=self._start_s,
            until_s=until_s,
            running=self.running,
            waiting=self.waiting,
            held=self.held,
            requests=self._requests,
            steps=self._steps,
            last_step_s=self._last_step_s,
            busy_s=self.busy_s,
            mean_running=self._running_s / self.busy_s if self.busy_s else 0.0,
            full_s=self._full_s,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            sampled_tokens=self._sampled_tokens,
            repeated_tokens=self._repeated_tokens,
            company_holds=self._company_holds,
            company_s=self._company_s,
            company_gained=self._company_gained,
            prefill_j=self._prefill_j,
            decode_j=self._decode_j,
            active_j=active_j,
            idle_j=idle_j,
        )

    def _compare(self, token_ids: Sequence[int]) -> None:
        """A block counts as repeated when it and all before it were seen in one earlier prompt."""
        chain = hashlib.blake2b(digest_size=8)
        blocks = min(len(token_ids) // BLOCK_TOKENS, _MAX_BLOCKS)
        repeats = True
        for number in range(blocks):
            block = token_ids[number * BLOCK_TOKENS : (number + 1) * BLOCK_TOKENS]
            chain.update(array("q", block).tobytes())
            key = chain.digest()
            repeats = repeats and key in self._seen
            self._repeated_tokens += BLOCK_TOKENS * repeats
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)
        self._sampled_tokens += len(token_ids)


class LoadGauge:
    """Power and utilisation between two looks that lie at least ``PERIOD_S`` apart."""

    def __init__(self, start_s: float) -> None:
        self._since = (start_s, 0.0, 0.0)
        self._view = LoadView(now_s=start_s, power_w=0.0, utilisation=0.0, itl_s=0.0, ttft_s=0.0)

    def look(
        self, now_s: float, *, energy_j: float, busy_s: float, itl_s: float, ttft_s: float
    ) -> LoadView:
        """The load up to ``now_s``; the totals are those since the start."""
        since_s, since_j, since_busy_s = self._since
        span_s = now_s - since_s
        power_w, utilisation = self._view.power_w, self._view.utilisation
        if span_s >= PERIOD_S:
            power_w = (energy_j - since_j) / span_s
            utilisation = min(max((busy_s - since_busy_s) / span_s, 0.0), 1.0)
            self._since = (now_s, energy_j, busy_s)
        self._view = LoadView(now_s, power_w, utilisation, itl_s, ttft_s)
        return self._view
