"""The configuration tree: TOML file, ``GREEN_*`` environment, profiles, precedence.

Precedence: flag > ``GREEN_*`` variable > file > profile > default. Unknown keys are refused with
their path. The parent process resolves once and freezes the result into ``GREEN_RESOLVED`` for
its children, so every process runs on the same values; secrets are never part of the tree.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from green_core.errors import ConfigError
from green_core.values import GridState, Urgency

T = TypeVar("T")
ENV_PREFIX = "GREEN_"
ENV_CONFIG = "GREEN_CONFIG"
ENV_RESOLVED = "GREEN_RESOLVED"
# Variables with our prefix that steer the pack itself and are not keys of the tree.
RESERVED_ENV = frozenset(
    {"GREEN_ENABLE", ENV_CONFIG, ENV_RESOLVED, "GREEN_RUN_DIR", "GREEN_EPOCH", "GREEN_TRACE_HOOKS"}
)


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every table: unknown keys are errors."""


class CarbonConfig(_Table, frozen=True):
    """Where the grid signal comes from and how it is judged."""

    source: str = "static"  # static | file | name of a plugin
    zone: str = ""  # grid zone or cloud region ("DE", "aws:eu-central-1")
    kind: Literal["average", "marginal"] = "average"
    high_threshold: float = 300.0  # g/kWh; at or above: dirty
    medium_threshold: float = 200.0  # g/kWh; at or above: medium
    path: str = ""  # file source: CSV or JSON
    time_column: str = ""  # file source: found by name when empty
    value_column: str = ""
    replay_start: str = ""  # file source: ISO 8601 with offset; empty: play at its own dates
    speed: float = 1.0  # file source: data seconds per wall second
    forecast: Literal["recorded", "persistence", "none"] = "persistence"
    forecast_hours: float = 24.0

    def state(self, intensity_g_per_kwh: float) -> GridState:
        """Judge an intensity against the two thresholds."""
        if intensity_g_per_kwh >= self.high_threshold:
            return GridState.DIRTY
        if intensity_g_per_kwh >= self.medium_threshold:
            return GridState.MEDIUM
        return GridState.CLEAN


class EnergyConfig(_Table, frozen=True):
    """How joules are measured, estimated and shared out."""

    meter: str = "auto"  # auto | nvml | model | name of a plugin
    pue: float = 1.2
    static_w: float | None = None  # model overrides; None: from the device table
    flop_j: float | None = None  # joules per FLOP
    byte_j: float | None = None  # joules per byte moved
    idle: Literal["apart", "shared"] = "apart"  # shared: split over requests by active time
    embodied_g_per_device: float = 0.0  # gCO2e to make one device; 0: left out
    lifetime_years: float = 4.0
    embodied_share: float = 1.0  # share of the device reserved for this server (SCI's RS)


class SloConfig(_Table, frozen=True):
    """Latency objectives that policies must keep."""

    latency_ms: float = 500.0  # TTFT objective of interactive requests
    itl_ms: float = 50.0  # inter-token latency objective
    attainment: float = 0.99


class CacheConfig(_Table, frozen=True):
    """Bounds of the reusable share of the KV pool."""

    min_ratio: float = 0.4
    max_ratio: float = 0.9


class AdmissionConfig(_Table, frozen=True):
    """Bounds on holding. A policy can only hold less."""

    default_class: Urgency = "interactive"
    max_hold_s: float = 86_400.0
    max_held: int = 10_000
    default_deadline_s: float = 3_600.0  # for flex requests that name none
    batch_window_s: float = 0.2  # longest wait of a standard request for company
    parallel_max_hold_s: float = 2.0  # bound under data parallelism (idle ranks run dummy steps)


class MarksConfig(_Table, frozen=True):
    """Who may mark requests, and with what. Callers not allowed have their marks ignored."""

    allow: tuple[Literal["class", "deadline", "tenant"], ...] = ("class", "deadline", "tenant")
    callers: tuple[str, ...] = ("any",)  # "any", CIDR blocks, or "key:SHA256" of a bearer token
    default_tenant: str = "default"
    max_deadline_s: float = 7 * 86_400.0


