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
    """The carbon signal has no value for this place or time."""


class LedgerUnavailable(GreenError):
    """The ledger's file cannot be opened, read or written."""


class MarkError(ConfigError, ValueError):
    """A client's mark (header or body field) cannot be used; servers answer 400 with it."""
