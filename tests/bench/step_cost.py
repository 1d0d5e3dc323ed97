"""What greenserve adds to vLLM's scheduling of one step, by batch size, without a model.

    GREENSERVE_TEST_MODEL=DIR python tests/bench/step_cost.py [--steps N]

Two real schedulers, stock and green, take the same decode step in turns: ``schedule`` plus
``update_from_output``. Only the model's answer is made up, and a pause stands for its work. The
last line is one JSON object. How to read it: ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from arms import MEASURE, POLICIES, Arm, write_config

sys.path.insert(0, str(Path(__file__).parents[1] / "engines" / "vllm"))

BATCHES = (1, 8, 64, 256)
MODES = (MEASURE, POLICIES)
_PROMPT_TOKENS = 8
_WARM_UP_STEPS = 50  # longer than the batch policy learns before it decides
_MAX_STEPS = 900  # within the model's length


class Timed:
    """A scheduler with a full batch that decodes; each :meth:`step` is timed."""

    def __init__(self, *, green: bool, batch: int, steps: int) -> None:
        from harness import answer, make_request, make_scheduler

        self._answer = answer
        self.scheduler: Any = make_scheduler(
            green=green, max_seqs=max(BATCHES), max_tokens=max(BATCHES) * 16, blocks=16_500
        )
        tokens = steps + _WARM_UP_STEPS + 10
        for number in range(batch):
            self.scheduler.add_request(
                make_request(f"r{number}", prompt=_PROMPT_TOKENS, max_tokens=tokens)
            )
        self.step()  # the prompts

    def step(self) -> float:
        """One turn of the engine's loop; answers the seconds that scheduling took."""
        started_s = time.perf_counter()
        output = self.scheduler.schedule()
        scheduled_s = time.perf_counter()
        model_answer = self._answer(self.scheduler, output)
        answered_s = time.perf_counter()
        self.scheduler.update_from_output(output, model_answer)
        return time.perf_counter() - answered_s + scheduled_s - started_s


def compare(mode: Arm, batch: int, steps: int, pause_s: float) -> dict[str, Any]:
    """Stock and green in turns, each first every other time."""
    stock = Timed(green=False, batch=batch, steps=steps)
    green = Timed(green=True, batch=batch, steps=steps)
    own_s: list[float] = []
    runtime = green.scheduler.green
    record = runtime.step

    def recording(view: Any, overhead_s: float, waiting: int) -> None:
        own_s.append(overhead_s)
        record(view, overhead_s, waiting)

    runtime.step = recording
    took_s: dict[Timed, list[float]] = {stock: [], green: []}
    for number in range(_WARM_UP_STEPS + steps):
        for one in (stock, green) if number % 2 else (green, stock):
            time.sleep(pause_s)
            took_s[one].append(one.step())
    green.scheduler.shutdown()
    stock_us, green_us = (_us(took_s[one][_WARM_UP_STEPS:]) for one in (stock, green))
    own_us = _us(own_s[_WARM_UP_STEPS:])
    return {
        "mode": mode.name,
        "batch": batch,
        "stock_us_p50": round(median(stock_us), 1),
        "green_us_p50": round(median(green_us), 1),
        "added_us_p50": round(median(green_us) - median(stock_us), 1),
        "own_us_p50": round(median(own_us), 1),
        "own_us_p99": round(own_us[int(0.99 * len(own_us))], 1),
    }


def _us(seconds: list[float]) -> list[float]:
    """Sorted, in microseconds."""
    return sorted(value * 1e6 for value in seconds)


def main() -> int:
    """Measure every mode and batch size, print a table and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="of each scheduler and batch size")
    parser.add_argument("--pause-ms", type=float, default=5.0, help="stands for the model's work")
    options = parser.parse_args()
    if not 10 <= options.steps <= _MAX_STEPS:
        parser.error(f"--steps must be within 10 and {_MAX_STEPS}")
    from green_core.activation import activate, deactivate

    rows = []
    for mode in MODES:
        with tempfile.TemporaryDirectory(prefix="green-bench-") as folder:
            config = Path(folder) / "green.toml"
            write_config(config, mode)
            activate(config)
            try:
                rows += [
                    compare(mode, batch, options.steps, options.pause_ms / 1e3) for batch in BATCHES
                ]
            finally:
                deactivate()
    print(f"\nus per step, {options.steps} steps each; own: what greenserve timed itself")
    titles = ("mode", "batch", "stock p50", "green p50", "added p50", "own p50", "own p99")
    print("".join(f"{title:>11}" for title in titles))
    for row in rows:
        print("".join(f"{value:>11}" for value in row.values()))
    print(json.dumps({"bench": "step_cost", "steps": options.steps, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
