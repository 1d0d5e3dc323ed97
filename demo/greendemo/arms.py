"""One arm after the other on one running server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx

from green_core.switch import set_off
from greendemo.figures import CLASSES, Arm
from greendemo.grid import Replay
from greendemo.ledger import read_account, settled_until_s
from greendemo.plan import Ask, warm_up_job
from greendemo.progress import Progress
from greendemo.server import Server, ServerFailed, samples
from greendemo.traffic import Answer, play

WARM_UP_GOAL_S = 15.0  # the warm-up job's time above which the answers are made shorter
SWITCH_TIMEOUT_S = 15.0
SETTLE_TIMEOUT_S = 60.0  # twice as long as books wait for a step that may still run
POLL_S = 1.0


class Stage:
    """What both arms share. ``window_s`` is their length, from the start of a recorded day."""

    def __init__(
        self,
        *,
        server: Server,
        client: httpx.AsyncClient,
        replay: Replay,
        window_s: float,
        config: Path,
        ledger: Path,
        progress: Progress,
    ) -> None:
        self._server, self._client, self._replay = server, client, replay
        self._window_s, self._config, self._ledger = window_s, config, ledger
        self._progress = progress

    async def warm_up(self) -> float:
        """Run the batch job twice; answers the size that suits the machine, at most 1.0."""
        for _ in range(2):  # the first time includes work that is done only once
            started_s = time.time()
            await play(self._client, warm_up_job(), started_s)
            took_s = time.time() - started_s
        return min(1.0, WARM_UP_GOAL_S / took_s)

    async def switch(self, *, on: bool) -> None:
        """Throw the one switch, and wait until the server says that it took."""
        set_off(self._config, not on)
        await self._until(
            lambda page: [int(on)] * 2 == samples(page, "greenserve_policy_active"),
            SWITCH_TIMEOUT_S,
            f"policies did not switch {'on' if on else 'off'}",
        )

    async def run(self, name: str, plan: list[Ask]) -> Arm:
        """Play ``plan`` over the window that starts with the next recorded day."""
        start_s = self._replay.next_start_s(time.time() + POLL_S)
        end_s = start_s + self._window_s
        while (left_s := start_s - time.time()) > 0:
            self._progress.tell(
                f"policies {name}: begins at {self._replay.label(start_s)} of the recorded day, "
                f"in {left_s:.0f} s"
            )
            await self._page()
            await asyncio.sleep(min(left_s, POLL_S))
        done: Counter[str] = Counter()
        watcher = asyncio.create_task(self._watch(name, plan, done, end_s))
        try:
            answers = await play(
                self._client, plan, start_s, lambda answer: done.update([answer.urgency])
            )
            late_s = time.time() - end_s
            if late_s > 0:
                raise ServerFailed(
                    f"requests ran until {late_s:.0f} s after the window: the machine is too slow "
                    "or too busy for this demo. Try again when it is quiet"
                )
            await watcher
        finally:
            watcher.cancel()
        await self._until(
            lambda page: settled_until_s(self._ledger) >= end_s,
            SETTLE_TIMEOUT_S,
            "the ledger did not settle",
        )
        return self._arm(name, answers, start_s, end_s)

    def _arm(self, name: str, answers: list[Answer], start_s: float, end_s: float) -> Arm:
        account = read_account(self._ledger, start_s, end_s)
        self._progress.say(
            f"policies {name}: done, {len(answers)} answers, {account.energy_j:.0f} J, "
            f"{account.carbon_g * 1e3:.2f} mgCO2e"
        )
        return Arm(name, tuple(answers), account)

    async def _watch(self, name: str, plan: list[Ask], done: Counter[str], end_s: float) -> None:
        """Show the state until the window ends."""
        asked = Counter(ask.urgency for ask in plan)
        while (left_s := end_s - time.time()) > 0:
            held = samples(await self._page(), "greenserve_held_requests")
            now_s = time.time()
            answers = ", ".join(
                f"{urgency} {done[urgency]}/{asked[urgency]}" for urgency in CLASSES
            )
            self._progress.tell(
                f"policies {name}: {self._replay.label(now_s)}, "
                f"{self._replay.intensity_at(now_s):.0f} g/kWh; answered {answers}; "
                f"held {sum(held):.0f}; {max(left_s, 0):.0f} s left"
            )
            await asyncio.sleep(min(left_s, POLL_S))

    async def _page(self) -> str:
        """/metrics. A scrape also has an idle engine bring its books up to date."""
        self._server.check()
        return (await self._client.get("/metrics/")).text

    async def _until(self, true_of: Callable[[str], bool], timeout_s: float, failure: str) -> None:
        give_up_s = time.monotonic() + timeout_s
        while not true_of(await self._page()):
            if time.monotonic() > give_up_s:
                raise ServerFailed(f"{failure} within {timeout_s:.0f} s")
            await asyncio.sleep(0.25)
