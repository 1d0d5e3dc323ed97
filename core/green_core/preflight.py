"""What can be refused before an engine starts: names, parameters, places, files.

The process that is asked first builds once, and throws away, what the engine's process will build
later. Meters are left to that process, since drivers must not be opened before a fork.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from green_core.config import GreenConfig, require
from green_core.energy.build import check_meter
from green_core.grid.build import build_signal
from green_core.manager import FAMILIES, GreenManager
from green_core.marks import MarkReader


def check(config: GreenConfig, *, served: Collection[str] | None = None) -> None:
    """Raise ``GreenError`` for the first thing that cannot work.

    ``served`` are the policy families that the adapter has levers for; ``None`` leaves that open.
    """
    if served is not None:
        require_levers(config, served)
    manager = GreenManager(config)
    for family in FAMILIES:
        manager.policy(family)
    now_s = time.time()
    build_signal(
        config.carbon,
        anchor_s=now_s,
        now_s=now_s,
        factory=lambda name: manager.carbon_source(),
    ).close()
    MarkReader(config.marks)
    check_meter(config.energy.meter, manager.names)
    _check_ledger(config)


def require_levers(config: GreenConfig, served: Collection[str]) -> None:
    """Refuse a policy that nothing would ever call (FIELD P21)."""
    for family in FAMILIES:
        name = config.policies.choice(family)
        require(
            not name or family in served,
            f"policies.{family}",
            f"is {name!r}, but this engine's pack has no lever for {family} policies yet",
            "Served: " + ", ".join(sorted(served)),
        )


def _check_ledger(config: GreenConfig) -> None:
    path = config.ledger.path
    if not path:
        return
    folder = os.path.dirname(os.path.abspath(path))
    require(
        os.path.isdir(folder) and os.access(folder, os.W_OK),
        "ledger.path",
        f"the folder {folder} does not exist or cannot be written",
        "Create it, or name another file",
    )
    require(not os.path.isdir(path), "ledger.path", f"{path} is a folder", "Name a file in it")
