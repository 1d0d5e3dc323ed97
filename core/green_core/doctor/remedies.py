"""Remedies in the words of each engine. An engine without words of its own gets the general ones.

vLLM's flags and variables are those of 0.32.0.
"""

from __future__ import annotations

from collections.abc import Mapping

_GENERAL: Mapping[str, str] = {
    "cache-off": "Switch the engine's prefix cache on.",
    "cache-unused": "Give the KV pool more memory, keep clients from salting their prompts, and "
    "route requests with a common prefix to the same engine.",
    "fp32-weights": "Serve in bfloat16, after a look at the quality of your answers.",
    "fp32-inputs": "Let activations be bfloat16 beside the quantized weights.",
    "fp32-kv": "Keep the KV cache in the type of the weights.",
    "padded-batch": "Capture smaller batch sizes as well: 1, 2, 4, 8 and on.",
    "small-batch": "Raise the limit of running requests step by step while your latency "
    "objective holds; a batch policy of greenserve that holds it low counts too.",
    "engine-wait": "Set the time that the engine waits for company to 0, or raise it only where "
    "load is heavy enough to fill it.",
    "company": "Set admission.batch_window_s = 0 (or lower), or leave the admission policy out.",
    "numa": "Run one engine process a node and bind each: numactl --cpunodebind=N --membind=N.",
    "omp": "Set OMP_NUM_THREADS so that all engine processes together have no more threads than "
    "CPUs.",
    "repeats": "Find out why it starts so often (crashes, scale-to-zero, health checks). Keep one "
    "server up, or let it sleep instead of ending it.",
    "cache-disabled": "Switch the compile cache back on.",
    "cache-lost": "Keep the compile cache's folder between starts: a volume, not the container's "
    "own layer; check that nothing in the configuration changes from start to start.",
    "spin": "Let threads sleep while they wait: OMP_WAIT_POLICY=PASSIVE (Intel's runtime: "
    "KMP_BLOCKTIME=0). If it goes on, a profiler such as py-spy names the loop.",
}
_BY_ENGINE: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "cache-off": "Start vLLM with --enable-prefix-caching; drop --no-enable-prefix-caching.",
        "cache-unused": "Give vLLM's KV pool more room (--gpu-memory-utilization; on a CPU "
        "VLLM_CPU_KVCACHE_SPACE), keep clients from sending cache_salt, and route requests with a "
        "common prefix to the same engine.",
        "fp32-weights": "Start vLLM with --dtype bfloat16, after a look at the quality of your "
        "answers.",
        "fp32-inputs": "Start vLLM with --dtype bfloat16: the quantized weights stay as they are.",
        "fp32-kv": "Start vLLM with --kv-cache-dtype auto.",
        "padded-batch": "Add small sizes to --cudagraph-capture-sizes (1 2 4 8 16 ...), or leave "
        "the flag out.",
        "small-batch": "Raise --max-num-seqs step by step while your latency objective holds; a "
        "batch policy of greenserve that holds it low counts too.",
        "numa": "Leave VLLM_CPU_OMP_THREADS_BIND at auto and start vLLM with one rank a node "
        "(--tensor-parallel-size or --data-parallel-size); or name the CPUs: 0-31|32-63.",
        "omp": "Name CPUs of its own for each worker: VLLM_CPU_OMP_THREADS_BIND=0-15|16-31 (auto "
        "gives the ranks of --data-parallel-size the same ones). Where it is nobind, set "
        "OMP_NUM_THREADS so that all workers together have no more threads than CPUs.",
        "repeats": "Find out why it starts so often (crashes, scale-to-zero, health checks). Keep "
        "one server up; vLLM can sleep instead of ending (--enable-sleep-mode).",
        "cache-disabled": "Unset VLLM_DISABLE_COMPILE_CACHE.",
        "cache-lost": "Keep VLLM_CACHE_ROOT (~/.cache/vllm) between starts: a volume, not the "
        "container's own layer; check that no flag changes from start to start.",
    },
}


def remedy(key: str, engine: str) -> str:
    """What to do about ``key``, for ``engine`` by its name (``vllm``)."""
    return _BY_ENGINE.get(engine, {}).get(key, _GENERAL[key])
