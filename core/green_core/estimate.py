"""How long a request will need once it runs, learned from finished steps."""

from __future__ import annotations

from green_core.values import StepView

_WEIGHT = 0.05
# An answer whose length nobody bounded is expected to be at most this many usual answers long;
# before any was seen, this many tokens.
_LONG_ANSWER = 3.0
_UNKNOWN_ANSWER_TOKENS = 512


class RunTimeEstimator:
    """Running means of the time of a decode step, of one prefill token, and of answer lengths.

    Before anything was seen the answer is 0.0, which policies read as "unknown".
    """

    def __init__(self) -> None:
        self.decode_step_s = 0.0
        self.prefill_token_s = 0.0
        self.answer_tokens = 0.0

    def observe_answer(self, output_tokens: int) -> None:
        """Learn from one complete answer."""
        if output_tokens:
            self.answer_tokens = _blend(self.answer_tokens, output_tokens)

    def observe(self, step: StepView) -> None:
        """Learn from one finished step."""
        prefill = sum(share.prefill_tokens for share in step.shares)
        if prefill:
            decode_s = self.decode_step_s if len(step.shares) > 1 else 0.0
            per_token = max(step.duration_s - decode_s, 0.0) / prefill
            self.prefill_token_s = _blend(self.prefill_token_s, per_token)
        elif step.shares:
            self.decode_step_s = _blend(self.decode_step_s, step.duration_s)

    def run_s(self, prompt_tokens: int, max_tokens: int, *, open_ended: bool = False) -> float:
        """Seconds for a prompt and the longest answer it may get.

        ``open_ended``: ``max_tokens`` is only what the context leaves, nobody asked for it; then
        the usual length of answers counts.
        """
        if open_ended:
            usual = _LONG_ANSWER * self.answer_tokens or _UNKNOWN_ANSWER_TOKENS
            max_tokens = min(max_tokens, round(usual))
        return prompt_tokens * self.prefill_token_s + max_tokens * self.decode_step_s


def _blend(old: float, new: float) -> float:
    return new if old == 0.0 else old + _WEIGHT * (new - old)
