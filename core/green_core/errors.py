"""The error tree. Every message says what was found, what was expected and what to do.

None of these derives from ``RuntimeError``: Hugging Face TGI shuts its shard down on one.
"""

from __future__ import annotations


class GreenError(Exception):
    """Base of every error that greenserve raises on purpose."""


class ConfigError(GreenError):
    """A configuration value, file or mark cannot be used.

    ``path`` is the dotted key (``carbon.high_threshold``), header or file the message is about.
    """

    def __init__(self, path: str, problem: str, *, remedy: str = "") -> None:
        self.path = path
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{path}: {problem}" + (f". {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_config_error, (self.path, self.problem, self.remedy))


def _rebuild_config_error(path: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(path, problem, remedy=remedy)


class EngineUnsupported(GreenError):
    """The engine's version or set-up was not verified, or bypasses a seam that is needed."""


class SeamMoved(GreenError):
    """A symbol of the engine that an adapter builds on is missing or has another signature."""


class PolicyFailed(GreenError):
    """A policy raised, stalled or answered something that is not a decision."""


class MeterUnavailable(GreenError):
    """No energy meter can be read: no driver, no device, no permission."""


class SignalUnavailable(GreenError):
    """A carbon service gave no usable answer.

    ``reason`` is one of ``SIGNAL_REASONS``: the label of its counter. ``retry_after_s`` is what
    the service itself asked for. With ``is_permanent`` asking again will not help until somebody
    changes the configuration, the account or the service.
    """

    def __init__(self, message: str, *, reason: str, retry_after_s: float | None = None) -> None:
        if reason not in SIGNAL_REASONS:
            raise ValueError(f"{reason!r} is no reason; known: {', '.join(SIGNAL_REASONS)}")
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(message)

    @property
    def is_permanent(self) -> bool:
        """Whether this is a fault of the set-up and no passing failure."""
        return self.reason in _PERMANENT

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_signal_error, (str(self), self.reason, self.retry_after_s))


SIGNAL_REASONS = (
    "network",  # no connection: DNS, refused, TLS, proxy
    "timeout",
    "server_error",  # 5xx, and any status that is none of ours to mend
    "rate_limited",  # 429
    "malformed",  # HTML, cut JSON, another shape
    "empty",  # well-formed and without a value
    "auth",  # 401, or no token where one is needed
    "forbidden",  # 403: the plan does not hold this zone
    "zone",  # no such zone
    "query",  # cannot be parsed, or answers several series
    "kind",  # average where marginal was asked for, or the reverse; also basis
    "unit",
    "synthetic",  # made-up values
)
_PERMANENT = frozenset({"auth", "forbidden", "zone", "query", "kind", "unit", "synthetic"})


def _rebuild_signal_error(
    message: str, reason: str, retry_after_s: float | None
) -> SignalUnavailable:
    return SignalUnavailable(message, reason=reason, retry_after_s=retry_after_s)


class LedgerUnavailable(GreenError):
    """The ledger's file cannot be opened, read or written."""


class MarkError(ConfigError, ValueError):
    """A client's mark (header or body field) cannot be used; servers answer 400 with it."""
