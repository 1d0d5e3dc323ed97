"""What is asked of the server: the same requests at the same offsets in both arms."""

from __future__ import annotations

import random
from dataclasses import dataclass

# The ledger's intervals last a second or two; nothing runs in those that a window's ends cut.
FIRST_S = 3.0
INTERACTIVE_EVERY_S = 1.5
INTERACTIVE_WORDS, INTERACTIVE_TOKENS = 20, 8
FLEX_REQUESTS = 12
FLEX_AT_S = 4.0
# Long texts and short answers: a prompt costs the same joules in any batch, a token of an answer
# fewer in a fuller one, and the arms should differ by the grid alone.
FLEX_WORDS, FLEX_TOKENS = 300, 32
WARM_UP_TOKENS = 8
LEAST_TOKENS = 4
WORDS = (
    *("bridge", "cloud", "copper", "engine", "forest", "garden", "harvest", "island", "letter"),
    *("market", "music", "paper", "river", "signal", "silver", "stone", "table", "window"),
)


@dataclass(frozen=True)
class Ask:
    """One request, ``at_s`` after the start of its arm. ``due_s``: flex; counts from there too."""

    urgency: str
    at_s: float
    prompt: str
    max_tokens: int
    due_s: float | None = None


def build_plan(*, last_s: float, due_s: float, size: float = 1.0) -> list[Ask]:
    """Interactive requests until ``last_s``, and one batch job of flex requests due at ``due_s``.

    ``size`` scales the answers for slower machines.
    """
    random_ = random.Random(2)
    plan = []
    at_s = FIRST_S
    while at_s <= last_s:
        # Evenly spaced requests could fall into step with something periodic.
        jittered_s = at_s + random_.uniform(-0.3, 0.3)
        prompt = _prompt(random_, INTERACTIVE_WORDS)
        plan.append(Ask("interactive", jittered_s, prompt, scaled(INTERACTIVE_TOKENS, size)))
        at_s += INTERACTIVE_EVERY_S
    plan += flex_job(random_, at_s=FLEX_AT_S, due_s=due_s, tokens=scaled(FLEX_TOKENS, size))
    return sorted(plan, key=lambda ask: ask.at_s)


def warm_up_job() -> list[Ask]:
    """The batch job once, due at once and with short answers: its time tells a machine's speed."""
    return flex_job(random.Random(1), at_s=0.0, due_s=None, tokens=WARM_UP_TOKENS)


def flex_job(random_: random.Random, *, at_s: float, due_s: float | None, tokens: int) -> list[Ask]:
    """A batch job: requests with long prompts that come almost together."""
    return [
        Ask("flex", at_s + 0.02 * n, _prompt(random_, FLEX_WORDS), tokens, due_s)
        for n in range(FLEX_REQUESTS)
    ]


def scaled(tokens: int, size: float) -> int:
    """An answer's length on a machine of this speed."""
    return max(LEAST_TOKENS, round(tokens * min(size, 1.0)))


def _prompt(random_: random.Random, words: int) -> str:
    return "Go on from here: " + " ".join(random_.choice(WORDS) for _ in range(words))
