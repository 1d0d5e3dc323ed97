"""The status page in an app with vLLM's own middleware, as ``vllm serve`` builds it."""

from __future__ import annotations

import asyncio
import json
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from vllm.entrypoints.serve.middleware.register import init_entrypoints_middleware

from green_core.activation import activate, deactivate
from green_core.errors import GreenError
from vllm_green import front, status
from vllm_green.cli import MIDDLEWARE
from vllm_green.status import PATH, StatusPage


@pytest.fixture
def client() -> Iterator[Callable[..., TestClient]]:
    """Makes a client of a started app; ``keys`` are the server's ``--api-key``."""
    activate(overrides={"carbon.zone": "DE"})
    front.frontend.cache_clear()
    clients = []

    def make(*keys: str) -> TestClient:
        app = FastAPI()
        any_caller = {"allowed_origins": ["*"], "allowed_methods": ["*"], "allowed_headers": ["*"]}
        args = Namespace(
            **any_caller,
            allow_credentials=False,
            api_key=list(keys),
            enable_request_id_headers=False,
            middleware=[MIDDLEWARE],
        )
        init_entrypoints_middleware(args, app, ("generate",))
        clients.append(TestClient(app))
        return clients[-1].__enter__()

    yield make
    for one in clients:
        one.__exit__(None, None, None)
    front.frontend.cache_clear()
    deactivate()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine has published."""
    found = SimpleNamespace(status=lambda: b'{"profile": "measure"}')
    monkeypatch.setattr(status, "frontend", lambda: found)


def test_the_page_is_json(client, published) -> None:
    answer = client().get(PATH)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"profile": "measure"}


@pytest.mark.parametrize("key", ["", "wrong", "sec"])
def test_vllms_api_key_guards_the_page(client, published, key) -> None:
    guarded = client("secret")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    refused = guarded.get(PATH, headers=headers)
    assert refused.status_code == 401
    assert "profile" not in refused.text
    answer = guarded.get(PATH, headers={"Authorization": "Bearer secret"})
    assert answer.json() == {"profile": "measure"}


def test_requests_at_once_share_one_question_and_the_next_asks_anew(client, monkeypatch) -> None:
    release, asked = threading.Event(), []

    def slow() -> bytes:
        asked.append(1)
        release.wait(30)
        return b"{}"

    monkeypatch.setattr(status, "frontend", lambda: SimpleNamespace(status=slow))
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def storm() -> None:
        page = StatusPage()
        waiting = [asyncio.create_task(page({}, None, send)) for _ in range(20)]
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*waiting)
        assert len(asked) == 1
        await page({}, None, send)

    asyncio.run(storm())
    assert len(asked) == 2
    assert [message["status"] for message in sent if "status" in message] == [200] * 21


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_page_can_only_be_read(client, published, method) -> None:
    assert client().request(method, PATH).status_code == 405


def test_one_line_says_that_no_engine_has_published(client, monkeypatch) -> None:
    def nobody() -> bytes:
        raise GreenError("No engine has published its status. Ask again in a moment")

    monkeypatch.setattr(status, "frontend", lambda: SimpleNamespace(status=nobody))
    answer = client().get(PATH)
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == (
        "No engine has published its status. Ask again in a moment"
    )


def test_a_front_without_an_engine_is_answered_503(client, monkeypatch) -> None:
    """The core's own answer, and no double's."""
    answer = client().get(PATH)
    assert answer.status_code == 503
    (line,) = answer.json()["error"]["message"].splitlines()
    assert line


def test_the_page_is_offered_once(client) -> None:
    app: Any = FastAPI()
    status.offer_page(app)
    status.offer_page(app)
    assert [route.path for route in app.routes].count(PATH) == 1
    assert PATH not in json.dumps(app.openapi())
