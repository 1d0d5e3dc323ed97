"""The readable result: one table, the conditions, and what the numbers rest on."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from greendemo.checks import Check
from greendemo.control import Control
from greendemo.figures import CLASSES, Arm, change

WIDTH = 100
HEADER = (
    "", "requests", "TTFT s", "ITL ms", "wait s", "J/request", "mg/request", "joules", "mgCO2e"
)  # fmt: skip
LIMITS = (
    "What this rests on: a perfect forecast (the file's own future), a day chosen for its swing, "
    "a replay at {speed:g} times real speed (over real hours so few requests would hardly show "
    "beside idle power), {flex:.0%} of the requests' energy deferrable, and one short window. "
    "{how} "
    "On real grids, with 30 % of the load deferrable within a day and perfect knowledge, shifting "
    "in time saves 7.7 % of all carbon in California, 5.5 in Great Britain, 3.5 in Germany, 1.4 "
    "in PJM and 1.0 in Sweden; expect less with a real forecast."
)


def render_table(off: Arm, on: Arm, control: Control) -> str:
    """Both arms, the change between them, and the control, in at most 100 columns."""
    lines: list[Sequence[str]] = [HEADER]
    for arm in (off, on):
        lines += [(f"policies {arm.name}",), *_arm_lines(arm)]
    energy = change(off.account.energy_j, on.account.energy_j)
    carbon = change(off.account.carbon_g, on.account.carbon_g)
    lines += [
        ("off -> on",),
        _changes(off, on, "interactive"),
        _changes(off, on, "flex"),
        ("  total", *[""] * 6, f"{energy:+.1%}", f"{carbon:+.1%}"),
        (f"  total, flat grid at {control.intensity_g_per_kwh:.0f} g/kWh", *[""] * 6,
         f"{energy:+.1%}", f"{control.change:+.1%}"),
    ]  # fmt: skip
    return layout(lines)


def layout(lines: Sequence[Sequence[str]]) -> str:
    """Align: the first column left and as wide as the short labels, the others right."""
    columns = len(lines[0])
    widths = [
        max(len(line[i]) for line in lines if len(line) > i and (i or len(line[0]) < 16))
        for i in range(columns)
    ]
    text = []
    for line in lines:
        # A long label runs over the empty cells behind it.
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=False)]
        row = "  ".join(cells)
        if len(line[0]) > widths[0]:
            room = sum(widths) + 2 * (columns - 1)
            tail = "  ".join(c.rjust(w) for c, w in zip(line[-2:], widths[-2:], strict=True))
            row = line[0].ljust(room - len(tail)) + tail
        text.append(row.rstrip())
    rule = "-" * max(len(row) for row in text)
    return "\n".join([text[0], rule, *text[1:]])


def conclusion(off: Arm, on: Arm, *, speed: float) -> str:
    """What fell, by how much, and what that rests on."""
    flex_off, flex_on = off.figures("flex"), on.figures("flex")
    active_j = sum(off.figures(urgency).energy_j for urgency in CLASSES)
    energy = change(off.account.energy_j, on.account.energy_j)
    carbon = change(off.account.carbon_g, on.account.carbon_g)
    fell = (
        f"With policies on, the same requests in the same window, idle included: grams "
        f"{carbon:+.1%}, joules {energy:+.1%}. Flex requests alone: grams "
        f"{change(flex_off.carbon_g, flex_on.carbon_g):+.0%}, for a wait of {flex_on.wait_s:.0f} s "
        f"({flex_on.wait_s * speed / 3600:.0f} hours of the recorded day)."
    )
    limits = LIMITS.format(
        speed=speed, flex=flex_off.energy_j / active_j, how=method_note(on.method)
    )
    return f"{wrap(fell)}\n\n{wrap(limits)}"


def method_note(method: str) -> str:
    """Whether the joules were measured."""
    if method.startswith("estimated"):
        return (
            f"The joules are estimated ({method}): this machine has no energy counter that "
            "greenserve reads, so the step model prices each engine step."
        )
    return f"The joules are measured ({method})."


def render_checks(checks: Sequence[Check]) -> str:
    """One line for each condition, and one for what it was judged on."""
    return "\n".join(
        f"  {'ok  ' if check.holds else 'FAIL'}  {check.condition}\n"
        + textwrap.fill(check.found, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
        for check in checks
    )


def as_json(off: Arm, on: Arm, control: Control, checks: Sequence[Check]) -> dict[str, Any]:
    """All figures, in base units."""
    return {
        "arms": {arm.name: _arm_json(arm) for arm in (off, on)},
        "change": {
            "joules": change(off.account.energy_j, on.account.energy_j),
            "grams": change(off.account.carbon_g, on.account.carbon_g),
            "grams_on_flat_grid": control.change,
        },
        "flat_grid": {
            "intensity_g_per_kwh": control.intensity_g_per_kwh,
            "off_g": control.off_g,
            "on_g": control.on_g,
            "flex_held": control.held_flat,
        },
        "checks": [{"condition": c.condition, "holds": c.holds, "found": c.found} for c in checks],
    }


def wrap(text: str) -> str:
    """A paragraph that fits the page."""
    return textwrap.fill(text, WIDTH)


def _arm_lines(arm: Arm) -> list[Sequence[str]]:
    lines: list[Sequence[str]] = []
    for urgency in CLASSES:
        f = arm.figures(urgency)
        lines.append(
            (
                f"  {urgency}",
                str(f.requests),
                f"{f.ttft_s:.3f}",
                f"{f.itl_s * 1e3:.1f}",
                f"{f.wait_s:.2f}",
                f"{f.j_per_request:.2f}",
                f"{f.g_per_request * 1e3:.3f}",
                f"{f.energy_j:.1f}",
                f"{f.carbon_g * 1e3:.2f}",
            )
        )
    account = arm.account
    idle_g = account.carbon_g - sum(row.carbon_g for row in account.rows)
    total = str(len(account.rows))
    return [
        *lines,
        ("  idle", *[""] * 6, f"{account.idle_j:.1f}", f"{idle_g * 1e3:.2f}"),
        ("  total", total, *[""] * 5, f"{account.energy_j:.1f}", f"{account.carbon_g * 1e3:.2f}"),
    ]


def _changes(off: Arm, on: Arm, urgency: str) -> Sequence[str]:
    before, after = off.figures(urgency), on.figures(urgency)
    energy = f"{change(before.energy_j, after.energy_j):+.1%}"
    carbon = f"{change(before.carbon_g, after.carbon_g):+.1%}"
    waiting = urgency == "flex"  # their TTFT is the wait; a percentage says nothing
    return (
        f"  {urgency}",
        "",
        "" if waiting else f"{change(before.ttft_s, after.ttft_s):+.1%}",
        f"{change(before.itl_s, after.itl_s):+.1%}",
        f"{after.wait_s - before.wait_s:+.2f}",
        energy,
        carbon,
        energy,
        carbon,
    )


def _arm_json(arm: Arm) -> dict[str, Any]:
    account = arm.account
    return {
        "seconds": account.end_s - account.start_s,
        "method": arm.method,
        "joules": account.energy_j,
        "idle_joules": account.idle_j,
        "grams": account.carbon_g,
        "classes": {
            urgency: {
                "requests": (f := arm.figures(urgency)).requests,
                "ttft_s": f.ttft_s,
                "itl_s": f.itl_s,
                "wait_s": f.wait_s,
                "joules": f.energy_j,
                "grams": f.carbon_g,
                "joules_per_request": f.j_per_request,
                "grams_per_request": f.g_per_request,
            }
            for urgency in CLASSES
        },
    }