class PoliciesConfig(_Table, frozen=True):
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
    budget_ms: float = 50.0  # longest a decision may take before its policy is switched off
    params: dict[str, dict[str, Any]] = {}

    def choice(self, family: str) -> str:
        """Name of the policy chosen for ``family``; empty for stock behaviour."""
        name: str = getattr(self, family)
        return name


class TelemetryConfig(_Table, frozen=True):
    """What is shown, and where."""

    usage: bool = True  # put "green" into the answer's usage
    metrics: bool = True
    traces: bool = True
    max_tenants: int = 100  # label values on /metrics; the rest is summed as "other"


class LedgerConfig(_Table, frozen=True):
    """The record of requests by tenant."""

    path: str = ""  # SQLite file; empty: no ledger
    keep_days: float = 400.0


class GreenConfig(_Table, frozen=True):
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


class Resolved(msgspec.Struct, frozen=True):
    """A config with where each key came from: ``{"carbon.zone": "file green.toml", ...}``.

    Keys that are absent from ``origins`` have their default.
    """

    config: GreenConfig
    origins: dict[str, str]
    file: str = ""  # absolute path of the file to watch; empty: none


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Resolved:
    """Resolve the configuration.

    ``overrides`` are flags, keyed by dotted path. ``path`` wins over ``GREEN_CONFIG``.
    Raises ``ConfigError`` with the path of the first key that cannot be used.
    """
    env = os.environ if env is None else env
    file = os.fspath(path) if path else env.get(ENV_CONFIG, "")
    from_file = _read_toml(Path(file)) if file else {}
    layers = [
        ("file " + file, _flatten(_lift_policy_tables(from_file))),
        ("environment", _from_env(env)),
        ("flag", dict(overrides or {})),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in layers:
        for key, value in values.items():
            merged[key] = value
            origins[key] = origin
    profile = merged.get("profile", "measure")
    if profile not in PROFILES:
        raise ConfigError(
            "profile", f"unknown profile {profile!r}", remedy=_names(str(profile), PROFILES)
        )
    for key, value in _flatten(PROFILES[profile]).items():
        if key not in merged:
            merged[key] = value
            origins[key] = f"profile {profile}"
    config = _convert(GreenConfig, _unflatten(merged), "")
    _check_ranges(config)
    return Resolved(config, origins, os.path.abspath(file) if file else "")


def freeze(resolved: Resolved) -> str:
    """The value of ``GREEN_RESOLVED`` that makes child processes use this very config."""
    return msgspec.json.encode(resolved).decode()


def thaw(text: str) -> Resolved:
    """Inverse of :func:`freeze`."""
    return msgspec.json.decode(text.encode(), type=Resolved)


def convert_params(cls: type[T], params: Mapping[str, Any], path: str) -> T:
    """Turn a policy's own table into ``cls``; a bad key raises ``ConfigError`` under ``path``."""
    return _convert(cls, dict(params), path)


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


def _names(name: str, known: Mapping[str, Any]) -> str:
    return nearest(name, list(known))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            str(path),
            f"cannot be read ({error.strerror})",
            remedy="Check the path given to --green-config or GREEN_CONFIG, and its permissions",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            str(path), f"is not valid TOML ({error})", remedy="Mend the file"
        ) from error


def _lift_policy_tables(tree: dict[str, Any]) -> dict[str, Any]:
    """Move ``[policies.NAME]`` tables to where the schema keeps them."""
    policies = tree.get("policies")
    if not isinstance(policies, dict):
        return tree
    own = set(PoliciesConfig.__struct_fields__)
    tables = {k: v for k, v in policies.items() if k not in own and isinstance(v, dict)}
    rest = {k: v for k, v in policies.items() if k not in tables}
    if tables:
        rest["params"] = tables
    return {**tree, "policies": rest}


def _flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and _is_table(key):
            flat.update({f"{key}.{k}": v for k, v in value.items()})
        else:
            flat[key] = value
    return flat


