"""Splits metered energy between work and idle, and learns from it how far the model is off."""

from __future__ import annotations

import math

_LEARNING_S = 30.0  # busy (or idle) seconds after which old evidence counts for 1/e
_SCALE_RANGE = (0.2, 5.0)  # beyond this the constants are wrong, and no fit should hide it
# Relative errors expected of each estimate; their squares weigh who bears the difference to the
# meter. The idle power is steady once it was seen alone.
_ACTIVE_ERROR = 0.5
_IDLE_ERROR = 0.05
_IDLE_ERROR_UNSEEN = 0.3
# Idle seconds before their power is believed: a single tick of the counter may fall on a moment.
_MIN_IDLE_S = 1.0


class Fit:
    """Idle power and one scale factor on the step model, learnt from the meter.

    ``scale`` is metered over modelled energy of recent steps (1.0 until learnt); ``idle_w`` is
    the power of recent time without steps (``static_w`` until seen).
    """

    def __init__(self, static_w: float) -> None:
        self.scale = 1.0
        self.idle_w = static_w
        self._metered_j = 0.0
        self._modelled_j = 0.0
        self._idle_j = 0.0
        self._idle_s = 0.0

    def split(self, metered_j: float, *, modelled_j: float, busy_s: float, idle_s: float) -> float:
        """The part of ``metered_j`` that belongs to steps; the rest is idle.

        Idle time takes its known power and steps the rest; but over a long idle time a small
        error of the idle power would drown the steps. So the difference between meter and
        estimates is borne in proportion to the variance of each (least squares).
        Without steps everything is idle, without idle time everything belongs to steps.
        """
        if modelled_j <= 0.0:
            self._learn_idle(metered_j, idle_s)
            return 0.0
        active_j = modelled_j * self.scale
        idle_j = self.idle_w * idle_s
        idle_error = _IDLE_ERROR if self._idle_s >= _MIN_IDLE_S else _IDLE_ERROR_UNSEEN
        active_variance = (_ACTIVE_ERROR * active_j) ** 2
        idle_variance = (idle_error * idle_j) ** 2
        if active_variance + idle_variance > 0.0:
            bearing = active_variance / (active_variance + idle_variance)
            active_j += (metered_j - active_j - idle_j) * bearing
        active_j = min(max(active_j, 0.0), metered_j) if idle_s > 0.0 else metered_j
        self._learn_scale(active_j, modelled_j, busy_s)
        return active_j

    def _learn_scale(self, active_j: float, modelled_j: float, busy_s: float) -> None:
        keep = math.exp(-busy_s / _LEARNING_S)
        self._metered_j = self._metered_j * keep + active_j
        self._modelled_j = self._modelled_j * keep + modelled_j
        low, high = _SCALE_RANGE
        self.scale = min(max(self._metered_j / self._modelled_j, low), high)

    def _learn_idle(self, idle_j: float, idle_s: float) -> None:
        keep = math.exp(-idle_s / _LEARNING_S)
        self._idle_j = self._idle_j * keep + idle_j
        self._idle_s = self._idle_s * keep + idle_s
        if self._idle_s >= _MIN_IDLE_S:
            self.idle_w = self._idle_j / self._idle_s
