"""What servers say about themselves, for tests of ``green doctor`` and of adapters.

As in :mod:`green_core.testing.builders`, a test names only the fields that it is about. What is not
named describes a healthy server: an hour of moderate load on an H100, everything fresh, nothing to
find.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from green_core.doctor.facts import (
    EngineFacts,
    HostFacts,
    LoadFacts,
    MeterFacts,
    NodeFacts,
    PolicyFacts,
    ProcessFacts,
    SeamFacts,
    SettingFacts,
    SignalFacts,
    StartFacts,
    Status,
)
from green_core.testing.builders import engine_info, grid_view
from green_core.testing.doubles import START_S

_HOUR_S = 3600.0
NOW_S = START_S + _HOUR_S

_LOAD = LoadFacts(
    since_s=START_S,
    until_s=NOW_S,
    requests=1_000,
    steps=50_000,
    busy_s=1_800.0,
    mean_running=12.0,
    prompt_tokens=400_000,
    cached_tokens=4_000,
    sampled_tokens=400_000,
    repeated_tokens=8_000,
    prefill_j=100_000.0,
    decode_j=300_000.0,
    active_j=400_000.0,
    idle_j=180_000.0,
)
_PROCESS = ProcessFacts(
    role="engine",
    pid=100,
    started_s=START_S,
    at_s=NOW_S,
    cpu_s=1_000.0,
    threads=8,
    cpus=tuple(range(32)),
)
_HOST = HostFacts(
    cpus=32,
    nodes=(NodeFacts(0, tuple(range(16))), NodeFacts(1, tuple(range(16, 32)))),
    cpu_flags=("avx2", "avx512f"),
    governors={"schedutil": 32},
    drivers={"acpi-cpufreq": 32},
    is_virtual=False,
    in_container=False,
)


def engine_facts(**changes: Any) -> EngineFacts:
    """vLLM in bfloat16 with prefix cache, graphs from 1 to 256 and a warm compile cache.

    ``info`` is that of :func:`~green_core.testing.builders.engine_info` on an H100.
    """
    facts = EngineFacts(
        info=engine_info(device="NVIDIA H100 80GB HBM3"),
        weights_dtype="bfloat16",
        kv_dtype="bfloat16",
        prefix_caching=True,
        capture_sizes=(1, 2, 4, *range(8, 257, 8)),
        compiles=True,
        compile_cache=True,
        compile_cache_dir="/cache/compiled",
        compile_s=6.0,
        load_s=40.0,
    )
    return replace(facts, **changes)


def load_facts(**changes: Any) -> LoadFacts:
    """An hour, half of it at work: 1000 requests, 400 kJ at work and 180 kJ (100 W) idle."""
    return replace(_LOAD, **changes)


def process_facts(**changes: Any) -> ProcessFacts:
    """The engine's process, free to run on all 32 CPUs."""
    return replace(_PROCESS, **changes)


def host_facts(**changes: Any) -> HostFacts:
    """A physical machine of 32 CPUs on two nodes, whose frequency follows the load."""
    return replace(_HOST, **changes)


def start_facts(ago_s: float = 0.0, **changes: Any) -> StartFacts:
    """A start of that model ``ago_s`` before :data:`NOW_S`, long ended."""
    start = StartFacts(
        model=engine_info().model,
        at_s=NOW_S - ago_s,
        load_s=40.0,
        compile_s=6.0,
        is_running=False,
    )
    return replace(start, **changes)


def signal_facts(**changes: Any) -> SignalFacts:
    """A fresh average signal of 400 g/kWh in DE."""
    return replace(SignalFacts(grid_view(), fetches=12), **changes)


def status(**changes: Any) -> Status:
    """All of it; ``settings`` take plain values too: ``{"energy.pue": 1.5}``."""
    settings = {
        key: value if isinstance(value, SettingFacts) else SettingFacts(value, "file green.toml")
        for key, value in changes.pop("settings", {}).items()
    }
    healthy = Status(
        greenserve_version="0.2.0",
        at_s=NOW_S,
        engine=engine_facts(),
        load=load_facts(),
        meter=MeterFacts("measured:nvml-counter", "GPU-0", 0.1, 0.05),
        signal=signal_facts(),
        host=host_facts(),
        policies=(PolicyFacts("batch", "slo", active=True),),
        processes=(process_facts(),),
        seams=(SeamFacts("engine", 100, ("vllm.v1.core.sched.scheduler:Scheduler",)),),
        settings={"energy.pue": SettingFacts(1.2, "default"), **settings},
        starts=(start_facts(is_running=True),),
    )
    return replace(healthy, **changes)


def cpu_status(**changes: Any) -> Status:
    """The same server on this machine's CPUs, computing in one worker on the first node."""
    info = engine_info(device="cpu", max_running=256)
    worker = process_facts(
        role="VLLM::Worker",
        pid=101,
        cpus=tuple(range(16)),
        environment={"OMP_NUM_THREADS": "15", "OMP_PROC_BIND": "true"},
    )
    engine = engine_facts(info=info, capture_sizes=())
    return replace(status(engine=engine, processes=(process_facts(), worker)), **changes)
