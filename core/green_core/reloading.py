"""The configuration in force, and what its file has become since."""

from __future__ import annotations

import logging
from collections.abc import Callable

from green_core import config as configuration
from green_core.config import GreenConfig, Resolved
from green_core.errors import GreenError
from green_core.marks import MarkReader

logger = logging.getLogger("greenserve")

# Tables that a running process reads once; a change there needs a restart, and is said to.
FIXED_TABLES = ("carbon", "energy", "ledger")


class LiveConfig:
    """Reads the file again when asked to. ``check`` may refuse a configuration."""

    def __init__(self, resolved: Resolved, check: Callable[[GreenConfig], None]) -> None:
        check(resolved.config)
        self.resolved = resolved
        self._check = check
        self._refused = False

    def changed(self) -> Resolved | None:
        """What the file has become; ``None``: the same as before, or not to be used."""
        old = self.resolved
        try:
            fresh = configuration.load(old.file or None, overrides=old.overrides)
            if fresh.config == old.config:
                self._refused = False
                return None
            self._check(fresh.config)
            MarkReader(fresh.config.marks)
        except GreenError as error:
            self.refuse(error)
            return None
        return fresh

    def refuse(self, error: GreenError) -> None:
        """Say, once until it is mended, that the file cannot be followed."""
        if not self._refused:
            self._refused = True
            logger.error("%s. The configuration in force stays", error)

    def adopt(self, fresh: Resolved) -> None:
        """Put ``fresh`` in force; what needs a restart is said."""
        self._refused = False
        for table in FIXED_TABLES:
            if getattr(fresh.config, table) != getattr(self.resolved.config, table):
                logger.warning("greenserve: the change under [%s] needs a restart", table)
        self.resolved = fresh
