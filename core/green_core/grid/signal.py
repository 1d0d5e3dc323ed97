"""The contract of a carbon signal."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from green_core.errors import SignalUnavailable
from green_core.values import GridView


@runtime_checkable
class CarbonSignal(Protocol):
    """A carbon signal that answers from memory.

    ``view`` and ``intensity_at`` are called from the engine's loop: they never block, never do
    I/O and never raise once the signal was built. Beyond what is known they keep the last value
    and flag it (``is_estimate``).
    """

    def view(self, now_s: float) -> GridView:
        """The snapshot at ``now_s`` (epoch seconds), with the forecast from there on."""

    def intensity_at(self, at_s: float) -> float:
        """Intensity in g/kWh at an instant, for pricing a step after the fact."""

    def next_change_s(self, now_s: float) -> float:
        """When ``view`` will next answer something else; ``inf`` for a constant signal."""

    def close(self) -> None:
        """Stop background work, if any, within two seconds."""


class SignalListener(Protocol):
    """Who wants to know how a live signal fares. Called from the signal's own thread."""

    def signal_changed(self) -> None:
        """``view`` answers something that could not be foreseen: a newer value or forecast."""

    def signal_fetched(self) -> None:
        """The service gave a usable answer, to this process."""

    def signal_failed(self, error: SignalUnavailable) -> None:
        """The service gave none, to this process."""
