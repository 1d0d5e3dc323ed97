"""What a running server, its engine and its host say about themselves.

All of it is plain data that survives JSON, since the doctor may sit on another machine. ``None``
or an empty value means that nobody knows, never that all is well. Times are epoch seconds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from green_core.values import EngineInfo, GridView


class ProcessFacts(msgspec.Struct, frozen=True):
    """One process of the server. ``cpu_s`` is the CPU time it had used at ``at_s``.

    ``cpus`` are those it may run on, ``environment`` holds the variables that decide on threads
    and their binding (``OMP_*``, ``KMP_*`` and the engine's own), as far as they are set.
    """

    role: str
    pid: int
    started_s: float
    at_s: float
    cpu_s: float
    threads: int
    cpus: tuple[int, ...] = ()
    environment: dict[str, str] = {}


class SeamFacts(msgspec.Struct, frozen=True):
    """A process of the server in which green's seams took hold."""

    role: str
    pid: int
    seams: tuple[str, ...] = ()


class EngineFacts(msgspec.Struct, frozen=True):
    """What the engine was configured to do, in words that hold for every engine.

    ``capture_sizes`` are the batch sizes that steps are padded to (captured graphs); empty when
    steps run at their own size. ``batch_wait_s`` is how long the engine itself lets a request
    wait for company. ``load_s`` and ``compile_s`` are what reading weights and compiling took at
    this start.
    """

    info: EngineInfo
    weights_dtype: str = ""
    kv_dtype: str = ""
    prefix_caching: bool | None = None
    capture_sizes: tuple[int, ...] = ()
    compiles: bool | None = None
    compile_cache: bool | None = None
    compile_cache_dir: str = ""
    compile_s: float | None = None
    load_s: float | None = None
    batch_wait_s: float = 0.0


class LoadFacts(msgspec.Struct, frozen=True):
    """What the books saw from ``since_s`` to ``until_s``. Energy is that of settled time.

    ``last_step_s`` is when the newest step ended (0.0: there was none), ``busy_s`` time with a step
    under way, ``mean_running`` the mean number of requests over it, ``full_s`` the part of it in
    which requests waited because the engine's limit of running requests was reached.
    ``sampled_tokens`` are prompt tokens that were looked at for repetition, ``repeated_tokens``
    those that stood in a prefix seen before. ``company_s`` are seconds for which standard requests
    were held to be batched with others, ``company_gained`` how many others had come by then,
    ``company_holds`` how often.
    """

    since_s: float
    until_s: float
    running: int = 0
    waiting: int = 0
    held: int = 0
    requests: int = 0
    steps: int = 0
    busy_s: float = 0.0
    mean_running: float = 0.0
    last_step_s: float = 0.0
    full_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    repeated_tokens: int = 0
    company_holds: int = 0
    company_s: float = 0.0
    company_gained: int = 0
    prefill_j: float = 0.0
    decode_j: float = 0.0
    active_j: float = 0.0
    idle_j: float = 0.0


class MeterFacts(msgspec.Struct, frozen=True):
    """How energy is known. ``problem`` says why a better meter is not in use."""

    method: str
    name: str = ""
    period_s: float = 0.0
    uncertainty_ratio: float | None = None
    gaps: int = 0
    rest_j: float | None = None
    problem: str = ""


class SignalFacts(msgspec.Struct, frozen=True):
    """The carbon signal as the engine's process has it; ``problem`` is the newest failure.

    A value that holds for ever is valid until the end of the year 9999.
    """

    view: GridView
    fetches: int = 0
    failures: dict[str, int] = {}
    problem: str = ""


class PolicyFacts(msgspec.Struct, frozen=True):
    """A policy that the config chose. ``active``: it decides now; ``problem`` may say why not."""

    family: str
    name: str
    active: bool
    shadow: bool = False
    problem: str = ""


class StartFacts(msgspec.Struct, frozen=True):
    """One start of an engine on this host, now or earlier.

    ``is_running``: its process still serves, so another start is a replica and no repeat.
    """

    model: str
    at_s: float
    load_s: float | None = None
    compile_s: float | None = None
    is_running: bool | None = None


class NodeFacts(msgspec.Struct, frozen=True):
    """A NUMA node and its CPUs."""

    node: int
    cpus: tuple[int, ...]


class HostFacts(msgspec.Struct, frozen=True):
    """The machine. ``governors`` and ``drivers`` count CPUs by the cpufreq value they show;
    both are empty where the kernel shows none. ``cpu_quota`` is how many CPUs' worth of time the
    control group grants.
    """

    cpus: int
    nodes: tuple[NodeFacts, ...] = ()
    cpu_flags: tuple[str, ...] = ()
    governors: dict[str, int] = {}
    drivers: dict[str, int] = {}
    is_virtual: bool | None = None
    in_container: bool | None = None
    cpu_quota: float | None = None


class SettingFacts(msgspec.Struct, frozen=True):
    """One key of the effective configuration and where its value comes from."""

    value: Any
    origin: str


class Status(msgspec.Struct, frozen=True):
    """All that one server says about itself; what its status page answers.

    ``silent_s``: an engine process did not answer, and what is shown of it is as old as this.
    """

    greenserve_version: str
    at_s: float
    engine: EngineFacts
    load: LoadFacts
    meter: MeterFacts
    signal: SignalFacts
    host: HostFacts
    profile: str = "measure"
    switched_off: bool = False
    policies: tuple[PolicyFacts, ...] = ()
    processes: tuple[ProcessFacts, ...] = ()
    seams: tuple[SeamFacts, ...] = ()
    settings: dict[str, SettingFacts] = {}
    starts: tuple[StartFacts, ...] = ()
    faults: tuple[str, ...] = ()
    silent_s: float = 0.0


class Finding(msgspec.Struct, frozen=True):
    """A trap that was found. ``energy_j_per_day`` is what it is estimated to cost; ``None``: it
    cannot be told from what is known, and ``estimate`` says why or how.
    """

    trap: str
    title: str
    evidence: str
    remedy: str
    estimate: str
    energy_j_per_day: float | None = None
    carbon_g_per_day: float | None = None


class NotChecked(msgspec.Struct, frozen=True):
    """A trap that could not be looked for, and why."""

    trap: str
    why: str
