"""Every metric of greenserve, declared once. Base units: joules, grams, seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class MetricSpec(msgspec.Struct, frozen=True):
    """One metric family.

    ``exclusive``: only the newest label set is shown (a value that describes the present, such
    as the intensity of the zone in use). ``buckets``: upper bounds of a histogram, without +Inf.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    exclusive: bool = False


_ENERGY_BUCKETS_J = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
_HOLD_BUCKETS_S = (0.1, 0.3, 1.0, 10.0, 60.0, 600.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)
# Fine around the goal of 50 us per step, so that percentiles read from it mean something.
_OVERHEAD_BUCKETS_S = (
    *(us / 1e6 for us in range(5, 60, 5)),
    *(us / 1e6 for us in (60, 70, 80, 90, 100, 120, 150, 200, 250, 300, 400, 500, 700)),
    *(1e-3, 2e-3, 5e-3, 1e-2, 5e-2),
)

_SPECS = (
    # --- energy and carbon
    MetricSpec(
        "greenserve_energy_joules_total",
        "counter",
        "Settled energy at the device by cause. 'idle' is static power, while requests ran and "
        "between them; the parts add up to what the meter counted for settled requests and idle.",
        ("part",),
    ),
    MetricSpec(
        "greenserve_phase_energy_joules_total",
        "counter",
        "The same energy by phase: prefill and decode of requests, and idle (no request).",
        ("phase",),
    ),
    MetricSpec(
        "greenserve_request_energy_joules_total",
        "counter",
        "Energy at the device of settled requests. Methods must not be added up unseen.",
        ("tenant", "urgency", "method"),
    ),
    MetricSpec(
        "greenserve_request_carbon_grams_total",
        "counter",
        "Operational and embodied gCO2e of settled requests, by kind of intensity.",
        ("tenant", "urgency", "kind"),
    ),
    MetricSpec(
        "greenserve_energy_per_request_joules",
        "histogram",
        "Energy at the device of one settled request.",
        ("urgency",),
        _ENERGY_BUCKETS_J,
    ),
    MetricSpec(
        "greenserve_active_energy_joules_total",
        "counter",
        "Energy of settled time that belongs to requests, running ones included. With idle it is "
        "what the meter counted.",
    ),
    MetricSpec(
        "greenserve_idle_energy_joules_total",
        "counter",
        "Energy of settled time that belongs to no request.",
    ),
    MetricSpec(
        "greenserve_idle_carbon_grams_total",
        "counter",
        "gCO2e of settled time that belongs to no request (its share by energy).",
    ),
    MetricSpec(
        "greenserve_cooling_energy_joules_total",
        "counter",
        "Facility energy of settled requests on top of the device's (PUE minus one).",
    ),
    MetricSpec(
        "greenserve_avoided_prefill_joules_total",
        "counter",
        "Estimated prefill energy that cached tokens saved. Part of no other sum.",
    ),
    MetricSpec(
        "llm_serving_energy_joules_per_token",
        "gauge",
        "Energy at the device per token computed (prefill and decode, without cached tokens), "
        "since the start. Idle is left out.",
        ("model", "quantization", "backend"),
        exclusive=True,
    ),
    # --- requests
    MetricSpec(
        "greenserve_requests_total",
        "counter",
        "Settled requests.",
        ("tenant", "urgency", "finish_reason"),
    ),
    MetricSpec(
        "greenserve_tokens_total",
        "counter",
        "Tokens of settled requests: prefill (computed), decode, cached (not recomputed).",
        ("phase",),
    ),
    MetricSpec("greenserve_held_requests", "gauge", "Requests held now."),
    MetricSpec(
        "greenserve_hold_seconds",
        "histogram",
        "Time a request was held by greenserve, noted when the hold ends.",
        ("urgency",),
        _HOLD_BUCKETS_S,
    ),
    MetricSpec(
        "greenserve_holds_released_total", "counter", "Holds that ended, by reason.", ("reason",)
    ),
    # --- batching
    MetricSpec("greenserve_batch_limit", "gauge", "Running requests allowed by the plan."),
    MetricSpec("greenserve_token_limit", "gauge", "Tokens per step allowed by the plan."),
    MetricSpec("greenserve_engine_batch_limit", "gauge", "The engine's own limit of requests."),
    # --- grid
    MetricSpec(
        "greenserve_carbon_intensity_grams_per_kwh",
        "gauge",
        "Carbon intensity in use, gCO2e/kWh.",
        ("zone", "kind", "basis", "source"),
        exclusive=True,
    ),
    MetricSpec(
        "greenserve_carbon_signal_quality",
        "gauge",
        "Always 1; 'fresh', 'stale' (the last word is too old) or 'fallback' (never heard).",
        ("quality",),
        exclusive=True,
    ),
    MetricSpec(
        "greenserve_carbon_fetches_total",
        "counter",
        "Usable answers of the carbon service to this process. One process of a host asks.",
        ("source",),
    ),
    MetricSpec(
        "greenserve_carbon_fetch_failures_total",
        "counter",
        "Questions to the carbon service that brought no usable answer.",
        ("source", "reason"),
    ),
    MetricSpec(
        "greenserve_carbon_signal_age_seconds", "gauge", "Time since the signal was observed."
    ),
    # --- power
    MetricSpec(
        "greenserve_power_limit_watts",
        "gauge",
        "Power limit that the policy has set; 0: none, the operator's own holds.",
    ),
    # --- policies
    MetricSpec(
        "greenserve_policy_active",
        "gauge",
        "1 while the policy decides, 0 while it is switched off.",
        ("family", "policy"),
    ),
    MetricSpec(
        "greenserve_policy_failures_total",
        "counter",
        "Times a policy raised, stalled or answered no decision.",
        ("family", "policy"),
    ),
    MetricSpec(
        "greenserve_shadow_decisions_total",
        "counter",
        "Decisions of a policy in shadow; none took effect.",
        ("family",),
    ),
    MetricSpec(
        "greenserve_shadow_differing_total",
        "counter",
        "Shadow decisions that differ from the engine's own behaviour.",
        ("family",),
    ),
    MetricSpec(
        "greenserve_shadow_saving_ratio",
        "gauge",
        "Drop of intensity from now to the start that the shadow policy would have chosen, as a "
        "share (estimated; averaged over all its decisions).",
        ("family",),
    ),
    MetricSpec(
        "greenserve_early_stops_total",
        "counter",
        "Settled requests that an exit policy ended, by the reason their clients saw.",
        ("policy", "reason"),
    ),
    MetricSpec(
        "greenserve_early_stop_tokens_saved_total",
        "counter",
        "Tokens between early stops and the clients' own limits (estimated: an upper bound, since "
        "an answer may end by itself).",
        ("policy", "reason"),
    ),
    MetricSpec(
        "greenserve_early_stop_joules_saved_total",
        "counter",
        "Energy at the device of those tokens (estimated at what each request's own tokens took). "
        "Part of no other sum.",
        ("policy", "reason"),
    ),
    MetricSpec(
        "greenserve_shadow_early_stops_total",
        "counter",
        "Settled requests that an exit policy in shadow would have ended.",
        ("policy", "reason"),
    ),
    MetricSpec(
        "greenserve_shadow_early_stop_tokens_total",
        "counter",
        "Tokens that came after the point at which it would have ended them.",
        ("policy", "reason"),
    ),
    # --- health
    MetricSpec("greenserve_meter_gaps_total", "counter", "Readings that the meter did not give."),
    MetricSpec(
        "greenserve_energy_uncertainty_ratio",
        "gauge",
        "Relative error of the method's totals, as published. Absent where nobody states one.",
        ("method",),
        exclusive=True,
    ),
    MetricSpec(
        "greenserve_rest_energy_joules_total",
        "counter",
        "Energy of the same devices that belongs to other processes. Part of no other sum.",
    ),
    MetricSpec("greenserve_ledger_failures_total", "counter", "Failures to open or write it."),
    MetricSpec(
        "greenserve_step_overhead_seconds",
        "histogram",
        "Time greenserve itself added to an engine step.",
        (),
        _OVERHEAD_BUCKETS_S,
    ),
    MetricSpec(
        "greenserve_info",
        "gauge",
        "Always 1; the labels describe the process.",
        ("version", "engine_name", "engine_version", "model", "device", "method", "profile"),
        exclusive=True,
    ),
)
CATALOGUE: Mapping[str, MetricSpec] = {spec.name: spec for spec in _SPECS}
