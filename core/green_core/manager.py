"""A typed façade over pluggy: discovery, order, blocking, isolation, tracing.

Plugins come from the entry-point group ``greenserve.policies`` and are loaded only when the
config names them; their order is the config's, never that of installation (FIELD P26).
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from green_core import spec
from green_core.config import GreenConfig, nearest
from green_core.errors import ConfigError, GreenError
from green_core.values import EngineInfo, Meter, RequestRecord, StepView

logger = logging.getLogger("greenserve")

GROUP = "greenserve.policies"
# Factory hook by family; the family is the key under [policies].
FAMILIES: Mapping[str, str] = {
    "batch": "green_batch_policy",
    "admission": "green_admission_policy",
    "cache": "green_cache_policy",
    "eviction": "green_eviction_key",
    "kv": "green_kv_policy",
    "exit": "green_exit_policy",
    "power": "green_power_policy",
}


class GreenManager:
    """Loads the plugins that a config names and calls their hooks.

    ``plugins`` (name → plugin) stands beside the installed ones; tests and embedders use it.
    Raises ``ConfigError`` for a name that is unknown, blocked or lacks the hook asked of it.
    """

    def __init__(self, config: GreenConfig, plugins: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self._pm = pluggy.PluginManager(spec.PROJECT)
        self._pm.add_hookspecs(spec)
        self._extra = dict(plugins or {})
        self._available = discover()
        self._loaded: dict[str, Any] = {}
        if os.environ.get("GREEN_TRACE_HOOKS") == "1":
            self._pm.trace.root.setwriter(lambda text: logger.info("%s", text.rstrip()))
            self._pm.enable_tracing()
        for name in self._wanted():
            self._load(name)
        self._pm.check_pending()

    @property
    def names(self) -> list[str]:
        """Every plugin name that the config could use."""
        return sorted({*self._available, *self._extra})

    def policy(self, family: str) -> Callable[..., Any] | None:
        """Build the policy that the config chose for ``family``; ``None`` for stock behaviour."""
        name = self.config.policies.choice(family)
        return self._make(name, FAMILIES[family], f"policies.{family}") if name else None

    def carbon_source(self) -> Any:
        """Build the signal of the plugin named by ``carbon.source``; ``None``: no such plugin."""
        if self.config.carbon.source not in self.names:
            return None
        return self._make(self.config.carbon.source, "green_carbon_source", "carbon.source")

    def meters(self, engine: EngineInfo) -> list[Meter]:
        """The meters of the plugin named by ``energy.meter``."""
        name = self.config.energy.meter
        self._load(name, "energy.meter")
        hook = self._caller(name, "green_meters", "energy.meter")
        return [meter for answer in hook(config=self.config, engine=engine) for meter in answer]

    def configure(self, engine: EngineInfo) -> None:
        """Tell every loaded plugin that a process starts; an error stops the start-up."""
        for name in self._loaded:
            if self._implements(name, "green_configure"):
                self._caller(name, "green_configure", name)(config=self.config, engine=engine)

    def unconfigure(self) -> None:
        """Tell every loaded plugin that the process ends; errors are logged."""
        for name in reversed(self._loaded):
            self._isolated(name, "green_unconfigure")

    def observe_step(self, step: StepView) -> None:
        """Tell observers of a step; each is isolated from the others (FIELD P25)."""
        for name in tuple(self._loaded):
            self._isolated(name, "green_on_step", step=step)

    def observe_request(self, record: RequestRecord) -> None:
        """Tell observers of a finished request; each is isolated from the others."""
        for name in tuple(self._loaded):
            self._isolated(name, "green_on_request", record=record)

    def has_observers(self, hook: str) -> bool:
        """Whether any loaded plugin implements ``hook``."""
        return bool(getattr(self._pm.hook, hook).get_hookimpls())

    def _wanted(self) -> Iterable[str]:
        policies = self.config.policies
        for family in FAMILIES:
            if name := policies.choice(family):
                yield name
        yield from policies.observers

    def _load(self, name: str, key: str = "policies") -> Any:
        if name in self._loaded:
            return self._loaded[name]
        if name in self.config.policies.block:
            raise ConfigError(key, f"{name!r} is named here and in policies.block")
        if name in self._extra:
            plugin = self._extra[name]
        elif name in self._available:
            plugin = self._import(name)
        else:
            where = next(
                (f"policies.{f}" for f in FAMILIES if self.config.policies.choice(f) == name), key
            )
            raise ConfigError(where, f"unknown name {name!r}", remedy=nearest(name, self.names))
        plugin = plugin() if inspect.isclass(plugin) else plugin
        try:
            self._pm.register(plugin, name)
        except pluggy.PluginValidationError as error:
            raise ConfigError(
                key, f"plugin {name!r} does not fit the hook specifications ({error})"
            ) from error
        self._loaded[name] = plugin
        return plugin

    def _import(self, name: str) -> Any:
        entry = self._available[name]
        try:
            return entry.load()
        except Exception as error:
            raise ConfigError(
                "policies",
                f"plugin {name!r} ({entry.value}) cannot be imported "
                f"({type(error).__name__}: {error})",
                remedy="Mend or uninstall it, or stop naming it",
            ) from error

    def _make(self, name: str, hook: str, key: str) -> Any:
        self._load(name, key)
        factory = self._caller(name, hook, key)
        params = self.config.policies.params.get(name, {})
        try:
            product = factory(config=self.config, params=params)
        except GreenError:
            raise
        except Exception as error:
            raise ConfigError(
                key, f"plugin {name!r} failed to start ({type(error).__name__}: {error})"
            ) from error
        if product is None:
            raise ConfigError(key, f"plugin {name!r} declined to serve {hook}")
        return product

    def _caller(self, name: str, hook: str, key: str) -> Callable[..., Any]:
        """pluggy's own caller for one plugin's implementation of ``hook``."""
        if not self._implements(name, hook):
            raise ConfigError(key, f"plugin {name!r} does not implement {hook}")
        others = [plugin for other, plugin in self._loaded.items() if other != name]
        return self._pm.subset_hook_caller(hook, remove_plugins=others)

    def _implements(self, name: str, hook: str) -> bool:
        callers = self._pm.get_hookcallers(self._loaded[name]) or ()
        return any(caller.name == hook for caller in callers)

    def _isolated(self, name: str, hook: str, **kwargs: Any) -> None:
        if not self._implements(name, hook):
            return
        try:
            self._caller(name, hook, hook)(**kwargs)
        except Exception:  # an observer may raise anything; the others go on
            logger.exception("observer %s failed in %s; it is switched off", name, hook)
            self._pm.unregister(name=name)
            del self._loaded[name]


def discover() -> dict[str, EntryPoint]:
    """Installed plugins by name; one entry point seen twice counts once (FIELD P27)."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        known = found.setdefault(entry.name, entry)
        if known.value != entry.value:
            raise ConfigError(
                GROUP,
                f"two installed plugins are called {entry.name!r}: {known.value} and {entry.value}",
                remedy="Uninstall one of them",
            )
    return found
