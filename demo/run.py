"""The whole product once, on a real vLLM: ``python -m tox run -e demo``. See docs/demo.md.

One server with green on; a recorded day of the German grid, replayed; the same requests twice
over the same hours of that day, first with policies switched off, then on. Exits with 1 if
something that the demo must show is not there, and with 2 if it could not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import httpx
from greendemo import report
from greendemo.arms import Stage
from greendemo.checks import Check, run_checks
from greendemo.control import run_control
from greendemo.figures import Arm
from greendemo.grid import Day, Replay, load_day, write_replay
from greendemo.plan import build_plan
from greendemo.progress import Progress
from greendemo.server import ServerFailed, beside_python, serving
from greendemo.traffic import RequestFailed

from green_core import config as configuration
from green_core.config import GreenConfig
from green_core.switch import set_off

HOUR_S = 3.6  # wall seconds of a recorded hour
WINDOW_HOURS = 22  # of each day; the rest is for the books to settle and the switch to be thrown
DUE_HOURS = 21  # the batch job is due at this hour of the window
QUIET_S = 4.0  # no new interactive requests in the last seconds
DAYS = 12  # copies of the day in the replayed file: enough for a slow start
CONFIG = """\
# Written by the demo.
profile = "carbon"

[carbon]
source = "file"
zone = "DE"
path = {path}
replay_start = "{start}"
speed = {speed}
forecast = "recorded"   # perfect knowledge: the file's own future

[slo]                   # what a CPU can keep
latency_ms = 2000
itl_ms = 250

[ledger]
path = {ledger}
"""


def main() -> int:
    """Run the demo; answers the exit code."""
    arguments = _arguments()
    progress = Progress()
    model = os.environ.get("GREENSERVE_TEST_MODEL")
    if not model or not beside_python("vllm").exists():
        progress.say(
            "demo: needs vLLM beside this Python and a model folder in GREENSERVE_TEST_MODEL. "
            "Run it as: python -m tox run -e demo"
        )
        return 2
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits "ignore"
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="greenserve-demo-"))
    try:
        return asyncio.run(_demo(Path(model), folder, progress, arguments.json))
    except (KeyboardInterrupt, asyncio.CancelledError):
        progress.say("demo: interrupted; the server is stopped")
        return 130
    except (ServerFailed, RequestFailed, httpx.HTTPError) as error:
        progress.say(
            f"demo: {error or type(error).__name__}\nThe server's log: {folder / 'vllm.log'}"
        )
        return 2


async def _demo(model: Path, folder: Path, progress: Progress, json_file: Path | None) -> int:
    day = load_day(Path(__file__).with_name("day.csv"))
    replay = Replay(day, anchor_s=time.time(), hour_s=HOUR_S)
    write_replay(day, folder / "grid.csv", days=DAYS)
    config_file = _write_config(folder, day)
    config = configuration.load(config_file, env={}).config
    set_off(config_file, True)
    progress.say(f"starting vLLM with --plugins green; files in {folder}")
    with serving(
        model=model,
        config=config_file,
        log=folder / "vllm.log",
        anchor_s=replay.anchor_s,
    ) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120.0) as client:
            await server.ready(client, progress.tell)
            stage = Stage(
                server=server,
                client=client,
                replay=replay,
                window_s=WINDOW_HOURS * HOUR_S,
                config=config_file,
                ledger=folder / "ledger.db",
                progress=progress,
            )
            progress.say("vLLM is up; warming up")
            size = await stage.warm_up()
            if size < 1:
                progress.say(
                    f"a slow or busy machine: answers are {size:.0%} of their usual length"
                )
            plan = build_plan(
                last_s=WINDOW_HOURS * HOUR_S - QUIET_S, due_s=DUE_HOURS * HOUR_S, size=size
            )
            await stage.switch(on=False)
            off = await stage.run("off", plan)
            await stage.switch(on=True)
            on = await stage.run("on", plan)
            progress.tell("stopping the server")
    control = run_control(
        off, on, config=config, day=day, days=DAYS, anchor_s=replay.anchor_s, folder=folder
    )
    clean_below = config.carbon.medium_threshold
    checks = run_checks(plan, off, on, control, replay, clean_below=clean_below)
    progress.say("")
    print(_heading(day, config, off))
    print(f"\n{report.render_table(off, on, control)}\n\n{report.render_checks(checks)}\n")
    print(report.conclusion(off, on, speed=config.carbon.speed))
    if json_file is not None:
        json_file.write_text(
            json.dumps(report.as_json(off, on, control, checks), indent=2), "utf-8"
        )
    return _end(checks, folder)


def _write_config(folder: Path, day: Day) -> Path:
    path = folder / "green.toml"
    text = CONFIG.format(
        path=json.dumps(str(folder / "grid.csv")),
        ledger=json.dumps(str(folder / "ledger.db")),
        start=day.start.isoformat(),
        speed=round(3600 / HOUR_S, 6),
    )
    path.write_text(text, "utf-8")
    return path


def _heading(day: Day, config: GreenConfig, off: Arm) -> str:
    window_s = off.account.end_s - off.account.start_s
    dirty, clean = max(day.intensities), min(day.intensities)
    return report.wrap(
        f"German grid, {day.start:%Y-%m-%d %H:%M} UTC and {WINDOW_HOURS} hours on ({dirty:.0f} to "
        f"{clean:.0f} g/kWh), in {window_s:.0f} s. Both arms get the same hours: the replayed file "
        f"holds this day {DAYS} times in a row. Data: Bundesnetzagentur | SMARD.de, CC BY 4.0. "
        f"Joules: {off.method}; grams: CO2e, with PUE {config.energy.pue:g}. TTFT (a hold counts) "
        "and ITL: medians at the client; wait: mean, in the engine. Prefix caching is off, so the "
        "second arm gains nothing from the first."
    )


def _end(checks: list[Check], folder: Path) -> int:
    green = beside_python("green")
    print(
        f"\nThe records of this run:\n"
        f"  {green} ledger check --ledger {folder}/ledger.db\n"
        f"  {green} report --by urgency --ledger {folder}/ledger.db\n"
        f"On your own server:\n"
        f"  python -m pip install .            # beside vLLM, from a checkout\n"
        f"  vllm serve MODEL --plugins green --green-config green.toml\n"
        f"  green off --config green.toml      # and back to stock"
    )
    failed = [check.condition for check in checks if not check.holds]
    if not failed:
        return 0
    print(f"\nFAILED: {'; '.join(failed)}\nThe server's log: {folder / 'vllm.log'}")
    return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="greenserve on a real vLLM, in five minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    return parser.parse_args()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End on SIGTERM as on Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
