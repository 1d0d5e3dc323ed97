"""The demo is a script with a package beside it; both arms below are made up."""

import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "demo"
sys.path.insert(0, str(DEMO))

from greendemo.figures import Arm  # noqa: E402
from greendemo.grid import Day, Replay, load_day  # noqa: E402
from greendemo.ledger import Account, Interval, Row  # noqa: E402
from greendemo.plan import Ask  # noqa: E402
from greendemo.traffic import Answer  # noqa: E402

ANCHOR_S = 1_800_000_000.0
HOUR_S = 3.6
WINDOW_S = 79.2
FLEX_AT_S, DUE_S = 3.0, 75.0
PUE = 1.2


@pytest.fixture
def day() -> Day:
    return load_day(DEMO / "day.csv")


@pytest.fixture
def replay(day: Day) -> Replay:
    return Replay(day, ANCHOR_S, HOUR_S)


@pytest.fixture
def plan() -> list[Ask]:
    interactive = [Ask("interactive", 1.5 * n, "p", 12) for n in range(45)]
    return interactive + [Ask("flex", FLEX_AT_S, "p", 96, DUE_S) for _ in range(3)]


@pytest.fixture
def make_arm(plan, replay):
    """An arm of ``plan``; ``flex_starts_s`` counts from the start of its window."""

    def make(name, *, number, flex_starts_s=3.0, ttft_s=0.1, spare_j=0.0, waste_j=0.0):
        start_s = ANCHOR_S + number * replay.day_s
        answers, rows = [], []
        for ask in plan:
            flex = ask.urgency == "flex"
            begin_s = max(ask.at_s, flex_starts_s) if flex else ask.at_s
            wait_s, joules = begin_s - ask.at_s, 20.0 if flex else 2.0
            end_s = begin_s + (10.0 if flex else 0.4)
            grams = joules * PUE * replay.intensity_at(start_s + begin_s) / 3.6e6
            rows.append(
                Row(
                    urgency=ask.urgency,
                    arrival_s=start_s + ask.at_s,
                    finished_s=start_s + end_s,
                    wait_s=wait_s,
                    prompt_tokens=50,
                    output_tokens=ask.max_tokens,
                    energy_j=joules,
                    carbon_g=grams,
                    method="estimated:model",
                )
            )
            answers.append(
                Answer(
                    urgency=ask.urgency,
                    at_s=ask.at_s,
                    due_s=ask.due_s,
                    ttft_s=wait_s + ttft_s,
                    end_s=end_s,
                    itl_s=0.025,
                    prompt_tokens=50,
                    output_tokens=ask.max_tokens,
                    green={},
                )
            )
        active_j = sum(row.energy_j for row in rows) + spare_j
        idle_j = 230.0 + waste_j
        idle_g = idle_j * PUE * replay.day.mean / 3.6e6
        grams = sum(row.carbon_g for row in rows) + idle_g
        interval = Interval(start_s, start_s + WINDOW_S, active_j, idle_j, grams)
        account = Account(start_s, start_s + WINDOW_S, tuple(rows), (interval,))
        return Arm(name, tuple(answers), account)

    return make


@pytest.fixture
def off(make_arm) -> Arm:
    return make_arm("off", number=0)


@pytest.fixture
def on(make_arm) -> Arm:
    return make_arm("on", number=1, flex_starts_s=44.0)
