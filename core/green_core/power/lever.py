"""What a power lever is."""

from __future__ import annotations

from typing import Protocol

from green_core.values import PowerTarget


class PowerLever(Protocol):
    """Sets limits on the devices of one engine, and takes them back.

    One thread uses it. Nothing here raises; a lever that cannot act says why in ``problem``.
    """

    @property
    def problem(self) -> str:
        """Why it does nothing (any more), with a remedy; empty while it works."""
        ...

    @property
    def limit_w(self) -> float | None:
        """The operator's own power limit per device, in W; ``None``: not known."""
        ...

    @property
    def set_w(self) -> float | None:
        """The least power limit that is in force and ours, in W; ``None``: none is."""
        ...

    @property
    def failures(self) -> int:
        """How often setting a limit failed."""
        ...

    def apply(self, target: PowerTarget) -> None:
        """Set the limits of ``target``; what it leaves open is the operator's again."""
        ...

    def restore(self) -> None:
        """Take back what was set, where it is still ours. May be called at any time."""
        ...

    def close(self) -> None:
        """Restore, and let go of the devices for good."""
        ...

    def describe(self) -> str:
        """What it can do, in words."""
        ...


class InertLever:
    """Does nothing, and says why."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.limit_w: float | None = None
        self.set_w: float | None = None
        self.failures = 0

    def apply(self, target: PowerTarget) -> None:
        """Nothing."""

    def restore(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def describe(self) -> str:
        """The problem."""
        return f"none: {self.problem}"
