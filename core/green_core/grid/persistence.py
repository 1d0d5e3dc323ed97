"""The persistence forecast: the same hour of the newest day that is known.

The reference that any model has to beat; it uses nothing from the future.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

DAY_S = 86_400.0
NOTE = "; forecast: the same hour one day earlier"


def persistence(
    starts_s: Sequence[float],
    values: Sequence[float],
    *,
    present_s: float,
    present: float,
    start_s: float,
    horizon_s: float,
    step_s: float,
    ends_s: Sequence[float] = (),
) -> list[tuple[float, float]]:
    """Times from ``start_s`` to before ``horizon_s``, ``step_s`` apart, each with its value.

    ``values`` hold from ``starts_s`` on, in order of time. What starts after ``present_s`` (when
    the present value began) is not used. ``present`` is expected where no earlier day is known.
    With ``ends_s`` values end there, and a day with a gap at that hour is not known.
    """

    def a_day_before(at_s: float) -> float:
        days = max(1, math.ceil((at_s - present_s) / DAY_S))
        then_s = at_s - days * DAY_S
        past = bisect_right(starts_s, then_s) - 1
        while past >= 0 and ends_s and ends_s[past] <= then_s:
            then_s -= DAY_S
            past = bisect_right(starts_s, then_s) - 1
        return values[past] if past >= 0 else present

    times = (start_s + n * step_s for n in range(math.ceil((horizon_s - start_s) / step_s)))
    return [(at_s, a_day_before(at_s)) for at_s in times]
