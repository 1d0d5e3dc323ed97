"""Early stop of an answer whose further tokens add nothing: noise, or a loop.

*Low confidence*: the mean log probability of the newest tokens lies below ``mean_logprob``. At the
default of -8.2 nats the model gave them 1 in 3,600 on average, which no fluent text has at a usual
temperature. The idea of judging text by the probabilities of its own tokens is that of Varshney
et al. (arXiv:2307.03987); the threshold has no published origin and is the operator's to calibrate.

*Temperature*: above 1 unlikely tokens are drawn on purpose, so the threshold is multiplied by the
temperature. A token of log probability l was drawn with l / T - log Z, and log Z >= 0 for T >= 1:
what falls below T times the threshold was below the threshold in the distribution it was drawn
from. Below 1 the threshold stays, since sharpening only favours likely tokens.

*Repetition*: the answer ends in one pattern over and over, the loop that likelihood-trained models
fall into (Holtzman et al., arXiv:1904.09751; Xu et al., arXiv:2206.02369). A pattern counts as
vLLM's own ``repetition_detection`` counts it, but short ones must go on for longer: rulers, blank
cells and zeros are text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from green_core import (
    ConfigError,
    ExitNeeds,
    ExitReason,
    GreenConfig,
    Progress,
    Urgency,
    convert_params,
    hookimpl,
)

PATH = "policies.token_stop"
LOW_CONFIDENCE = ExitReason("green:low_confidence")
REPETITION = ExitReason("green:repetition")


class TokenStopParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[policies.token_stop]``.

    ``watch``: what is looked for. ``mean_logprob`` (nats) is over the newest ``window_tokens``.
    A loop is a pattern of up to ``max_pattern_tokens`` that comes ``min_repeats`` times in a row
    and fills ``min_repeated_tokens``. ``classes`` are watched without a mark of their own.
    """

    watch: tuple[Literal["low_confidence", "repetition"], ...] = ("low_confidence", "repetition")
    every_tokens: int = 20
    window_tokens: int = 20
    mean_logprob: float = -8.2
    max_pattern_tokens: int = 32
    min_repeats: int = 4
    min_repeated_tokens: int = 64
    classes: tuple[Urgency, ...] = ()


class TokenStopping:
    """``(Progress) -> ExitReason | None``; keeps no state."""

    def __init__(self, params: TokenStopParams) -> None:
        self._params = params
        self._repeats = [
            (pattern, max(params.min_repeats, math.ceil(params.min_repeated_tokens / pattern)))
            for pattern in range(1, params.max_pattern_tokens + 1)
        ]
        self._confidence = "low_confidence" in params.watch
        self._repetition = "repetition" in params.watch
        longest = max(pattern * times for pattern, times in self._repeats)
        self.needs = ExitNeeds(
            every_tokens=params.every_tokens,
            window_tokens=max(params.window_tokens, longest if self._repetition else 0),
            logprobs=self._confidence,
            classes=params.classes,
        )

    def __call__(self, progress: Progress) -> ExitReason | None:
        """Judge the newest tokens; with fewer than a window of them there is no verdict."""
        if self._confidence and self._is_noise(progress):
            return LOW_CONFIDENCE
        if self._repetition and any(
            ends_in_loop(progress.token_ids, pattern, times) for pattern, times in self._repeats
        ):
            return REPETITION
        return None

    def _is_noise(self, progress: Progress) -> bool:
        window = progress.logprobs[-self._params.window_tokens :]
        if len(window) < self._params.window_tokens:
            return False
        # A mean that is no number (-inf can be drawn nowhere, NaN is a fault) is no verdict.
        mean = sum(window) / len(window)
        return math.isfinite(mean) and mean < self._params.mean_logprob * max(
            1.0, progress.temperature
        )


def ends_in_loop(token_ids: Sequence[int], pattern: int, times: int) -> bool:
    """Whether the end is one pattern of that many tokens, ``times`` times in a row."""
    span = pattern * times
    if len(token_ids) < span or token_ids[-1] != token_ids[-1 - pattern]:
        return False
    return token_ids[-span:-pattern] == token_ids[len(token_ids) - span + pattern :]


class TokenStop:
    """The plugin."""

    @hookimpl
    def green_exit_policy(self, config: GreenConfig, params: Mapping[str, Any]) -> TokenStopping:
        """Build the rule from ``[policies.token_stop]``."""
        checked = convert_params(TokenStopParams, params, PATH)
        for name, least, most in (
            ("every_tokens", 1, 10_000),
            ("window_tokens", 1, 1_000),
            ("max_pattern_tokens", 1, 256),
            ("min_repeats", 2, 100),
            ("min_repeated_tokens", 1, 2_000),
        ):
            value = getattr(checked, name)
            if not least <= value <= most:
                raise ConfigError(f"{PATH}.{name}", f"must be {least} to {most}, not {value}")
        if not (math.isfinite(checked.mean_logprob) and checked.mean_logprob < 0):
            raise ConfigError(
                f"{PATH}.mean_logprob",
                f"must be a finite number below 0, not {checked.mean_logprob}",
                remedy="Natural logarithms: -8.2 is a probability of 1 in 3,600",
            )
        if not checked.watch:
            raise ConfigError(
                f"{PATH}.watch",
                "names nothing to look for",
                remedy='Name "low_confidence", "repetition" or both, or choose no exit policy',
            )
        return TokenStopping(checked)
