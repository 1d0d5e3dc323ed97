"""The arms of the comparison, and the proof that a server is in the one it should be in."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

from load import Client
from scrape import INFO, POLICY_ACTIVE, Cumulative, Page, count
from servers import MAX_RUNNING, MAX_STEP_TOKENS, Server

_SWITCH_TIMEOUT_S = 30.0
_LOOK_PERIOD_S = 0.1
_QUIET_LOOKS = 3


class NotAsMeant(Exception):
    """A server did something that this comparison is not about."""


class Arm(NamedTuple):
    """``config``: the TOML of the green server in this arm; empty: the stock server."""

    name: str
    profile: str = ""
    config: str = ""

    @property
    def green(self) -> bool:
        """Whether the green server plays it."""
        return bool(self.config)


STOCK = Arm("stock")
MEASURE = Arm("measure", "measure", 'profile = "measure"\n[carbon]\nzone = "DE"\n')
# Both policies decide: `slo` on each step, `deadline` on each request, since all of them count as
# patient. Objectives of an hour and a flat grid: nothing is limited and nothing held, even on a
# machine so busy that a prefill takes seconds.
POLICIES = Arm(
    "policies",
    "carbon",
    'profile = "carbon"\n[carbon]\nzone = "DE"\n[slo]\nlatency_ms = 3.6e6\nitl_ms = 3.6e6\n'
    '[admission]\ndefault_class = "flex"\n',
)
ARMS = (STOCK, MEASURE, POLICIES)


class GreenServer:
    """The green server: switched between arms while it runs, and read between windows."""

    def __init__(self, server: Server, client: Client, config: Path) -> None:
        self._server = server
        self._client = client
        self._config = config

    async def enter(self, arm: Arm) -> None:
        """Change the config file and wait until /metrics shows the arm in force."""
        if self._config.read_text(encoding="utf-8") != arm.config:
            write_config(self._config, arm)
        give_up_s = time.monotonic() + _SWITCH_TIMEOUT_S
        while not in_force(await self._page(), arm):
            self._server.check()
            if time.monotonic() > give_up_s:
                raise NotAsMeant(f"{arm.name} was not in force after {_SWITCH_TIMEOUT_S:g} s")
            await asyncio.sleep(_LOOK_PERIOD_S)

    async def leave(self, arm: Arm) -> Cumulative:
        """The cost of all steps so far, once none is missing; the arm must have limited nothing."""
        page, quiet = await self._page(), 0
        while quiet < _QUIET_LOOKS:  # a scrape asks the engine to publish, the next one shows it
            await asyncio.sleep(_LOOK_PERIOD_S)
            newer = await self._page()
            quiet = quiet + 1 if count(newer.step_cost()) == count(page.step_cost()) else 0
            page = newer
        if not in_force(page, arm):
            raise NotAsMeant(f"{arm.name} did not stay in force")
        limits = [page.total(f"greenserve_{name}_limit") for name in ("batch", "token")]
        if limits != [MAX_RUNNING, MAX_STEP_TOKENS]:
            raise NotAsMeant(f"{arm.name} limited the engine to {limits} requests and tokens")
        if page.total("greenserve_hold_seconds_count") or page.total("greenserve_held_requests"):
            raise NotAsMeant(f"{arm.name} held requests")
        return page.step_cost()

    async def _page(self) -> Page:
        return Page(await self._client.metrics(self._server))


def write_config(path: Path, arm: Arm) -> None:
    """Replace the file in one step, as editors do."""
    temporary = path.with_suffix(".new")
    temporary.write_text(arm.config, encoding="utf-8")
    os.replace(temporary, path)


def in_force(page: Page, arm: Arm) -> bool:
    """Whether /metrics says that the arm's profile and, if it has any, its policies are live."""
    if page.label(INFO, "profile") != arm.profile:
        return False
    return arm is not POLICIES or page.total(POLICY_ACTIVE) == 2
