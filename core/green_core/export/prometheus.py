"""Metrics of the engine's process, shown by every API server.

The engine's process keeps plain totals and publishes them as one text file in the run folder;
each API server reads the files of all live engine processes when it is scraped. Nothing here is
a ``prometheus_client`` ``Counter`` or ``Gauge``: under ``PROMETHEUS_MULTIPROC_DIR`` those write
into the engine's own folder, where our series would outlive us (FIELD P28).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from green_core.export.catalogue import CATALOGUE, MetricSpec
from green_core.export.runfiles import header, metrics_path, temporary_path
from green_core.export.text import greenserve_version, label_value
from green_core.values import EarlyStop, EngineInfo, IntervalRecord, RequestRecord, Settled

OTHER_TENANTS = "other"


class _Histogram:
    """Counts by bucket; the last one is above every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        index = 0
        for bound in self.bounds:
            if value <= bound:
                break
            index += 1
        self.counts[index] += 1
        self.total += value

    def add_samples(self, metric: Metric, name: str, labels: dict[str, str]) -> None:
        seen = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            seen += count
            le = "+Inf" if math.isinf(bound) else repr(float(bound))
            metric.add_sample(f"{name}_bucket", {**labels, "le": le}, seen)
        metric.add_sample(f"{name}_count", labels, seen)
        metric.add_sample(f"{name}_sum", labels, self.total)


class AttributedTotals(Protocol):
    """Sums since the start, of settled energy (J) and of the tokens it computed."""

    @property
    def active_j(self) -> float: ...  # noqa: D102

    @property
    def prefill_tokens(self) -> int: ...  # noqa: D102

    @property
    def decode_tokens(self) -> int: ...  # noqa: D102

    @property
    def gaps(self) -> int: ...  # noqa: D102


class ShadowCounts(Protocol):
    """What is shown of a policy in shadow, counted since it was loaded."""

    @property
    def calls(self) -> int: ...  # noqa: D102

    @property
    def differing(self) -> int: ...  # noqa: D102

    @property
    def saving_ratio(self) -> float: ...  # noqa: D102


