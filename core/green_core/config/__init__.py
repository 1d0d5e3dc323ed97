"""The configuration tree: TOML file, ``GREEN_*`` environment, profiles, precedence.

Precedence: flag > ``GREEN_*`` variable > file > profile > default. Unknown keys are refused with
their path. The parent process resolves once and freezes the result into ``GREEN_RESOLVED`` for
its children, so every process runs on the same values; secrets are never part of the tree.
"""

from green_core.config.checks import BUILT_IN_SOURCES, LIVE_SOURCES, nearest, require
from green_core.config.load import (
    ENV_CONFIG,
    ENV_PREFIX,
    ENV_RESOLVED,
    ENV_TOKEN,
    Resolved,
    convert_params,
    env_names,
    freeze,
    load,
    settings,
    thaw,
)
from green_core.config.schema import (
    PROFILES,
    AdmissionConfig,
    CacheConfig,
    CarbonConfig,
    EnergyConfig,
    GreenConfig,
    LedgerConfig,
    MarksConfig,
    PoliciesConfig,
    SloConfig,
    TelemetryConfig,
)

__all__ = [
    "BUILT_IN_SOURCES",
    "ENV_CONFIG",
    "ENV_PREFIX",
    "ENV_RESOLVED",
    "ENV_TOKEN",
    "LIVE_SOURCES",
    "PROFILES",
    "AdmissionConfig",
    "CacheConfig",
    "CarbonConfig",
    "EnergyConfig",
    "GreenConfig",
    "LedgerConfig",
    "MarksConfig",
    "PoliciesConfig",
    "Resolved",
    "SloConfig",
    "TelemetryConfig",
    "convert_params",
    "env_names",
    "freeze",
    "load",
    "nearest",
    "require",
    "settings",
    "thaw",
]
