"""The signal of a live source: answers from memory, fed by a poller in the background."""

from __future__ import annotations

import logging
import math

from green_core.clock import SteadyClock
from green_core.config import CarbonConfig
from green_core.errors import ConfigError
from green_core.grid.cache import Cache, question_key
from green_core.grid.poller import CLOCK_SLACK_S, Poller
from green_core.grid.signal import SignalListener
from green_core.grid.source import Snapshot, Source
from green_core.grid.static import look_up
from green_core.grid.timeline import StandIn, Timeline
from green_core.values import GridView

logger = logging.getLogger("greenserve")


class LiveSignal:
    """A carbon signal whose values come from a service, by way of memory.

    A service speaks wall time, the caller's clock is steady. The offset between the two is taken
    anew with every snapshot, so a step of the wall clock is mended at the next one.

    ``token`` only tells one cache from another. Raises ``ConfigError`` where
    ``carbon.on_stale = "static"`` has no yearly average to turn to, ``GreenError`` when no folder
    for cache and lock can be had.
    """

    def __init__(
        self,
        carbon: CarbonConfig,
        source: Source,
        *,
        token: str = "",
        clock: SteadyClock | None = None,
        listener: SignalListener | None = None,
    ) -> None:
        if carbon.on_stale == "static":
            _require_average(carbon)
        self._carbon = carbon
        self._clock = clock or SteadyClock()
        self._known: Timeline | StandIn = StandIn(carbon)
        self.poller = Poller(
            carbon,
            source,
            Cache(carbon, question_key(carbon, token)),
            clock=self._clock,
            take=self._take,
            listener=listener,
        )

    def open(self) -> None:
        """Start asking, and wait for the first answer, ``carbon.timeout_s`` at most.

        Raises ``SignalUnavailable`` for a failure that only a change of the set-up can mend; any
        other is logged, and the cached values or the yearly average serve.
        """
        if not self.poller.open():
            logger.warning(
                "greenserve: carbon.source %s gave no answer within %g s; %s until it does",
                self._carbon.source,
                self._carbon.timeout_s,
                "what is cached serves"
                if isinstance(self._known, Timeline)
                else "the yearly average serves",
            )
        error = self.poller.error
        if error is not None and error.is_permanent:
            self.close()
            raise error

    @property
    def problem(self) -> str:
        """The newest failure to get an answer, this process's or the polling one's; else ""."""
        error = self.poller.error
        return "" if error is None else f"{error} ({error.reason})"

    def view(self, now_s: float) -> GridView:
        """The snapshot at ``now_s``, with the forecast from there on."""
        known = self._known  # replaced whole by the poller's thread
        start_s, end_s, view = known.slice
        return view if start_s <= now_s < end_s else known.view(now_s)

    def intensity_at(self, at_s: float) -> float:
        """Intensity in g/kWh at an instant; what ``view`` says for it."""
        return self._known.intensity_at(at_s)

    def next_change_s(self, now_s: float) -> float:
        """When ``view`` will next answer something else that is foreseen now."""
        return self.view(now_s).valid_until_s

    def close(self) -> None:
        """Stop asking, within two seconds. The last views stay."""
        self.poller.close()

    def _take(self, snapshot: Snapshot) -> None:
        now_s, to_steady_s = self._clock.now(), self._clock.from_wall(0.0)
        heard_s = snapshot.fetched_at_s + to_steady_s
        if heard_s > now_s + CLOCK_SLACK_S:
            heard_s = -math.inf  # written before the wall clock was set back: of no known age
        known = Timeline(
            snapshot,
            self._carbon,
            # Whole seconds: the corrections of NTP must not move the edges of slots about.
            offset_s=float(round(to_steady_s)),
            heard_s=min(heard_s, now_s),
            period_s=self.poller.period_s,
        )
        known.view(now_s)  # the first to ask finds it built
        self._known = known


def _require_average(carbon: CarbonConfig) -> None:
    """Refuse to fall back on values that would not compare with those of the source."""
    remedy = 'Set carbon.on_stale to "off" or "last"'
    if carbon.kind != "average":
        raise ConfigError(
            "carbon.on_stale",
            f'is "static", but the yearly averages are no {carbon.kind} values',
            remedy=remedy,
        )
    try:
        basis = look_up(carbon.zone).basis
    except ConfigError as error:
        raise ConfigError(
            "carbon.on_stale", f'is "static", but there is {error.problem}', remedy=remedy
        ) from error
    if carbon.basis not in {"any", basis}:
        raise ConfigError(
            "carbon.on_stale",
            f'is "static", but the yearly average of {carbon.zone} is of {basis} basis',
            remedy=remedy,
        )
