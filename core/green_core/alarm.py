"""An alarm between two threads: one sets it, the other looks whether it rings."""

from __future__ import annotations

import math
import threading


class Alarm:
    """Rings once at ``at_s``; ``inf``: it is not set. Setting it again replaces the time."""

    def __init__(self) -> None:
        self.at_s = math.inf
        self._lock = threading.Lock()

    def set(self, at_s: float) -> None:
        """Ring at ``at_s``."""
        with self._lock:
            self.at_s = at_s

    def rings(self, now_s: float) -> bool:
        """Whether the time has come; it is then no longer set."""
        with self._lock:
            due = now_s >= self.at_s
            if due:
                self.at_s = math.inf
        return due
