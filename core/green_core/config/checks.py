"""Checks on values that their types cannot express, and the words of a refusal."""

from __future__ import annotations

import difflib
import math

from green_core.config.schema import GreenConfig, Table
from green_core.errors import ConfigError

LIVE_SOURCES = ("uk", "electricity_maps", "watttime", "carbon_aware_sdk", "prometheus")
BUILT_IN_SOURCES = ("static", "file", "yearly", *LIVE_SOURCES)

# Beyond these a value is a slip of the unit, and some would overflow what is computed with them.
_MOST = {
    "carbon.forecast_hours": 24.0 * 14,
    "carbon.high_threshold": 1e5,
    "carbon.speed": 1e6,
    "carbon.timeout_s": 300.0,
    "carbon.poll_s": 86_400.0,
    "carbon.stale_after_s": 30 * 86_400.0,
    "energy.static_w": 1e6,
    "energy.flop_j": 1e-6,
    "energy.byte_j": 1e-3,
    "energy.pue": 100.0,
    "energy.embodied_g_per_device": 1e9,
    "admission.max_hold_s": 366 * 86_400.0,
    "admission.default_deadline_s": 366 * 86_400.0,
    "admission.batch_window_s": 60.0,
    "marks.max_deadline_s": 366 * 86_400.0,
}


def require(condition: bool, path: str, problem: str, remedy: str = "") -> None:
    """Raise ``ConfigError`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(path, problem, remedy=remedy)


def nearest(name: str, known: list[str]) -> str:
    """A remedy sentence: the closest known names, or all of them."""
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return "Did you mean " + " or ".join(repr(c) for c in close) + "?"
    return "Known: " + ", ".join(sorted(known))


def check_ranges(config: GreenConfig) -> None:
    """Raise ``ConfigError`` for the first key whose value makes no sense."""
    for table in config.__struct_fields__:
        values = getattr(config, table)
        for name in values.__struct_fields__ if isinstance(values, Table) else ():
            value = getattr(values, name)
            if isinstance(value, float):
                require(
                    math.isfinite(value) and value >= 0,
                    f"{table}.{name}",
                    f"must be a finite number of at least 0, not {value}",
                )
    for path, most in _MOST.items():
        table, _, name = path.partition(".")
        value = getattr(getattr(config, table), name)
        if value is not None:
            require(value <= most, path, f"must be at most {most:g}, not {value:g}")
    carbon, energy, cache, policies = config.carbon, config.energy, config.cache, config.policies
    require(
        carbon.medium_threshold <= carbon.high_threshold,
        "carbon.medium_threshold",
        f"{carbon.medium_threshold} is above carbon.high_threshold ({carbon.high_threshold})",
        "Lower it, or raise the other",
    )
    require(carbon.speed > 0, "carbon.speed", "must be above 0", "1 plays at real speed")
    require(
        carbon.source not in {"file", "yearly"} or bool(carbon.path),
        "carbon.path",
        f'is empty while carbon.source is "{carbon.source}"',
        "Name the file that holds the values",
    )
    wrong = {"file": "source", "static": ""}.get(carbon.source, "recorded")
    require(
        carbon.forecast != wrong or carbon.source not in BUILT_IN_SOURCES,
        "carbon.forecast",
        f'is "{wrong}", which the source {carbon.source!r} does not have',
        'Set "auto", "persistence" or "none"',
    )
    require(carbon.timeout_s > 0, "carbon.timeout_s", "must be above 0", "10 is usual")
    require(
        carbon.poll_s == 0 or carbon.poll_s >= 10,
        "carbon.poll_s",
        f"is {carbon.poll_s:g}; no service publishes that often",
        "Set 0 (as often as the source publishes) or at least 10",
    )
    require(
        carbon.stale_after_s >= 60,
        "carbon.stale_after_s",
        f"is {carbon.stale_after_s:g}, shorter than any source's period",
        "Set at least 60; 7200 is the default",
    )
    require(energy.pue >= 1, "energy.pue", f"must be at least 1, not {energy.pue}")
    require(energy.lifetime_years > 0, "energy.lifetime_years", "must be above 0")
    require(energy.embodied_share <= 1, "energy.embodied_share", "must be at most 1")
    require(
        cache.min_ratio <= cache.max_ratio <= 1,
        "cache.max_ratio",
        "must lie between cache.min_ratio and 1",
    )
    require(0 < config.slo.attainment <= 1, "slo.attainment", "must lie in (0, 1]")
    require(config.slo.latency_ms > 0, "slo.latency_ms", "must be above 0")
    require(config.slo.itl_ms > 0, "slo.itl_ms", "must be above 0")
    require(policies.budget_ms > 0, "policies.budget_ms", "must be above 0")
    require(config.admission.max_held >= 0, "admission.max_held", "must be at least 0")
    require(config.telemetry.max_tenants >= 1, "telemetry.max_tenants", "must be at least 1")
    families = {"batch", "admission", "cache", "eviction", "kv", "exit", "power"}
    for family in policies.shadow:
        require(
            family in families,
            "policies.shadow",
            f"unknown family {family!r}",
            nearest(family, sorted(families)),
        )
