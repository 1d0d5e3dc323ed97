"""The server that the doctor has something to say about, with a live carbon signal."""

from __future__ import annotations

from pathlib import Path

from vllm_server import Server

TRAPS = {"prefix_cache", "small_batch", "idle_spin"}
CARBON_TOKEN = "the-carbon-token-is-nobodys-business"
POLL_S = 10
STALE_AFTER_S = 60


def trapped_server_in(folder: Path, carbon_url: str) -> Server:
    """No prefix cache, one request at a time, a plugin that spins.

    bfloat16, so that its number format is no further trap on a CPU that computes in it.
    """
    token_file = folder / "carbon-token"
    token_file.write_text(CARBON_TOKEN + "\n")
    config = f"""
[carbon]
source = "electricity_maps"
zone = "DE"
url = "{carbon_url}"
token_file = "{token_file}"
cache_dir = "{folder}/carbon-cache"
timeout_s = 2
poll_s = {POLL_S}
stale_after_s = {STALE_AFTER_S}
on_stale = "off"
[energy]
meter = "model"
[policies]
admission = "test_hold"
observers = ["test_spins"]
"""
    return Server(
        folder,
        *("--dtype", "bfloat16", "--no-enable-prefix-caching", "--max-num-seqs", "1"),
        config=config,
        api_key="sesame",
    )
