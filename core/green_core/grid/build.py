"""From configuration to a running carbon signal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from green_core.config import CarbonConfig, nearest
from green_core.errors import ConfigError
from green_core.grid.file import open_file_signal
from green_core.grid.signal import CarbonSignal
from green_core.grid.static import static_signal

SignalFactory: TypeAlias = Callable[[str], CarbonSignal | None]
BUILT_IN = ("static", "file")


def build_signal(
    carbon: CarbonConfig,
    *,
    anchor_s: float,
    now_s: float,
    factory: SignalFactory | None = None,
) -> CarbonSignal:
    """Build the signal that ``carbon`` asks for.

    ``anchor_s`` is the wall time at which a replay starts, the same in all processes; ``now_s``
    is used to ask the new signal once. ``factory`` answers the signal of a plugin by its source
    name, ``None`` when there is no such plugin.

    Raises ``ConfigError`` when the source is unknown, its data cannot be used, or it serves
    another kind of intensity than ``carbon.kind`` says (FIELD G12).
    """
    signal: CarbonSignal | None
    if carbon.source == "static":
        signal = static_signal(carbon)
    elif carbon.source == "file":
        signal = open_file_signal(carbon, anchor_s=anchor_s)
    else:
        signal = factory(carbon.source) if factory is not None else None
    if signal is None:
        raise ConfigError(
            "carbon.source",
            f"no carbon source {carbon.source!r}",
            remedy=nearest(carbon.source, list(BUILT_IN)) + ", or install the plugin of that name",
        )
    kind = signal.view(now_s).kind
    if kind != carbon.kind:
        signal.close()
        raise ConfigError(
            "carbon.kind",
            f'is "{carbon.kind}" but the source {carbon.source!r} serves {kind} values',
            remedy="Set carbon.kind to what the source serves; the two kinds are never mixed",
        )
    return signal
