"""What the demo must show; a condition that fails makes the run fail."""

from __future__ import annotations

from dataclasses import dataclass

from greendemo.control import Control
from greendemo.figures import CLASSES, Arm, change
from greendemo.grid import Replay
from greendemo.plan import Ask

MOST_TTFT_CHANGE = 0.10
MOST_JOULES_CHANGE = 0.02
MOST_FLAT_CHANGE = 0.03  # what batching by chance can change, on a busy machine
MOST_UNEXPLAINED = 0.01
LEAST_INTERACTIVE = 40


@dataclass(frozen=True)
class Check:
    """One condition, whether it holds, and the numbers it was judged on."""

    condition: str
    holds: bool
    found: str


def run_checks(
    plan: list[Ask], off: Arm, on: Arm, control: Control, replay: Replay, *, clean_below: float
) -> list[Check]:
    """Judge all conditions. ``clean_below`` is the intensity at which flex requests may start."""
    return [
        same_requests(plan, off, on),
        energy_adds_up(off, on),
        flex_waits(on, replay, clean_below),
        deadlines_kept(on),
        interactive_ttft(off, on),
        grams_fall(off, on),
        joules_stay(off, on),
        flat_grid_saves_nothing(control, len(off.account.of("flex"))),
    ]


def same_requests(plan: list[Ask], off: Arm, on: Arm) -> Check:
    """Requests, prompt tokens and output tokens agree in both arms and with the plan."""
    asked = {
        urgency: (
            sum(ask.urgency == urgency for ask in plan),
            sum(ask.max_tokens for ask in plan if ask.urgency == urgency),
        )
        for urgency in CLASSES
    }
    done = {urgency: (count, output) for urgency, (count, _, output) in off.work.items()}
    enough = asked["interactive"][0] >= LEAST_INTERACTIVE
    return Check(
        "both arms served the same requests and tokens",
        off.work == on.work and done == asked and enough,
        "; ".join(
            f"{urgency}: {count} requests, {prompt} tokens in, {output} out"
            + ("" if on.work[urgency] == off.work[urgency] else f" (on: {on.work[urgency]})")
            for urgency, (count, prompt, output) in off.work.items()
        ),
    )


def energy_adds_up(off: Arm, on: Arm) -> Check:
    """Requests and idle time explain the energy of the window."""
    shares = [abs(arm.account.unexplained_j) / arm.account.energy_j for arm in (off, on)]
    return Check(
        f"requests and idle add up to all joules (to {MOST_UNEXPLAINED:.0%})",
        max(shares) <= MOST_UNEXPLAINED,
        f"unexplained: off {shares[0]:.2%}, on {shares[1]:.2%}",
    )


def flex_waits(on: Arm, replay: Replay, clean_below: float) -> Check:
    """No flex request started while the grid was dirty, and all were held."""
    rows = on.account.of("flex")
    dirtiest = max(replay.intensity_at(row.started_s) for row in rows)
    arrived = min(replay.intensity_at(row.arrival_s) for row in rows)
    waits_s = [row.wait_s for row in rows]
    return Check(
        "flex requests wait while the grid is dirty",
        arrived >= clean_below > dirtiest and min(waits_s) > 0,
        f"came at {arrived:.0f} g/kWh or more, waited {min(waits_s):.0f} to {max(waits_s):.0f} s, "
        f"started at {dirtiest:.0f} or less",
    )


def deadlines_kept(on: Arm) -> Check:
    """Every flex answer was complete before its deadline, as the client saw it."""
    spare_s = min((a.due_s or 0.0) - a.end_s for a in on.of("flex"))
    return Check(
        "flex requests end before their deadlines",
        spare_s > 0,
        f"the last with {spare_s:.1f} s left",
    )


def interactive_ttft(off: Arm, on: Arm) -> Check:
    """Median TTFT of interactive requests, on against off (a fall is welcome)."""
    before, after = (arm.figures("interactive") for arm in (off, on))
    rise = change(before.ttft_s, after.ttft_s)
    return Check(
        f"interactive TTFT is within {MOST_TTFT_CHANGE:.0%} of the off arm",
        rise <= MOST_TTFT_CHANGE,
        f"median of {after.requests}: {before.ttft_s * 1e3:.0f} -> {after.ttft_s * 1e3:.0f} ms "
        f"({rise:+.1%})",
    )


def grams_fall(off: Arm, on: Arm) -> Check:
    """Carbon of the whole window, idle included."""
    fall = change(off.account.carbon_g, on.account.carbon_g)
    return Check("grams fall, idle included", fall < 0, f"{fall:+.1%}")


def joules_stay(off: Arm, on: Arm) -> Check:
    """Energy of the whole window, idle included."""
    rise = change(off.account.energy_j, on.account.energy_j)
    return Check(
        f"joules rise by no more than {MOST_JOULES_CHANGE:.0%}",
        rise <= MOST_JOULES_CHANGE,
        f"{rise:+.1%}",
    )


def flat_grid_saves_nothing(control: Control, flex: int) -> Check:
    """The saving comes from the grid: without its swing it is gone, and nothing is held."""
    return Check(
        f"on a flat grid the saving is about 0 (to {MOST_FLAT_CHANGE:.0%}) and nothing is held",
        abs(control.change) <= MOST_FLAT_CHANGE
        and control.held_flat == 0
        and control.held_recorded == flex,
        f"grams {control.change:+.1%}; held {control.held_flat} of {flex} "
        f"(recorded grid: {control.held_recorded})",
    )
