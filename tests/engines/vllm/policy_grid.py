"""The recorded grid of the policy server, and its config."""

from __future__ import annotations

from pathlib import Path

# Two dirty hours, one clean one, over and over; played at two minutes a second.
GRID_HOURS = 24 * 60
GRID_SPEED = 120


def grid_csv() -> str:
    """The recorded grid of the policy server."""
    rows = ["time,intensity_g_per_kwh"]
    for hour in range(GRID_HOURS):
        day, hour_of_day = divmod(hour, 24)
        month, day = divmod(day, 28)
        value = 100 if hour % 3 == 2 else 500
        rows.append(f"2024-{month + 1:02}-{day + 1:02}T{hour_of_day:02}:00Z,{value}")
    return "\n".join(rows) + "\n"


def policy_config(folder: Path, policies: str = "") -> str:
    """Config of the policy server, with a ``[policies]`` table to choose."""
    return f"""
[carbon]
source = "file"
zone = "DE"
path = "{folder}/grid.csv"
replay_start = "2024-01-01T00:00Z"
speed = {GRID_SPEED}
forecast = "recorded"
[energy]
meter = "model"
[ledger]
path = "{folder}/ledger.sqlite"
[policies]
budget_ms = 2000
{policies}
"""
