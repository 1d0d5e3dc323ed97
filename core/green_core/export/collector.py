"""The side of the API servers: published files of the engine processes as one scrape."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from green_core.export.catalogue import CATALOGUE
from green_core.export.prometheus import metric_family
from green_core.export.runfiles import engine_index, is_alive, owner_pid


class _Published(msgspec.Struct, frozen=True):
    """A parsed file and what tells whether it was replaced since."""

    version: tuple[int, int, int]
    families: tuple[Metric, ...]


class GreenCollector(Collector):
    """Shows what all live engine processes published in ``run_dir``.

    Register it once on the registry that /metrics serves, in every API server: each shows the
    same totals, told apart by ``engine``. Files of dead processes are skipped and removed.
    ``on_scrape`` is called first, for engines that sleep while idle; it must not raise.
    ``collect`` never raises: a scrape also carries the engine's own metrics.
    """

    def __init__(
        self, run_dir: str | os.PathLike[str], on_scrape: Callable[[], None] = lambda: None
    ) -> None:
        self._run_dir = Path(run_dir)
        self._on_scrape = on_scrape
        self._parsed: dict[Path, _Published] = {}

    def describe(self) -> Iterable[Metric]:
        """The catalogue, so a second collector on the same registry is refused."""
        return [metric_family(spec) for spec in CATALOGUE.values()]

    def collect(self) -> Iterator[Metric]:
        """The families of all engines, merged."""
        self._on_scrape()
        merged: dict[str, Metric] = {}
        for published in self._newest_by_engine():
            for found in published.families:
                metric = merged.get(found.name)
                if metric is None:
                    metric = Metric(found.name, found.documentation, found.type)
                    merged[found.name] = metric
                metric.samples.extend(found.samples)
        yield from merged.values()

    def _newest_by_engine(self) -> list[_Published]:
        # Two live processes with one index: an engine that is being replaced. Showing both would
        # repeat series, which a scrape may not.
        newest: dict[int, _Published] = {}
        parsed: dict[Path, _Published] = {}
        for path in self._live_files():
            published = self._parsed.get(path)
            try:
                stat = path.stat()
                version = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
                if published is None or published.version != version:
                    published = _Published(version, _parse(path))
            except Exception:
                # Removed meanwhile, or damaged: which errors the parser raises is not documented,
                # and none may cost the engine its own metrics.
                continue
            parsed[path] = published
            index = engine_index(path)
            if index not in newest or newest[index].version < published.version:
                newest[index] = published
        self._parsed = parsed
        return [newest[index] for index in sorted(newest)]

    def _live_files(self) -> Iterator[Path]:
        try:
            names = sorted(os.listdir(self._run_dir))
        except OSError:
            return  # no engine has started yet
        for path in (self._run_dir / name for name in names):
            pid = owner_pid(path)
            if pid is None:
                continue
            try:
                with path.open("rb") as file:
                    alive = is_alive(pid, file.readline())
                if not alive:
                    path.unlink(missing_ok=True)
            except OSError:
                continue
            if alive and path.suffix == ".prom":
                yield path


def _parse(path: Path) -> tuple[Metric, ...]:
    # Not read_text(): it would turn a carriage return inside a label into the end of a line.
    return tuple(text_string_to_metric_families(path.read_bytes().decode("utf-8")))
