"""Hook specifications, grouped by lifecycle. The front door for anyone who extends greenserve.

Two kinds (loops must not pay for pluggy, a few microseconds a call):

* **Factory hooks** run once per process, answer a plain callable or small object, and the
  adapter calls that. A factory answers ``None`` to decline.
* **Observer hooks** run off the step path; each implementation is isolated from the others.

A policy that raises, exceeds its time budget or answers nonsense is switched off, counted and
logged once; the engine's stock behaviour goes on. A factory that raises stops the start-up.
``params`` is the policy's own table in the config (``[policies.NAME]``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from green_core.config import GreenConfig
    from green_core.grid.signal import CarbonSignal
    from green_core.values import (
        AdmissionPolicy,
        BatchPolicy,
        CachePolicy,
        EngineInfo,
        EvictionKey,
        ExitPolicy,
        KVPolicy,
        Meter,
        PowerPolicy,
        RequestRecord,
        StepView,
    )

PROJECT = "greenserve"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

# --- lifecycle: every plugin, once per process --------------------------------------------


@hookspec
def green_configure(config: GreenConfig, engine: EngineInfo) -> None:
    """Called after load, before any factory, in each process that runs the engine's loop."""


@hookspec
def green_unconfigure() -> None:
    """Called once at an orderly exit, in reverse order. Must return within two seconds."""


# --- factories: decisions -----------------------------------------------------------------


@hookspec(firstresult=True)
def green_batch_policy(config: GreenConfig, params: Mapping[str, Any]) -> BatchPolicy | None:
    """Answer ``(QueueView, GridView) -> BatchPlan``; called at most once per engine step.

    It runs beside the step, so the plan of one step rests on the view of the step before.
    """


@hookspec(firstresult=True)
def green_admission_policy(
    config: GreenConfig, params: Mapping[str, Any]
) -> AdmissionPolicy | None:
    """Answer ``(RequestView, GridView) -> Admit | Hold | Refuse``.

    Called once per request that may be held, and again each time a hold ends or the grid,
    the config or the queue changes.
    """


@hookspec(firstresult=True)
def green_cache_policy(config: GreenConfig, params: Mapping[str, Any]) -> CachePolicy | None:
    """Answer ``(PoolView, GridView) -> CacheQuota``; called on grid or plan change, at most 1/s."""


@hookspec(firstresult=True)
def green_eviction_key(config: GreenConfig, params: Mapping[str, Any]) -> EvictionKey | None:
    """Answer ``(CacheEntry) -> float``; lowest goes first, leaves only.

    Called when an entry becomes evictable.
    """


@hookspec(firstresult=True)
def green_kv_policy(config: GreenConfig, params: Mapping[str, Any]) -> KVPolicy | None:
    """Answer ``(RequestView, PoolView, GridView) -> KVPlan``; per request and KV block boundary."""


@hookspec(firstresult=True)
def green_exit_policy(config: GreenConfig, params: Mapping[str, Any]) -> ExitPolicy | None:
    """Answer ``(Progress) -> ExitReason | None``; sees committed tokens only.

    Called every ``needs.every_tokens`` of a request that asked for it, never before its
    ``min_tokens`` (see ``ExitNeeds``). It runs beside the step: what it says of one look is
    carried out at the request's next one.
    """


@hookspec(firstresult=True)
def green_power_policy(config: GreenConfig, params: Mapping[str, Any]) -> PowerPolicy | None:
    """Answer ``(LoadView, GridView) -> PowerTarget``; called every control period."""


# --- factories: facts ---------------------------------------------------------------------


@hookspec
def green_meters(config: GreenConfig, engine: EngineInfo) -> list[Meter] | None:
    """Answer the meters of the devices this process owns; raise ``MeterUnavailable`` to say why
    there are none. Called once, in the process that runs the engine's loop, after any fork.
    """


@hookspec(firstresult=True)
def green_carbon_source(config: GreenConfig, params: Mapping[str, Any]) -> CarbonSignal | None:
    """Answer a carbon signal; called once. Its ``view`` must be an in-memory look-up."""


@hookspec(firstresult=True)
def green_forecaster(config: GreenConfig, params: Mapping[str, Any]) -> Any | None:
    """Answer an object that turns past intensities into forecast points; called once."""


# --- observers ----------------------------------------------------------------------------


@hookspec
def green_on_step(step: StepView) -> None:
    """Called off the step path for each finished engine step."""


@hookspec
def green_on_request(record: RequestRecord) -> None:
    """Called off the step path for each finished request, once its energy is settled."""
