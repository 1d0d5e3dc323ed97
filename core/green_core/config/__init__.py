"""The configuration tree: TOML file, ``GREEN_*`` environment, profiles, precedence.

Precedence: flag > ``GREEN_*`` variable > file > profile > default. Unknown keys are refused with
their path. The parent process resolves once and freezes the result into ``GREEN_RESOLVED`` for
its children, so every process runs on the same values; secrets are never part of the tree.
"""

from green_core.config.checks import nearest, require
from green_core.config.load import (
    ENV_CONFIG,
    ENV_PREFIX,
    ENV_RESOLVED,
    Resolved,
    convert_params,
    env_names,
    freeze,
    load,
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
    "ENV_CONFIG",
    "ENV_PREFIX",
    "ENV_RESOLVED",
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
    "thaw",
]
