"""The reading side of the ledger: rows, totals and the audit of the books.

Spans of time are half-open, ``since_s <= t < until_s``; ``None`` leaves an end open.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from green_core.errors import LedgerUnavailable
from green_core.export.ledger import schema

GroupBy: TypeAlias = Literal["tenant", "urgency", "model"]
GROUPS: tuple[GroupBy, ...] = ("tenant", "urgency", "model")
# Sums of many doubles differ in their last digits; this is far above that and far below a request.
_TOLERANCE = 1e-6


class Totals(msgspec.Struct, frozen=True):
    """Sums over the requests of one group.

    Measured and estimated joules, average and marginal grams, and grams of different basis are
    never added up (FIELD E13, G12): a group has one row for each ``method``, ``kind`` and
    ``basis`` in it.
    ``unsettled`` counts requests whose last step the meter had not seen.
    """

    group: str
    method: str
    kind: str
    basis: str
    requests: int
    unsettled: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    energy_j: float
    cooling_j: float
    avoided_j: float
    operational_g: float
    embodied_g: float

    @property
    def carbon_g(self) -> float:
        """Operational and embodied carbon, gCO2e."""
        return self.operational_g + self.embodied_g


class IdleTotals(msgspec.Struct, frozen=True):
    """Energy of settled time by method; ``idle_j`` of ``metered_j`` belongs to no request.

    ``idle_g`` is idle's share of the carbon of each stretch, by energy.
    """

    method: str
    metered_j: float
    idle_j: float
    idle_g: float


class Balance(msgspec.Struct, frozen=True):
    """The audit of one engine process: requests plus idle against all that was metered.

    ``closed`` says whether it ended in order; then the books must agree. Until then, or if it was
    killed, requests that have not ended are metered but not written, so energy may be left over.
    And the newest second of metered time may still be unwritten, so that up to ``tail_j``, the
    energy of requests that ended after the last interval, may be missing.
    """

    instance_id: str
    engine: str
    engine_index: int
    model: str
    closed: bool
    requests_j: float
    idle_j: float
    metered_j: float
    tail_j: float

    @property
    def difference_j(self) -> float:
        """Metered energy that no row explains; negative when rows hold more than was metered."""
        return self.metered_j - self.requests_j - self.idle_j

    @property
    def balanced(self) -> bool:
        """Whether the books agree, as far as they can (see above)."""
        tolerance_j = _TOLERANCE * max(1.0, abs(self.metered_j))
        if self.closed:
            return abs(self.difference_j) <= tolerance_j
        return self.difference_j >= -tolerance_j - self.tail_j


def read_requests(
    path: str | os.PathLike[str],
    *,
    since_s: float | None = None,
    until_s: float | None = None,
    tenant: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows of requests by their end time, oldest first; keys are the table's columns.

    The file is checked at once (``LedgerUnavailable``); the rows are then streamed.
    """
    _connect(path).close()
    return _stream(path, *_where("finished_s", since_s, until_s, tenant))


def totals(
    path: str | os.PathLike[str],
    *,
    by: GroupBy = "tenant",
    since_s: float | None = None,
    until_s: float | None = None,
    tenant: str | None = None,
) -> list[Totals]:
    """Sums by ``by``, method, kind and basis, the largest energy first."""
    if by not in GROUPS:
        raise ValueError(f"by={by!r}: expected one of {GROUPS}")
    where, values = _where("finished_s", since_s, until_s, tenant)
    sql = (
        f"SELECT {by}, method, kind, basis, count(*), sum(NOT settled), sum(prompt_tokens),"
        " sum(cached_tokens), sum(output_tokens), sum(energy_j), sum(cooling_j), sum(avoided_j),"
        f" sum(operational_g), sum(embodied_g) FROM requests{where}"
        f" GROUP BY {by}, method, kind, basis"
        f" ORDER BY sum(energy_j) DESC, {by}, method, kind, basis"
    )
    return [Totals(*row) for row in _query(path, sql, values)]


def totals_by_tenant(
    path: str | os.PathLike[str], *, since_s: float | None = None, until_s: float | None = None
) -> list[Totals]:
    """Sums by tenant, method, kind and basis."""
    return totals(path, by="tenant", since_s=since_s, until_s=until_s)


