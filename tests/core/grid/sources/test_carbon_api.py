"""The double itself: what it serves, and that its failures can be switched while it runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import httpx
import pytest

from green_core.config import CarbonConfig
from green_core.grid.sources import open_source
from green_core.testing.carbon_api import CarbonApi, Reply

PATIENCE_S = 30.0


@pytest.fixture
def api():
    with CarbonApi() as double:
        yield double


def get(api: CarbonApi, path: str, **params: str) -> httpx.Response:
    return httpx.get(api.url + path, params=params, timeout=PATIENCE_S, trust_env=False)


def test_a_route_answers_json_or_what_its_function_says(api):
    api.route("/plain", [1, None])
    api.route("/of/{place}", lambda q: Reply(201, {"at": q.parts["place"], **q.params}))
    assert get(api, "/plain").json() == [1, None]
    answer = get(api, "/of/a%20b", x="1")
    assert answer.status_code == 201
    assert answer.json() == {"at": "a b", "x": "1"}
    assert get(api, "/of").status_code == 404


def test_the_newest_route_counts(api):
    api.route("/x", 1)
    api.route("/{any}", 2)
    assert get(api, "/x").json() == 2


def test_it_remembers_what_was_asked(api):
    get(api, "/a/b", zone="DE")
    (question,) = api.requests
    assert (question.path, question.params) == ("/a/b", {"zone": "DE"})
    assert question.headers["host"] in api.url


def test_failures_are_switched_while_it_runs_and_for_a_part_alone(api):
    api.route("/{any}", 1)
    api.fail("503", only="bad", retry_after="9", says="busy")
    answer = get(api, "/bad")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "9")
    assert answer.json() == {"message": "busy"}
    assert get(api, "/good").json() == 1
    api.recover()
    assert get(api, "/bad").json() == 1


def test_refusing_closes_the_port_and_recovering_opens_the_same(api):
    api.route("/x", 1)
    url = api.url
    api.fail("refuse")
    with pytest.raises(httpx.ConnectError):
        get(api, "/x")
    api.recover()
    assert api.url == url
    assert get(api, "/x").json() == 1


def test_closing_ends_what_hangs():
    with CarbonApi() as api:
        api.fail("hang")
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(api.url, timeout=0.1, trust_env=False)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_from_the_command_line_it_serves_all_services(monkeypatch, stop):
    command = [sys.executable, "-m", "green_core.testing.carbon_api", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "made-up values" in line
            url = line.split('"')[1]
            for path in ("generation", "api/v1/query?query=x&time=0"):
                with urllib.request.urlopen(f"{url}/{path}", timeout=PATIENCE_S) as answer:
                    assert json.load(answer)["data"]
            source = open_source(CarbonConfig(source="uk", zone="GB", url=url))
            assert source.fetch(1_790_000_100.0).history
            source.close()
        finally:
            process.send_signal(stop)
            try:
                assert process.wait(PATIENCE_S) == 0
            finally:
                process.kill()
