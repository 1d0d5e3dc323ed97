"""The ledger: one SQLite file in which every joule of every tenant is written once.

Writers are engine processes, one connection each; readers open the file read-only.
"""

from green_core.export.ledger.dump import FORMATS, write_csv, write_jsonl
from green_core.export.ledger.patient import PatientLedger
from green_core.export.ledger.reader import (
    GROUPS,
    Balance,
    IdleTotals,
    Totals,
    balance,
    idle_totals,
    read_requests,
    totals,
    totals_by_tenant,
)
from green_core.export.ledger.schema import SCHEMA_VERSION
from green_core.export.ledger.writer import Ledger

__all__ = [
    "FORMATS",
    "GROUPS",
    "SCHEMA_VERSION",
    "Balance",
    "IdleTotals",
    "Ledger",
    "PatientLedger",
    "Totals",
    "balance",
    "idle_totals",
    "read_requests",
    "totals",
    "totals_by_tenant",
    "write_csv",
    "write_jsonl",
]