def idle_totals(
    path: str | os.PathLike[str], *, since_s: float | None = None, until_s: float | None = None
) -> list[IdleTotals]:
    """Energy of the settled time that ended in the span, by method."""
    where, values = _where("end_s", since_s, until_s, None)
    sql = (
        "SELECT method, sum(active_j + idle_j), sum(idle_j),"
        " sum(iif(active_j + idle_j > 0,"
        " (operational_g + embodied_g) * idle_j / (active_j + idle_j), 0))"
        f" FROM intervals{where} GROUP BY method ORDER BY method"
    )
    return [IdleTotals(*row) for row in _query(path, sql, values)]


_BALANCE = """
    WITH metered AS (
        SELECT instance_id, sum(idle_j) AS idle_j, sum(active_j + idle_j) AS metered_j,
               max(end_s) AS end_s
        FROM intervals GROUP BY instance_id
    ), billed AS (
        SELECT r.instance_id, sum(r.energy_j) AS energy_j,
               sum(iif(r.finished_s > coalesce(m.end_s, 0), r.energy_j, 0)) AS tail_j
        FROM requests r LEFT JOIN metered m USING (instance_id) GROUP BY r.instance_id
    )
    SELECT i.instance_id, i.engine, i.engine_index, i.model, i.ended_s IS NOT NULL AS closed,
           i.pruned_requests_j + coalesce(b.energy_j, 0) AS requests_j,
           i.pruned_idle_j + coalesce(m.idle_j, 0) AS idle_j,
           i.pruned_metered_j + coalesce(m.metered_j, 0) AS metered_j,
           coalesce(b.tail_j, 0) AS tail_j
    FROM instances i LEFT JOIN billed b USING (instance_id) LEFT JOIN metered m USING (instance_id)
    WHERE :id IS NULL OR i.instance_id = :id ORDER BY i.started_s
"""


def balance(path: str | os.PathLike[str], *, instance_id: str | None = None) -> list[Balance]:
    """Audit each engine process in the ledger (or one), oldest first; pruned rows are counted."""
    rows = _query(path, _BALANCE, {"id": instance_id})
    return [
        msgspec.convert(
            dict(zip(Balance.__struct_fields__, row, strict=True)), Balance, strict=False
        )
        for row in rows
    ]


def _connect(path: str | os.PathLike[str]) -> sqlite3.Connection:
    file = Path(path).absolute()
    if not file.is_file():
        raise LedgerUnavailable(
            f"{file}: no such file. Give the file that ledger.path names in the config"
        )
    # Read-only still needs the shared-memory file beside the ledger. Where the directory refuses
    # it and no writer's log lies there (a backup, a mounted copy), the file cannot change either.
    frozen = not os.access(file.parent, os.W_OK) and not Path(f"{file}-wal").exists()
    mode = "mode=ro&immutable=1" if frozen else "mode=ro"
    with schema.errors_told(file):
        connection = sqlite3.connect(
            f"{file.as_uri()}?{mode}", uri=True, timeout=schema.BUSY_TIMEOUT_S
        )
        try:
            found = schema.version(connection, file)
            if not found:
                raise LedgerUnavailable(f"{file}: is empty. No engine has written to it yet")
            if view := schema.VIEWS.get(found):
                connection.execute(view)
        except BaseException:
            connection.close()
            raise
    return connection


def _query(path: str | os.PathLike[str], sql: str, values: Any) -> list[Any]:
    with closing(_connect(path)) as connection, schema.errors_told(Path(path)):
        return connection.execute(sql, values).fetchall()


def _stream(
    path: str | os.PathLike[str], where: str, values: list[Any]
) -> Iterator[dict[str, Any]]:
    names = schema.REQUEST_COLUMNS
    with closing(_connect(path)) as connection, schema.errors_told(Path(path)):
        for row in connection.execute(
            f"SELECT {', '.join(names)} FROM requests{where} ORDER BY finished_s, id", values
        ):
            record = dict(zip(names, row, strict=True))
            record["settled"] = bool(record["settled"])
            yield record


def _where(
    ended: str, since_s: float | None, until_s: float | None, tenant: str | None
) -> tuple[str, list[Any]]:
    conditions = {f"{ended} >= ?": since_s, f"{ended} < ?": until_s, "tenant = ?": tenant}
    used = {sql: value for sql, value in conditions.items() if value is not None}
    return (" WHERE " + " AND ".join(used) if used else ""), list(used.values())
