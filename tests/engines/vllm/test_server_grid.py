"""A live carbon service that dies, garbles, hangs, refuses and recovers behind a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from crowd import Waiting
from trapped import CARBON_TOKEN
from vllm_server import Server, until

from green_core.testing.carbon_api import CarbonApi, Failure

pytestmark = pytest.mark.server
FETCHES = "greenserve_carbon_fetches_total"
FAILURES = "greenserve_carbon_fetch_failures_total"
QUALITY = "greenserve_carbon_signal_quality"
FLEX = {"X-Green-Class": "flex", "X-Green-Deadline-S": "600"}
FAILING: dict[Failure, str] = {"refuse": "network", "html": "malformed", "hang": "timeout"}


def _fail(server: Server, api: CarbonApi, failure: Failure, reason: str) -> None:
    """From now on the service fails; wait until the server has met it, and serve meanwhile."""
    before = server.metric(FAILURES, source="electricity_maps", reason=reason)
    api.recover()
    api.fail(failure)

    def met() -> bool:
        assert server.complete(max_tokens=2)["usage"]["green"]["zone"] == "DE"
        return server.metric(FAILURES, source="electricity_maps", reason=reason) > before

    until(met, f"a failure counted as {reason}", 120)


def _lines(server: Server, words: str) -> int:
    return sum(words in line for line in server.log.splitlines())


def _is(server: Server, quality: str) -> bool:
    return server.metric(QUALITY, quality=quality) == 1 == server.metric(QUALITY)


def test_a_live_value_prices_answers_and_steers(trapped_server: Server) -> None:
    until(lambda: _is(trapped_server, "fresh"), "a fresh signal")
    green = trapped_server.complete(max_tokens=2)["usage"]["green"]
    assert green["intensity_g_per_kwh"] == 300
    signal = trapped_server.status()["signal"]
    assert signal["view"]["source"].startswith("Electricity Maps")
    assert (signal["view"]["kind"], signal["problem"]) == ("average", "")
    flex = Waiting(trapped_server, headers=FLEX)
    until(lambda: trapped_server.metric("greenserve_held_requests") == 1, "the hold")
    flex.hang_up()
    until(lambda: trapped_server.metric("greenserve_held_requests") == 0, "the abort")


def test_a_failing_service_fails_no_request_and_lets_go_of_what_it_held(
    trapped_server: Server, carbon_api: CarbonApi
) -> None:
    """FIELD G1. A minute after its last word the signal is stale, and policies are off."""
    server = trapped_server
    until(lambda: _is(server, "fresh"), "a fresh signal")
    flex = Waiting(server, headers=FLEX)
    until(lambda: server.metric("greenserve_held_requests") == 1, "the hold")
    try:
        for failure, reason in FAILING.items():
            _fail(server, carbon_api, failure, reason)
        assert flex.wait(120)["usage"]["green"]["wait_s"] > 10
        until(lambda: _is(server, "stale"), "a stale signal")
        unheld = Waiting(server, headers=FLEX)
        assert unheld.wait()["usage"]["green"]["wait_s"] < 10
        assert server.status()["signal"]["problem"]
        fetches = server.metric(FETCHES, source="electricity_maps")
    finally:
        carbon_api.recover()
    until(lambda: server.metric(FETCHES, source="electricity_maps") > fetches, "recovery", 120)
    until(lambda: _is(server, "fresh"), "a fresh signal")
    held_again = Waiting(server, headers=FLEX)
    until(lambda: server.metric("greenserve_held_requests") == 1, "the next hold")
    held_again.hang_up()
    for reason in FAILING.values():
        assert _lines(server, f"fails ({reason})") == 1
    assert _lines(server, "answers again") == 1
    assert _lines(server, "carbon signal is stale") == 1


def test_a_refused_token_is_said_once_and_never_shown(
    trapped_server: Server, carbon_api: CarbonApi
) -> None:
    """FIELD G1. Last of this server: a refused token is not tried again for half an hour."""
    server = trapped_server
    until(lambda: _is(server, "fresh"), "a fresh signal")
    try:
        _fail(server, carbon_api, "401", "auth")
    finally:
        carbon_api.recover()
    assert _lines(server, "fails (auth)") == 1
    assert "401" in server.status()["signal"]["problem"]
    asked = [question for question in carbon_api.requests if CARBON_TOKEN in str(question)]
    assert asked  # it was sent, and nowhere else:
    shown = [server.log, server.client.get("/metrics").text, str(server.status())]
    shown += [
        file.read_text() for file in Path(server.folder, "carbon-cache").iterdir() if file.is_file()
    ]
    assert not [text for text in shown if CARBON_TOKEN in text]
