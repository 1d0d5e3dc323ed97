"""The schema: every table and key, with its unit and default, and the profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from green_core.values import GridState, Urgency


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every table: unknown keys are errors."""


class CarbonConfig(Table, frozen=True):
    """Where the grid signal comes from and how it is judged.

    Secrets are no part of it: they stand in ``token_file`` or in ``GREEN_CARBON_TOKEN``.
    """

    source: str = "static"  # static | file | yearly | a live source | name of a plugin
    zone: str = ""  # grid zone or cloud region ("DE", "aws:eu-central-1")
    kind: Literal["average", "marginal"] = "average"
    basis: Literal["any", "lifecycle", "direct"] = "any"  # what values count; any: as served
    high_threshold: float = 300.0  # g/kWh; at or above: dirty
    medium_threshold: float = 200.0  # g/kWh; at or above: medium
    url: str = ""  # live sources: base URL, where it is not the service's own
    query: str = ""  # prometheus: PromQL that answers one series
    unit: str = "g/kWh"  # prometheus: unit of what the query answers
    username: str = ""  # watttime: the account; its password is the token
    token_file: str = ""  # file that holds the token and nothing else
    ca_file: str = ""  # PEM bundle to trust instead of the usual ones
    timeout_s: float = 10.0  # longest wait for one answer
    poll_s: float = 0.0  # 0: as often as the source itself publishes
    stale_after_s: float = 7_200.0  # age beyond which the last word is no longer believed
    on_stale: Literal["off", "last", "static"] = "off"  # policies off | last value | yearly average
    allow_synthetic: bool = False  # accept a sandbox's made-up values
    cache_dir: str = ""  # empty: the user's cache folder
    path: str = ""  # file and yearly sources: CSV or JSON
    time_column: str = ""  # file source: found by name when empty
    value_column: str = ""
    replay_start: str = ""  # file source: ISO 8601 with offset; empty: play at its own dates
    speed: float = 1.0  # file source: data seconds per wall second
    forecast: Literal["auto", "source", "recorded", "persistence", "none"] = "auto"
    forecast_hours: float = 24.0

    def state(self, intensity_g_per_kwh: float) -> GridState:
        """Judge an intensity against the two thresholds."""
        if intensity_g_per_kwh >= self.high_threshold:
            return GridState.DIRTY
        if intensity_g_per_kwh >= self.medium_threshold:
            return GridState.MEDIUM
        return GridState.CLEAN


class EnergyConfig(Table, frozen=True):
    """How joules are measured, estimated and shared out."""

    meter: str = "auto"  # auto | model | meters joined by "+" | name of a plugin
    dcgm_url: str = "http://127.0.0.1:9400/metrics"  # dcgm: the exporter's page
    pue: float = 1.2
    static_w: float | None = None  # model overrides; None: from the device table
    flop_j: float | None = None  # joules per FLOP
    byte_j: float | None = None  # joules per byte moved
    idle: Literal["apart", "shared"] = "apart"  # shared: split over requests by active time
    embodied_g_per_device: float | None = None  # gCO2e to make one; None: as the table has it
    lifetime_years: float = 4.0
    embodied_share: float = 1.0  # share of the device reserved for this server (SCI's RS)


class SloConfig(Table, frozen=True):
    """Latency objectives that policies must keep."""

    latency_ms: float = 500.0  # TTFT objective of interactive requests
    itl_ms: float = 50.0  # inter-token latency objective
    attainment: float = 0.99


class CacheConfig(Table, frozen=True):
    """Bounds of the reusable share of the KV pool."""

    min_ratio: float = 0.4
    max_ratio: float = 0.9


class AdmissionConfig(Table, frozen=True):
    """Bounds on holding. A policy can only hold less."""

    default_class: Urgency = "interactive"
    max_hold_s: float = 86_400.0
    max_held: int = 10_000
    default_deadline_s: float = 3_600.0  # for flex requests that name none
    batch_window_s: float = 0.2  # longest wait of a standard request for company
    parallel_max_hold_s: float = 2.0  # bound under data parallelism (idle ranks run dummy steps)


class MarksConfig(Table, frozen=True):
    """Who may mark requests, and with what. Callers not allowed have their marks ignored."""

    allow: tuple[Literal["class", "deadline", "tenant", "stop"], ...] = (
        "class",
        "deadline",
        "tenant",
        "stop",
    )
    callers: tuple[str, ...] = ("any",)  # "any", CIDR blocks, or "key:SHA256" of a bearer token
    default_tenant: str = "default"
    max_deadline_s: float = 7 * 86_400.0


class PoliciesConfig(Table, frozen=True):
    """One policy by name for each family; empty: the engine's own behaviour."""

    enabled: bool = True  # false: the one switch back to stock
    batch: str = ""
    admission: str = ""
    cache: str = ""
    eviction: str = ""
    kv: str = ""
    exit: str = ""
    power: str = ""
    shadow: tuple[str, ...] = ()  # families that decide nothing and only report
    observers: tuple[str, ...] = ()  # plugins with observer hooks, in this order
    block: tuple[str, ...] = ()  # plugin names never loaded
    budget_ms: float = 500.0  # longest a decision may take before its policy is switched off
    params: dict[str, dict[str, Any]] = {}

    def choice(self, family: str) -> str:
        """Name of the policy chosen for ``family``; empty for stock behaviour."""
        name: str = getattr(self, family)
        return name


class TelemetryConfig(Table, frozen=True):
    """What is shown, and where."""

    usage: bool = True  # put "green" into the answer's usage
    metrics: bool = True
    traces: bool = True
    max_tenants: int = 100  # label values on /metrics; the rest is summed as "other"


class LedgerConfig(Table, frozen=True):
    """The record of requests by tenant."""

    path: str = ""  # SQLite file; empty: no ledger
    keep_days: float = 400.0


class GreenConfig(Table, frozen=True):
    """The whole tree."""

    profile: Literal["measure", "latency", "balanced", "cost", "carbon", "budget"] = "measure"
    carbon: CarbonConfig = CarbonConfig()
    energy: EnergyConfig = EnergyConfig()
    slo: SloConfig = SloConfig()
    cache: CacheConfig = CacheConfig()
    admission: AdmissionConfig = AdmissionConfig()
    marks: MarksConfig = MarksConfig()
    policies: PoliciesConfig = PoliciesConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    ledger: LedgerConfig = LedgerConfig()


# Named bundles of the same keys. `measure` is empty on purpose: nothing changes until asked.
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "measure": {},
    "latency": {"policies": {"batch": "slo"}, "slo": {"latency_ms": 250.0, "itl_ms": 30.0}},
    "balanced": {"policies": {"batch": "slo"}},
    "cost": {"policies": {"batch": "slo"}, "slo": {"latency_ms": 1000.0, "itl_ms": 100.0}},
    "carbon": {"policies": {"batch": "slo", "admission": "deadline"}},
    "budget": {
        "policies": {"batch": "slo", "admission": "deadline"},
        "slo": {"latency_ms": 1000.0, "itl_ms": 100.0},
    },
}