def _unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        table, dot, leaf = key.partition(".")
        if dot:
            tree.setdefault(table, {})[leaf] = value
        else:
            tree[key] = value
    return tree


def _tables() -> Iterator[tuple[str, type[_Table]]]:
    for field in msgspec.structs.fields(GreenConfig):
        if isinstance(field.type, type) and issubclass(field.type, _Table):
            yield field.name, field.type


def _is_table(name: str) -> bool:
    return any(name == table for table, _ in _tables())


def env_names() -> dict[str, str]:
    """Every ``GREEN_*`` variable that sets a key: ``{"GREEN_CARBON_ZONE": "carbon.zone", ...}``."""
    names = {ENV_PREFIX + "PROFILE": "profile"}
    for table, cls in _tables():
        for field in cls.__struct_fields__:
            if (table, field) != ("policies", "params"):
                names[f"{ENV_PREFIX}{table}_{field}".upper()] = f"{table}.{field}"
    return names


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    known = env_names()
    found: dict[str, Any] = {}
    for name, text in env.items():
        if not name.startswith(ENV_PREFIX) or name in RESERVED_ENV:
            continue
        if name not in known:
            raise ConfigError(name, "unknown variable", remedy=_names(name, known))
        found[known[name]] = _parse_env(known[name], text)
    return found


def _parse_env(key: str, text: str) -> Any:
    table, _, leaf = key.rpartition(".")
    cls: type[_Table] = dict(_tables())[table] if table else GreenConfig
    field = next(f for f in msgspec.structs.fields(cls) if f.name == leaf)
    if isinstance(field.default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if isinstance(field.default, bool):
        lowered = text.strip().lower()
        if lowered in {"1", "true", "yes", "on"}:
            return True
        if lowered in {"0", "false", "no", "off"}:
            return False
        raise ConfigError(key, f"{text!r} is not true or false")
    if isinstance(field.default, (int, float)) or field.default is None:
        try:
            return int(text) if isinstance(field.default, int) else float(text)
        except ValueError as error:
            raise ConfigError(key, f"{text!r} is not a number") from error
    return text


def _convert(cls: type[T], tree: Mapping[str, Any], path: str) -> T:
    try:
        return msgspec.convert(tree, cls)
    except msgspec.ValidationError as error:
        raise _explain(error, cls, path) from error


def _explain(error: msgspec.ValidationError, cls: type, path: str) -> ConfigError:
    """msgspec says ``Object contains unknown field `x` - at `$.carbon` ``; say it our way."""
    problem, _, where = str(error).partition(" - at `")
    where = where.rstrip("`").lstrip("$").lstrip(".")
    key = ".".join(part for part in (path, where) if part)
    remedy = ""
    unknown = problem.partition("unknown field `")[2].rstrip("`")
    if unknown:
        owner = dict(_tables()).get(where, cls)
        remedy = nearest(unknown, list(getattr(owner, "__struct_fields__", ())))
        key, problem = f"{key}.{unknown}" if key else unknown, "unknown key"
    return ConfigError(key or "config", problem[:1].lower() + problem[1:], remedy=remedy)


def _check_ranges(config: GreenConfig) -> None:
    for table, cls in _tables():
        for name in cls.__struct_fields__:
            value = getattr(getattr(config, table), name)
            if isinstance(value, float):
                require(
                    math.isfinite(value) and value >= 0,
                    f"{table}.{name}",
                    f"must be a finite number of at least 0, not {value}",
                )
    carbon, energy, cache, policies = config.carbon, config.energy, config.cache, config.policies
    require(
        carbon.medium_threshold <= carbon.high_threshold,
        "carbon.medium_threshold",
        f"{carbon.medium_threshold} is above carbon.high_threshold ({carbon.high_threshold})",
        "Lower it, or raise the other",
    )
    require(carbon.speed > 0, "carbon.speed", "must be above 0", "1 plays at real speed")
    require(
        carbon.source != "file" or bool(carbon.path),
        "carbon.path",
        'is empty while carbon.source is "file"',
        "Name the CSV or JSON file that holds the signal",
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
