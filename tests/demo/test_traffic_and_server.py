"""The client against a made-up server, and the end of a server's processes."""

import asyncio
import json
import subprocess
import time

import httpx
import pytest
from greendemo import server as server_module
from greendemo.plan import Ask
from greendemo.server import Server, ServerFailed, environment
from greendemo.traffic import RequestFailed, play

GREEN = {"energy_j": 2.5, "method": "estimated:model"}
ASK = Ask("flex", 0.0, "prompt", 3, due_s=60.0)


def stream(*, green: bool = True, pieces: int = 3) -> bytes:
    """An OpenAI event stream: a role, then ``pieces`` of text, then the usage."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3, **({"green": GREEN} if green else {})}
    chunks = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    chunks += [{"choices": [{"delta": {"content": "word"}}]}] * pieces
    chunks += [{"choices": [], "usage": usage}]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def answers(plan, handler):
    async def run():
        transport = httpx.MockTransport(handler)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await play(client, plan, time.time())

    return asyncio.run(run())


def test_a_request_carries_its_marks_and_its_answer_the_accounts():
    seen = []

    def handler(request):
        seen.append(request)
        return httpx.Response(200, content=stream())

    interactive = Ask("interactive", 0.0, "prompt", 3)
    done = answers([ASK, interactive], handler)
    assert [answer.urgency for answer in done] == ["flex", "interactive"]
    assert (done[0].prompt_tokens, done[0].output_tokens, done[0].green) == (7, 3, GREEN)
    assert 0 < done[0].ttft_s <= done[0].end_s
    marks = {r.headers["X-Green-Class"]: r.headers for r in seen}
    assert 0 < float(marks["flex"]["X-Green-Deadline-S"]) <= 60.0
    assert marks["flex"]["X-Green-Tenant"] != marks["interactive"]["X-Green-Tenant"]
    assert "X-Green-Deadline-S" not in marks["interactive"]
    assert all(json.loads(r.content)["ignore_eos"] for r in seen)


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (httpx.Response(400, content=b"no such model"), "HTTP 400: b'no such model'"),
        (httpx.Response(200, content=stream(green=False)), "without usage.green"),
        (httpx.Response(200, content=stream(pieces=0)), "without tokens"),
        (httpx.Response(200, content=b'data: {"error": "engine died"}\n\n'), "engine died"),
    ],
)
def test_an_answer_that_is_not_whole_stops_the_demo_and_says_why(response, says):
    with pytest.raises(RequestFailed) as failure:
        answers([ASK], lambda request: response)
    assert says in str(failure.value)


def test_a_server_that_cannot_be_reached_stops_the_demo():
    def refuse(request):
        raise httpx.ConnectError("refused")

    with pytest.raises(RequestFailed, match="refused"):
        answers([ASK, ASK], refuse)


@pytest.mark.parametrize("parent", ["wait", "trap '' TERM; wait; wait"])
def test_stopping_a_server_leaves_no_process_behind(parent, monkeypatch):
    monkeypatch.setattr(server_module, "STOP_TIMEOUT_S", 0.5)
    monkeypatch.setattr(server_module, "GROUP_TIMEOUT_S", 0.2)
    script = f"(trap '' TERM; echo up; sleep 20; echo survived) & {parent}"
    command = ["sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"up\n"
        Server(process, "http://unused").stop()
        # The pipe ends when its last holder is gone.
        assert process.stdout.read() == b""


def test_a_dead_server_is_noticed():
    with subprocess.Popen(["sh", "-c", "exit 3"], start_new_session=True) as process:
        process.wait()
        with pytest.raises(ServerFailed, match="exit code 3"):
            Server(process, "http://unused").check()


def test_the_callers_green_settings_do_not_change_the_demo(monkeypatch):
    monkeypatch.setenv("GREEN_POLICIES__BATCH", "other")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = environment(anchor_s=5.0)
    assert [name for name in found if name.startswith("GREEN_")] == ["GREEN_EPOCH"]
    assert (found["GREEN_EPOCH"], found["OMP_NUM_THREADS"]) == ("5.0", "2")
