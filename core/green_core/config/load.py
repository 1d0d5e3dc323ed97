"""Resolve a configuration: file, environment, flags, profile; freeze it for child processes."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from green_core.config.checks import check_ranges, nearest
from green_core.config.schema import PROFILES, GreenConfig, PoliciesConfig, Table
from green_core.errors import ConfigError

T = TypeVar("T")
ENV_PREFIX = "GREEN_"
ENV_CONFIG = "GREEN_CONFIG"
ENV_RESOLVED = "GREEN_RESOLVED"
ENV_TOKEN = "GREEN_CARBON_TOKEN"  # a secret, so it is never part of the tree
# Variables with our prefix that steer the pack itself and are not keys of the tree.
RESERVED_ENV = frozenset(
    {
        "GREEN_ENABLE",
        ENV_CONFIG,
        ENV_RESOLVED,
        ENV_TOKEN,
        "GREEN_RUN_DIR",
        "GREEN_EPOCH",
        "GREEN_TRACE_HOOKS",
    }
)
# Kubernetes injects these for a Service called "green"; they are nobody's spelling mistake.
_FROM_KUBERNETES = re.compile(r"GREEN_(SERVICE_(HOST|PORT)|PORT)(_|$)").match


class Resolved(msgspec.Struct, frozen=True):
    """A config with where each key came from: ``{"carbon.zone": "file green.toml", ...}``.

    Keys that are absent from ``origins`` have their default.
    """

    config: GreenConfig
    origins: dict[str, str]
    file: str = ""  # absolute path of the file to watch; empty: none
    overrides: dict[str, Any] = {}  # the flags, so that a reload applies them again


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
            "profile", f"unknown profile {profile!r}", remedy=nearest(str(profile), list(PROFILES))
        )
    for key, value in _flatten(PROFILES[profile]).items():
        if key not in merged:
            merged[key] = value
            origins[key] = f"profile {profile}"
    config = _convert(GreenConfig, _unflatten(merged), "")
    check_ranges(config)
    path = os.path.abspath(file) if file else ""
    return Resolved(config, origins, path, dict(overrides or {}))


def freeze(resolved: Resolved) -> str:
    """The value of ``GREEN_RESOLVED`` that makes child processes use this very config."""
    return msgspec.json.encode(resolved).decode()


def thaw(text: str) -> Resolved:
    """Inverse of :func:`freeze`."""
    return msgspec.json.decode(text.encode(), type=Resolved)


def settings(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    """Every key of the tree with its effective value and where that comes from."""
    for name, content in msgspec.structs.asdict(resolved.config).items():
        if isinstance(content, msgspec.Struct):
            for leaf, value in msgspec.structs.asdict(content).items():
                key = f"{name}.{leaf}"
                yield key, value, resolved.origins.get(key, "default")
        else:
            yield name, content, resolved.origins.get(name, "default")


def convert_params(cls: type[T], params: Mapping[str, Any], path: str) -> T:
    """Turn a policy's own table into ``cls``; a bad key raises ``ConfigError`` under ``path``."""
    return _convert(cls, dict(params), path)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            str(path),
            f"cannot be read ({error.strerror})",
            remedy="Check the path given to --green-config or GREEN_CONFIG, and its permissions",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
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


def _tables() -> Iterator[tuple[str, type[Table]]]:
    for field in msgspec.structs.fields(GreenConfig):
        if isinstance(field.type, type) and issubclass(field.type, Table):
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
        if not name.startswith(ENV_PREFIX) or name in RESERVED_ENV or _FROM_KUBERNETES(name):
            continue
        if name not in known:
            raise ConfigError(name, "unknown variable", remedy=nearest(name, list(known)))
        found[known[name]] = _parse_env(known[name], text)
    return found


def _parse_env(key: str, text: str) -> Any:
    table, _, leaf = key.rpartition(".")
    cls: type[Table] = dict(_tables())[table] if table else GreenConfig
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
