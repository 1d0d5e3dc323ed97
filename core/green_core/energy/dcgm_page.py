"""Reads the page of a DCGM exporter: what it says about each board's energy and power.

Metric and label names are those of NVIDIA's dcgm-exporter (3.x and 4.x). On a board with MIG mode
on the exporter repeats the board's value for each slice, and with pod labels for each pod.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Iterator
from functools import cache

import msgspec

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # mJ since the driver was loaded
POWER = "DCGM_FI_DEV_POWER_USAGE"  # W
TIMEOUT_S = 5.0  # for the whole page
_MAX_BYTES = 16 * 1024 * 1024
# DCGM marks what it does not know by a number near the end of the type's range (dcgm_fields.h):
# 2^47 and up for floating point, 2^63 - 16 and up for integers.
_BLANK_POWER_W = 2.0**47
_BLANK_ENERGY_MJ = 2.0**63 - 4096.0


class Entry(msgspec.Struct):
    """One board on the page. ``energy_j`` and ``power_w`` are ``None`` where it has no value."""

    uuid: str
    index: str
    model: str
    host: str
    has_slices: bool = False
    energy_j: float | None = None
    power_w: float | None = None


def fetch_page(url: str) -> dict[str, Entry]:
    """The boards on the page at ``url``, by UUID.

    Raises ``httpx.HTTPError`` when the page cannot be had within ``TIMEOUT_S`` and ``ValueError``
    when it is not a whole page of an exporter.
    """
    return parse_page(_get(url))


def parse_page(text: str) -> dict[str, Entry]:
    """The boards on a page, by UUID; the first value of each counts.

    Raises ``ValueError`` when it is cut short, or shows neither energy nor power.
    """
    from prometheus_client.parser import text_string_to_metric_families

    if not text.endswith("\n"):
        raise ValueError("the page is cut short: its last line has no end")
    entries: dict[str, Entry] = {}
    for family in text_string_to_metric_families("".join(_wanted(text))):
        for sample in family.samples if family.name in (ENERGY, POWER) else ():
            labels = sample.labels
            if uuid := labels.get("UUID"):
                entry = entries.setdefault(
                    uuid,
                    Entry(
                        uuid,
                        labels.get("gpu", ""),
                        labels.get("modelName", ""),
                        labels.get("Hostname", ""),
                    ),
                )
                entry.has_slices = entry.has_slices or bool(labels.get("GPU_I_ID"))
                _note(entry, is_energy=family.name == ENERGY, value=float(sample.value))
    if not entries:
        raise ValueError(f"the page shows no {ENERGY} and no {POWER} with a UUID")
    return entries


def _note(entry: Entry, *, is_energy: bool, value: float) -> None:
    if not math.isfinite(value) or value < 0.0:
        return
    if is_energy and entry.energy_j is None and value < _BLANK_ENERGY_MJ:
        entry.energy_j = value * 1e-3
    if not is_energy and entry.power_w is None and value < _BLANK_POWER_W:
        entry.power_w = value


def _wanted(text: str) -> Iterator[str]:
    """The lines of the two metrics: the parser is slow, and an exporter shows some twenty more."""
    starts = tuple(f"{before}{name}" for before in ("", "# TYPE ") for name in (ENERGY, POWER))
    return (line for line in text.splitlines(keepends=True) if line.startswith(starts))


def _get(url: str) -> str:
    """The page's text. A page that trickles in does not hold its reader for longer than another."""
    import httpx

    give_up_s = time.monotonic() + TIMEOUT_S
    chunks, size = [], 0
    # The exporter is this node's own: no proxy stands between.
    with (
        httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=_trusted()) as client,
        client.stream("GET", url, headers={"Accept": "text/plain"}) as answer,
    ):
        answer.raise_for_status()
        for chunk in answer.iter_bytes():
            chunks.append(chunk)
            size += len(chunk)
            if size > _MAX_BYTES:
                raise ValueError(f"the page is larger than {_MAX_BYTES // 1024 // 1024} MiB")
            if time.monotonic() > give_up_s:
                raise httpx.ReadTimeout(f"the page took longer than {TIMEOUT_S:g} s")
    return b"".join(chunks).decode("utf-8", "replace")


@cache
def _trusted() -> ssl.SSLContext:
    """Made once: it takes longer than the page."""
    return ssl.create_default_context()