class EngineMetrics:
    """All metrics of one engine process; safe to use from several threads.

    At most ``max_tenants`` tenants have label values of their own, in order of appearance; the
    rest is summed as ``other``. ``profile`` and ``method`` are shown by ``greenserve_info``.

    A name that is not in the catalogue, wrong labels, or a counter that would fall are errors of
    the program: ``KeyError`` and ``ValueError``.
    """

    def __init__(
        self, info: EngineInfo, *, max_tenants: int, profile: str = "", method: str = ""
    ) -> None:
        self._info = info
        self._engine = str(info.engine_index)
        self._max_tenants = max_tenants
        self._tenants: set[str] = set()
        self._lock = threading.Lock()
        self._values: dict[str, dict[tuple[str, ...], float]] = {}
        self._histograms: dict[str, dict[tuple[str, ...], _Histogram]] = {}
        self._changed = True
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(self.families))
        self.describe(profile=profile, method=method)
        self.set("greenserve_engine_batch_limit", info.max_running)

    def describe(self, *, profile: str, method: str) -> None:
        """Say again what ``greenserve_info`` shows, after a change of config or meter."""
        info = self._info
        self.set(
            "greenserve_info",
            1.0,
            version=greenserve_version(),
            engine_name=info.engine,
            engine_version=info.version,
            model=info.model,
            device=info.device,
            method=method,
            profile=profile,
        )

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        spec = _spec(name, "gauge")
        with self._lock:
            key = self._key(spec, labels)
            if spec.exclusive:
                self._values[name] = {key: value}
            else:
                self._values.setdefault(name, {})[key] = value
            self._changed = True

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Raise a counter."""
        spec = _spec(name, "counter")
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{name}: a counter cannot change by {value}")
        with self._lock:
            key = self._key(spec, labels)
            series = self._values.setdefault(name, {})
            series[key] = series.get(key, 0.0) + value
            self._changed = True

    def set_total(self, name: str, value: float, **labels: str) -> None:
        """Show a running total that is kept elsewhere; like any counter it may restart at 0."""
        spec = _spec(name, "counter")
        with self._lock:
            self._values.setdefault(name, {})[self._key(spec, labels)] = value
            self._changed = True

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        spec = _spec(name, "histogram")
        with self._lock:
            key = self._key(spec, labels)
            series = self._histograms.setdefault(name, {})
            histogram = series.get(key)
            if histogram is None:
                histogram = series[key] = _Histogram(spec.buckets)
            histogram.observe(value)
            self._changed = True

    def settled(self, settled: Settled) -> None:
        """Count requests and idle time whose energy is final."""
        for record in settled.records:
            self._count_request(record)
        for interval in settled.intervals:
            self._count_interval(interval)

    def totals(self, totals: AttributedTotals) -> None:
        """Show what is known before requests end: gaps, and the energy of a token."""
        self.set_total("greenserve_meter_gaps_total", totals.gaps)
        tokens = totals.prefill_tokens + totals.decode_tokens
        if tokens:
            self.set(
                "llm_serving_energy_joules_per_token",
                totals.active_j / tokens,
                model=self._info.model,
                quantization=self._info.quantization,
                backend=self._info.engine,
            )

    def shadow(self, family: str, report: ShadowCounts) -> None:
        """Show what the shadowed policy of ``family`` would have done."""
        self.set_total("greenserve_shadow_decisions_total", report.calls, family=family)
        self.set_total("greenserve_shadow_differing_total", report.differing, family=family)
        self.set("greenserve_shadow_saving_ratio", report.saving_ratio, family=family)

    def families(self) -> Iterator[Metric]:
        """The families that have values, in the client library's form."""
        with self._lock:
            values = {name: dict(series) for name, series in self._values.items()}
            metrics = {spec.name: metric_family(spec) for spec in CATALOGUE.values()}
            for name, histograms in self._histograms.items():
                for key, histogram in histograms.items():
                    histogram.add_samples(metrics[name], name, self._labels(name, key))
        for name, series in values.items():
            for key, value in series.items():
                metrics[name].add_sample(name, self._labels(name, key), value)
        yield from (metric for metric in metrics.values() if metric.samples)

    def render(self) -> bytes:
        """The exposition text (Prometheus text format 0.0.4), UTF-8."""
        return generate_latest(self._registry)

    def publish(self, run_dir: str | os.PathLike[str]) -> bool:
        """Replace this process's file in ``run_dir``; answers whether there was anything new.

        The folder is created. Readers see the old file or the new one, never a part. Raises
        ``OSError`` when it cannot be written; the next call tries again.
        """
        pid = os.getpid()
        path = metrics_path(Path(run_dir), self._info.engine_index, pid)
        if not self._changed and path.exists():
            return False
        self._changed = False  # before rendering: what changes meanwhile is published next time
        temporary = temporary_path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(header(pid) + self.render())
            os.replace(temporary, path)
        except BaseException:
            self._changed = True
            temporary.unlink(missing_ok=True)
            raise
        return True

    def withdraw(self, run_dir: str | os.PathLike[str]) -> None:
        """Remove this process's file at an orderly exit."""
        path = metrics_path(Path(run_dir), self._info.engine_index, os.getpid())
        path.unlink(missing_ok=True)

    def _count_request(self, record: RequestRecord) -> None:
        tenant, urgency = record.tenant, record.urgency
        computed_prompt = max(0, record.prompt_tokens - record.cached_tokens)
        parts = record.parts
        self._gain("greenserve_energy_joules_total", parts.compute_j, part="compute")
        self._gain("greenserve_energy_joules_total", parts.memory_j, part="memory")
        self._gain("greenserve_energy_joules_total", parts.idle_j, part="idle")
        self._gain("greenserve_phase_energy_joules_total", record.prefill_j, phase="prefill")
        self._gain("greenserve_phase_energy_joules_total", record.decode_j, phase="decode")
        self._gain(
            "greenserve_request_energy_joules_total",
            record.energy_j,
            tenant=tenant,
            urgency=urgency,
            method=record.method,
        )
        self._gain(
            "greenserve_request_carbon_grams_total",
            record.carbon_g,
            tenant=tenant,
            urgency=urgency,
            kind=record.kind,
        )
        self._gain("greenserve_cooling_energy_joules_total", parts.cooling_j)
        self._gain("greenserve_avoided_prefill_joules_total", record.avoided_j)
        self.add(
            "greenserve_requests_total",
            tenant=tenant,
            urgency=urgency,
            finish_reason=record.finish_reason,
        )
        self.add("greenserve_tokens_total", computed_prompt, phase="prefill")
        self.add("greenserve_tokens_total", record.output_tokens, phase="decode")
        self.add("greenserve_tokens_total", record.cached_tokens, phase="cached")
        self.observe("greenserve_energy_per_request_joules", record.energy_j, urgency=urgency)
        if record.early_stop is not None:
            self._count_stop(record.early_stop)

    def _count_stop(self, stop: EarlyStop) -> None:
        policy, reason, tokens = stop.policy, stop.reason, stop.saved_tokens
        if stop.shadow:
            self.add("greenserve_shadow_early_stops_total", policy=policy, reason=reason)
            name = "greenserve_shadow_early_stop_tokens_total"
            self.add(name, tokens, policy=policy, reason=reason)
            return
        self.add("greenserve_early_stops_total", policy=policy, reason=reason)
        name = "greenserve_early_stop_tokens_saved_total"
        self.add(name, tokens, policy=policy, reason=reason)
        name = "greenserve_early_stop_joules_saved_total"
        self._gain(name, stop.saved_j, policy=policy, reason=reason)

    def _count_interval(self, interval: IntervalRecord) -> None:
        idle_j = interval.idle_j
        metered_j = interval.active_j + idle_j
        carbon_g = interval.operational_g + interval.embodied_g
        self._gain("greenserve_energy_joules_total", idle_j, part="idle")
        self._gain("greenserve_phase_energy_joules_total", idle_j, phase="idle")
        self._gain("greenserve_idle_energy_joules_total", idle_j)
        self._gain("greenserve_active_energy_joules_total", interval.active_j)
        if metered_j > 0:
            self._gain("greenserve_idle_carbon_grams_total", carbon_g * idle_j / metered_j)

    def _gain(self, name: str, value: float, **labels: str) -> None:
        # A difference of two readings can round to -1e-12; a counter may not fall.
        self.add(name, max(0.0, value), **labels)

    def _key(self, spec: MetricSpec, labels: dict[str, str]) -> tuple[str, ...]:
        if len(labels) != len(spec.labels):
            raise ValueError(f"{spec.name}: labels {sorted(labels)}, expected {spec.labels}")
        if not labels:
            return ()
        try:
            key = [label_value(labels[name]) for name in spec.labels]
        except KeyError as error:
            raise ValueError(
                f"{spec.name}: labels {sorted(labels)}, expected {spec.labels}"
            ) from error
        if "tenant" in labels:
            index = spec.labels.index("tenant")
            key[index] = self._tenant_label(key[index])
        return tuple(key)

    def _tenant_label(self, tenant: str) -> str:
        if tenant not in self._tenants:
            if len(self._tenants) >= self._max_tenants:
                return OTHER_TENANTS
            self._tenants.add(tenant)
        return tenant

    def _labels(self, name: str, key: tuple[str, ...]) -> dict[str, str]:
        return {**dict(zip(CATALOGUE[name].labels, key, strict=True)), "engine": self._engine}


class _Families(Collector):
    """What a registry asks for, apart from ``EngineMetrics`` and its own ``describe``."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families()


def metric_family(spec: MetricSpec) -> Metric:
    """An empty family of the client library for ``spec``."""
    # The library names counters without their suffix and adds it when it renders.
    name = spec.name.removesuffix("_total") if spec.kind == "counter" else spec.name
    return Metric(name, spec.help, spec.kind)


def _spec(name: str, kind: str) -> MetricSpec:
    spec = CATALOGUE[name]
    if spec.kind != kind:
        raise ValueError(f"{name}: is a {spec.kind}, not a {kind}")
    return spec
