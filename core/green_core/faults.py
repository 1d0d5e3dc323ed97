"""Faults of our own never reach the engine; each part that fails is logged once."""

from __future__ import annotations

import logging

logger = logging.getLogger("greenserve")


class Faults:
    """Faults of our own: each part is logged once, and serving goes on."""

    def __init__(self) -> None:
        self.parts: set[str] = set()

    def note(self, part: str) -> None:
        """Call from an ``except`` block."""
        if part not in self.parts:
            self.parts.add(part)
            logger.exception("greenserve: %s failed; serving goes on without it", part)
