"""What greenserve costs a real vLLM server: stock and green in alternation.

    python -m tox run -e bench-vllm [-- --blocks N --boots N ...]

The last line is one JSON object. The exit status is 0 whether or not the goals are met, and 1
when a server failed, tokens were lost, or an arm did something other than it should. How it is
measured and how to read it: ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from arms import ARMS, MEASURE, POLICIES, Arm, GreenServer, NotAsMeant, write_config
from load import Client, TokensLost, Window, Work
from report import Block, load_1min, machine, print_goals, print_step_cost, print_views, summary
from scrape import Cumulative, merged, since
from servers import Server, ServerFailed, end_cleanly_on_signals, running

_WARM_UP_WINDOWS = 2  # per arm and boot, before anything counts


class Pair(NamedTuple):
    """The two servers of one boot, and the config file that the green one watches."""

    stock: Server
    green: Server
    config: Path


class Bench:
    """Windows of work on a stock server and a green one that are both up."""

    def __init__(self, options: argparse.Namespace, client: Client, pair: Pair) -> None:
        self._lead_in = Work(options.streams, 1, options.lead_in_tokens)
        self._work = Work(options.streams, options.requests, options.tokens)
        self._client = client
        self._servers = {False: pair.stock, True: pair.green}
        self._green = GreenServer(pair.green, client, pair.config)
        self._seen: Cumulative = {}
        self.costs: dict[str, Cumulative] = {MEASURE.name: {}, POLICIES.name: {}}

    async def warm_up(self) -> None:
        """Pay for first times, and drop what the steps of it cost."""
        for arm in ARMS * _WARM_UP_WINDOWS:
            await self._window(arm)
        self.costs = {name: {} for name in self.costs}

    async def block(self, boot: int, order: list[Arm]) -> Block:
        """One block: the order, then its mirror image."""
        windows: dict[str, list[Window]] = {arm.name: [] for arm in ARMS}
        for arm in [*order, *reversed(order)]:
            windows[arm.name].append(await self._window(arm))
        pairs = {name: (first, second) for name, (first, second) in windows.items()}
        return Block(boot, pairs)

    async def _window(self, arm: Arm) -> Window:
        server = self._servers[arm.green]
        if arm.green:
            await self._green.enter(arm)
        # A changed config means fresh policies: let them learn, so that they do all their work.
        await self._client.measure(server, self._lead_in, green=arm.green)
        window = await self._client.measure(server, self._work, green=arm.green)
        if arm.green:
            seen = await self._green.leave(arm)
            self.costs[arm.name] = merged(self.costs[arm.name], since(seen, self._seen))
            self._seen = seen
        return window


async def run_boot(
    options: argparse.Namespace, boot: int, count: int, pair: Pair
) -> tuple[list[Block], dict[str, Cumulative]]:
    """All blocks on one pair of servers."""
    client = Client(seed=options.seed + boot)
    orders = random.Random(options.seed + boot)
    blocks: list[Block] = []
    try:
        bench = Bench(options, client, pair)
        await bench.warm_up()
        for number in range(count):
            started_s = time.monotonic()
            order = orders.sample(ARMS, len(ARMS))
            blocks.append(block := await bench.block(boot, order))
            speeds = "  ".join(
                f"{arm.name} " + "/".join(f"{w.tokens_per_s:.1f}" for w in block.windows[arm.name])
                for arm in ARMS
            )
            took_s = time.monotonic() - started_s
            print(
                f"boot {boot + 1} block {number + 1}/{count}  {speeds}  {took_s:.0f} s", flush=True
            )
        return blocks, bench.costs
    finally:
        await client.close()


def measure(options: argparse.Namespace) -> tuple[list[Block], dict[str, Cumulative]]:
    """Boot pairs of servers and run all blocks."""
    blocks: list[Block] = []
    costs: dict[str, Cumulative] = {MEASURE.name: {}, POLICIES.name: {}}
    for boot in range(options.boots):
        count = (options.blocks + boot) // options.boots
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="green-bench-")))
            (watched := folder / "config").mkdir()
            write_config(config := watched / "green.toml", MEASURE)
            flags = ("--plugins", "green", "--green-config", str(config))
            starts = [("stock", ()), ("green", flags)]
            servers: dict[str, Server] = {}
            # Who starts first, and so gets which memory, alternates.
            for name, extra in starts[:: -1 if boot % 2 else 1]:
                port = options.port + len(servers) if options.port else free_port()
                server = running(name, port, options.model, folder, extra)
                servers[name] = stack.enter_context(server)
                servers[name].wait_ready()
            pair = Pair(servers["stock"], servers["green"], config)
            more, cost = asyncio.run(run_boot(options, boot, count, pair))
        blocks += more
        costs = {name: merged(costs[name], cost[name]) for name in costs}
    return blocks, costs


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=20, help="of two windows per arm, in all")
    parser.add_argument("--boots", type=int, default=2, help="pairs of servers, one after another")
    parser.add_argument("--streams", type=int, default=8, help="concurrent clients")
    parser.add_argument("--requests", type=int, default=1, help="per client and window")
    parser.add_argument("--tokens", type=int, default=72, help="output tokens of each request")
    parser.add_argument("--lead-in-tokens", type=int, default=40, help="per client, not counted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=0, help="first of two; 0: free ones")
    parser.add_argument(
        "--model", default=os.environ.get("GREENSERVE_TEST_MODEL"), help="a model's folder"
    )
    options = parser.parse_args(arguments)
    if not options.model:
        parser.error("name a model: --model, or GREENSERVE_TEST_MODEL")
    if options.boots < 1 or options.blocks < max(2, options.boots):
        parser.error("at least one boot, two blocks, and a block for each boot are needed")
    return options


def main() -> int:
    """Measure and report."""
    options = parse()
    end_cleanly_on_signals()
    facts = machine()
    print("  ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    try:
        blocks, costs = measure(options)
    except (ServerFailed, TokensLost, NotAsMeant) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    facts["load_1min_end"] = load_1min()
    fields = summary(blocks, costs) | {"machine": facts}
    print_views(blocks)
    print_step_cost(costs)
    print_goals(fields)
    print(json.dumps(fields))
    return 0


if __name__ == "__main__":
    sys.exit(main())
