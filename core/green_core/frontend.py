"""The one door for an adapter's front: marks in, usage, spans and metrics out."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from green_core import config as configuration
from green_core.activation import activate, live, owner_pid, proofs, run_dir
from green_core.config import GreenConfig, Resolved
from green_core.doctor.facts import SeamFacts
from green_core.doctor.tree import process_tree
from green_core.errors import ConfigError
from green_core.export import statusfile
from green_core.export.collector import GreenCollector
from green_core.export.otel import span_attributes
from green_core.export.runfiles import METRICS_FOLDER, POKE_FILE
from green_core.export.usage import from_wire, usage_payload
from green_core.marks import MarkReader
from green_core.values import EngineInfo

_RELOAD_PERIOD_S = 1.0
_STATUS_WAIT_S = 2.0


class Frontend:
    """One per process that turns engine outputs into answers.

    The configuration is looked at again at most once a second, while requests come in.
    """

    def __init__(self, resolved: Resolved, folder: Path) -> None:
        self._resolved = resolved
        self._folder = folder
        self._reader = MarkReader(resolved.config.marks)
        self._looked_at_s = time.monotonic()
        self._stamp = _stamp(resolved.file)

    @classmethod
    def from_environment(cls) -> Frontend:
        """The front of the server whose environment this process inherited."""
        return cls(activate(), run_dir())

    @property
    def config(self) -> GreenConfig:
        """The configuration in force."""
        return self._resolved.config

    @functools.cached_property
    def engine(self) -> EngineInfo:
        """The engine behind this front; ``EngineUnsupported`` when green is not live there."""
        facts = live(
            "engine",
            "Look for 'Failed to load plugin' in the log above; a plugin whitelist must name green",
        )
        return msgspec.convert(facts["info"], EngineInfo)

    @property
    def reader(self) -> MarkReader:
        """Reads marks under the present configuration."""
        self._look_again()
        return self._reader

    def usage(self, records: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """``usage.green`` of an answer made by these engine requests."""
        return usage_payload([from_wire(record) for record in records])

    def span_attributes(self, record: dict[str, Any]) -> dict[str, Any]:
        """Attributes for the span of one engine request."""
        return dict(span_attributes(from_wire(record), self.engine))

    def metrics_text(self) -> bytes:
        """What the engine's processes published, in Prometheus' text format; may read files."""
        if not self.config.telemetry.metrics:
            return b""
        return generate_latest(self._metrics)

    def status(self) -> bytes:
        """The status page as JSON; may wait for the engine for up to two seconds.

        Raises ``GreenError`` while no engine has answered.
        """
        asked_ns = statusfile.ask(self._folder)
        status = statusfile.collect(self._folder, asked_ns, wait_s=_STATUS_WAIT_S)
        seen = {process.pid: process for process in process_tree(owner_pid())}
        seen |= {process.pid: process for process in status.processes}
        seams = tuple(
            SeamFacts(part, facts["pid"], tuple(facts.get("seams", ()))) for part, facts in proofs()
        )
        return msgspec.json.encode(
            msgspec.structs.replace(status, processes=tuple(seen.values()), seams=seams)
        )

    @functools.cached_property
    def _metrics(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(GreenCollector(self._folder / METRICS_FOLDER, self._poke))
        return registry

    def _poke(self) -> None:
        """An idle engine sleeps; have it bring its figures up to date for the next scrape."""
        with contextlib.suppress(OSError):
            (self._folder / POKE_FILE).touch()

    def _look_again(self) -> None:
        now_s = time.monotonic()
        if not self._resolved.file or now_s - self._looked_at_s < _RELOAD_PERIOD_S:
            return
        self._looked_at_s = now_s
        stamp = _stamp(self._resolved.file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            fresh = configuration.load(self._resolved.file, overrides=self._resolved.overrides)
            self._reader = MarkReader(fresh.config.marks)
        except ConfigError:
            return  # the engine's process logs it; what is in force stays
        self._resolved = fresh


def _stamp(path: str) -> tuple[int, int]:
    try:
        info = os.stat(path)
    except OSError:
        return (0, 0)
    return (info.st_mtime_ns, info.st_size)
