"""The sources that ask a service, by their name in ``carbon.source``; each is its own module.

A module is imported when its source is opened: no HTTP client is loaded for a static table.
"""

from __future__ import annotations

from importlib import import_module

from green_core.config import LIVE_SOURCES, CarbonConfig, require
from green_core.grid.source import Source


def open_source(carbon: CarbonConfig) -> Source:
    """Open the live source that ``carbon`` names; asks nothing yet.

    Raises ``ConfigError`` for a setting that it cannot work with.
    """
    require(carbon.source in LIVE_SOURCES, "carbon.source", f"{carbon.source!r} is no live source")
    source: Source = import_module(f"{__name__}.{carbon.source}").open_source(carbon)
    return source
