"""The power policy of one engine process over its life: chosen, changed, rested, ended."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from green_core.manager import GreenManager
from green_core.power.steering import PowerSteering, build_steering
from green_core.values import EngineInfo, GridView, LoadView

_CLOSE_S = 0.3
REST_S = 2.0  # an engine that idles for less keeps its limits

logger = logging.getLogger("greenserve")


class PowerRun:
    """Steers by the policy of the configuration in force; used by the housekeeping thread.

    ``on_trip`` is told (family, policy, reason) when the policy is switched off.
    """

    def __init__(self, engine: EngineInfo, on_trip: Callable[[str, str, str], None]) -> None:
        self._engine = engine
        self._on_trip = on_trip
        self._steering: PowerSteering | None = None
        self.rests_at_s = math.inf  # when an engine that idles gives its limits back

    @property
    def active(self) -> dict[str, str]:
        """The policy by its family, while it is alive and moves something."""
        steering = self._steering
        return {"power": steering.name} if steering is not None and steering.active else {}

    @property
    def problem(self) -> str:
        """Why a policy that was chosen does not steer; empty where all is well."""
        return self._steering.problem if self._steering is not None else ""

    @property
    def limit_w(self) -> float:
        """The limit that is set and ours; 0: none, the operator's own holds."""
        return (self._steering.lever.set_w or 0.0) if self._steering is not None else 0.0

    def follow(self, manager: GreenManager) -> None:
        """Have the policy of ``manager`` steer, and no other: one process holds a board once."""
        self.close()
        name = manager.config.policies.power
        self._steering = build_steering(
            manager, self._engine, on_trip=lambda reason: self._on_trip("power", name, reason)
        )
        if self.problem:
            logger.warning("greenserve: power is not steered: %s", self.problem)

    def steer(self, *, is_stock: bool, load: Callable[[], LoadView], grid: GridView) -> None:
        """Ask the policy, while it may act."""
        if self._steering is None:
            return
        if is_stock:
            self._steering.restore()
        else:
            view = load()
            self._steering.control(view, grid)
            self.rests_at_s = view.now_s + REST_S

    def rest(self) -> None:
        """The engine idles for a while: the limits are the operator's."""
        self.rests_at_s = math.inf
        if self._steering is not None:
            self._steering.idle()

    def close_beside(self) -> None:
        """:meth:`close` for another thread, where the one that uses this hangs; waits a moment."""
        thread = threading.Thread(target=self.close, name="green-power-close", daemon=True)
        thread.start()
        thread.join(timeout=_CLOSE_S)

    def close(self) -> None:
        """Give the limits back."""
        if self._steering is not None:
            self._steering.close()
            self._steering = None
