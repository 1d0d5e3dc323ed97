"""What a service offers against what the configuration asks for, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from green_core.config import CarbonConfig
from green_core.errors import ConfigError
from green_core.values import Basis, SignalKind


def require_offer(
    carbon: CarbonConfig, *, kinds: Sequence[SignalKind], bases: Sequence[Basis]
) -> None:
    """Raise ``ConfigError`` when the source serves another kind or basis (FIELD G12)."""
    for key, wanted, offered in (
        ("carbon.kind", carbon.kind, kinds),
        ("carbon.basis", carbon.basis, bases),
    ):
        if wanted not in {*offered, "any"}:
            raise ConfigError(
                key,
                f'is "{wanted}" but the source {carbon.source!r} serves {" and ".join(offered)} '
                "values",
                remedy=f'Set {key} = "{offered[0]}", or choose another source',
            )


def require_zone(carbon: CarbonConfig, example: str) -> str:
    """The configured zone; a place is never guessed (FIELD G2, G11)."""
    zone = carbon.zone.strip()
    if not zone:
        raise ConfigError(
            "carbon.zone",
            f"is empty, and the source {carbon.source!r} guesses no place",
            remedy=f'Set it, for example carbon.zone = "{example}"',
        )
    return zone
