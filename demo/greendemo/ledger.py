"""What the server's own ledger says about a span of wall time."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Row:
    """One request in the ledger. Instants are epoch seconds."""

    urgency: str
    arrival_s: float
    finished_s: float
    wait_s: float
    prompt_tokens: int
    output_tokens: int
    energy_j: float
    carbon_g: float
    method: str

    @property
    def started_s(self) -> float:
        """When it was first scheduled."""
        return self.arrival_s + self.wait_s


@dataclass(frozen=True)
class Interval:
    """Metered time: energy that requests used, and idle energy. Carbon includes the PUE."""

    start_s: float
    end_s: float
    active_j: float
    idle_j: float
    carbon_g: float

    def within(self, start_s: float, end_s: float) -> Interval:
        """The part that lies in a span; energy and carbon by time."""
        overlap_s = min(self.end_s, end_s) - max(self.start_s, start_s)
        share = max(0.0, overlap_s) / (self.end_s - self.start_s)
        return Interval(
            max(self.start_s, start_s),
            min(self.end_s, end_s),
            self.active_j * share,
            self.idle_j * share,
            self.carbon_g * share,
        )


@dataclass(frozen=True)
class Account:
    """One arm's books: the requests that arrived in its window, and all metered time of it."""

    start_s: float
    end_s: float
    rows: tuple[Row, ...]
    intervals: tuple[Interval, ...]

    @property
    def energy_j(self) -> float:
        """All energy of the window, idle included."""
        return sum(i.active_j + i.idle_j for i in self.intervals)

    @property
    def idle_j(self) -> float:
        """Energy of the window that no request used."""
        return sum(i.idle_j for i in self.intervals)

    @property
    def carbon_g(self) -> float:
        """All carbon of the window."""
        return sum(i.carbon_g for i in self.intervals)

    @property
    def unexplained_j(self) -> float:
        """What is left of the metered energy after requests and idle time."""
        return self.energy_j - self.idle_j - sum(row.energy_j for row in self.rows)

    def carbon_at(self, g_per_kwh: float, pue: float) -> float:
        """Carbon of the window had the intensity been this all the time."""
        return sum(
            (i.active_j + i.idle_j) * pue * g_per_kwh / JOULES_PER_KWH for i in self.intervals
        )

    def of(self, urgency: str) -> list[Row]:
        """The requests of one class, by arrival."""
        return [row for row in self.rows if row.urgency == urgency]


def read_account(path: Path, start_s: float, end_s: float) -> Account:
    """Read the books of the window ``start_s``..``end_s``."""
    span = {"start": start_s, "end": end_s}
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5.0)) as ledger:
        rows = ledger.execute(
            "SELECT urgency, arrival_s, finished_s, wait_s, prompt_tokens, output_tokens, energy_j,"
            " operational_g + embodied_g, method FROM requests"
            " WHERE arrival_s >= :start AND arrival_s < :end ORDER BY arrival_s",
            span,
        ).fetchall()
        intervals = ledger.execute(
            "SELECT start_s, end_s, active_j, idle_j, operational_g + embodied_g FROM intervals"
            " WHERE end_s > :start AND start_s < :end AND end_s > start_s ORDER BY start_s",
            span,
        ).fetchall()
    return Account(
        start_s,
        end_s,
        tuple(Row(*row) for row in rows),
        tuple(Interval(*interval).within(start_s, end_s) for interval in intervals),
    )


def settled_until_s(path: Path) -> float:
    """The wall time up to which the ledger's metered time reaches."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5.0)) as ledger:
        (end_s,) = ledger.execute("SELECT coalesce(max(end_s), 0) FROM intervals").fetchone()
    return float(end_s)
