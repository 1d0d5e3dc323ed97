"""How long a request will need once it runs, learned from finished steps."""

from __future__ import annotations

from green_core.values import StepView

_WEIGHT = 0.05


class RunTimeEstimator:
    """Running means of the time of a decode step and of one prefill token.

    Before anything was seen the answer is 0.0, which policies read as "unknown".
    """

    def __init__(self) -> None:
        self.decode_step_s = 0.0
        self.prefill_token_s = 0.0

    def observe(self, step: StepView) -> None:
        """Learn from one finished step."""
        prefill = sum(share.prefill_tokens for share in step.shares)
        if prefill:
            decode_s = self.decode_step_s if len(step.shares) > 1 else 0.0
            per_token = max(step.duration_s - decode_s, 0.0) / prefill
            self.prefill_token_s = _blend(self.prefill_token_s, per_token)
        elif step.shares:
            self.decode_step_s = _blend(self.decode_step_s, step.duration_s)

    def run_s(self, prompt_tokens: int, max_tokens: int) -> float:
        """Seconds for a prompt and the longest answer it may get."""
        return prompt_tokens * self.prefill_token_s + max_tokens * self.decode_step_s


def _blend(old: float, new: float) -> float:
    return new if old == 0.0 else old + _WEIGHT * (new - old)
