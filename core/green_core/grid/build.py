"""From configuration to a running carbon signal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from green_core.clock import SteadyClock
from green_core.config import BUILT_IN_SOURCES, ENV_TOKEN, LIVE_SOURCES, CarbonConfig, nearest
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.file import open_file_signal
from green_core.grid.signal import CarbonSignal, SignalListener
from green_core.grid.static import static_signal

SignalFactory: TypeAlias = Callable[[str], CarbonSignal | None]

# What to look at when a service refuses for good, by the reason: the key, and what to do.
_REFUSALS = {
    "auth": (
        "carbon.token_file",
        f"Put a valid token into that file or into {ENV_TOKEN}, and nothing else",
    ),
    "forbidden": ("carbon.zone", "Choose a zone that the account's plan holds, or extend the plan"),
    "zone": ("carbon.zone", "Name the zone as the service does"),
    "query": ("carbon.query", "Mend it; Prometheus's own page shows what it answers"),
    "kind": (
        "carbon.kind",
        "Set carbon.kind and carbon.basis to what the source serves; kinds are never mixed",
    ),
    "unit": ("carbon.unit", "Set it to what the source serves, or ask for g/kWh"),
    "synthetic": (
        "carbon.allow_synthetic",
        "Use a production key or data source; true accepts made-up values, for trials only",
    ),
}


def build_signal(
    carbon: CarbonConfig,
    *,
    anchor_s: float,
    now_s: float,
    factory: SignalFactory | None = None,
    clock: SteadyClock | None = None,
    listener: SignalListener | None = None,
) -> CarbonSignal:
    """Build the signal that ``carbon`` asks for.

    ``anchor_s`` is the wall time at which a replay starts, the same in all processes; ``now_s``
    is used to ask the new signal once. ``factory`` answers the signal of a plugin by its source
    name, ``None`` when there is no such plugin. ``clock`` is the one by which the signal will be
    asked. ``listener`` is told how a live source fares, from its own thread and already before
    this returns; the other sources tell nothing.

    A live source is asked once, ``carbon.timeout_s`` at most, unless a cached answer is still
    good. Raises ``ConfigError`` when the source is unknown, its data cannot be used, it refuses
    for good, or it serves another kind or basis than ``carbon`` says (FIELD G12).
    """
    if carbon.source in LIVE_SOURCES:
        return _open_live(carbon, clock, listener)
    signal: CarbonSignal | None
    if carbon.source == "static":
        signal = static_signal(carbon)
    elif carbon.source == "file":
        signal = open_file_signal(carbon, anchor_s=anchor_s)
    elif carbon.source == "yearly":
        from green_core.grid.sources.yearly import yearly_signal

        signal = yearly_signal(carbon)
    else:
        signal = factory(carbon.source) if factory is not None else None
    if signal is None:
        raise ConfigError(
            "carbon.source",
            f"no carbon source {carbon.source!r}",
            remedy=nearest(carbon.source, list(BUILT_IN_SOURCES))
            + ", or install the plugin of that name",
        )
    view = signal.view(now_s)
    if view.kind != carbon.kind:
        signal.close()
        raise ConfigError(
            "carbon.kind",
            f'is "{carbon.kind}" but the source {carbon.source!r} serves {view.kind} values',
            remedy="Set carbon.kind to what the source serves; the two kinds are never mixed",
        )
    if carbon.basis not in {"any", view.basis}:
        signal.close()
        raise ConfigError(
            "carbon.basis",
            f'is "{carbon.basis}" but the values of {carbon.source!r} are of {view.basis} basis',
            remedy='Set carbon.basis to what the source serves, or to "any"',
        )
    return signal


def _open_live(
    carbon: CarbonConfig, clock: SteadyClock | None, listener: SignalListener | None
) -> CarbonSignal:
    # Loads an HTTP client, which the other sources do without.
    from green_core.grid.live import LiveSignal
    from green_core.grid.sources import open_source
    from green_core.grid.sources.http import token

    try:
        signal = LiveSignal(
            carbon, open_source(carbon), token=token(carbon), clock=clock, listener=listener
        )
        signal.open()
    except SignalUnavailable as error:
        path, remedy = _REFUSALS.get(error.reason, ("carbon.source", "Look at the service"))
        raise ConfigError(path, str(error).rstrip("."), remedy=remedy) from error
    return signal
