"""What ``green doctor --live`` says where it finds no server, or one that shows no status."""

import json
import socket
import threading

import pytest

from green_core.doctor import live
from green_core.testing.status import status

PAGE = "/v1/green/status"
OLDER = b'greenserve_info{version="0.1.0",model="m"} 1\n'


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({}, "has neither /v1/green/status nor /metrics. Check the address"),
        ({"/metrics": (200, b"vllm:requests 1\n")}, "without greenserve. Start it with --plugins"),
        ({"/metrics": (200, OLDER)}, "runs greenserve 0.1.0, which has no status page"),
        ({PAGE: (405, b"")}, "has neither /v1/green/status nor /metrics"),
        ({PAGE: (503, b'{"message": "not up"}')}, "no status yet (503)"),
        ({PAGE: (500, b"boom")}, "answers 500: 'boom'"),
        ({PAGE: (302, b"", ("Location", "https://else.where/"))}, "on to https://else.where/"),
        ({PAGE: (200, b"<html>hello</html>")}, "answers no JSON: '<html>hello</html>'"),
        ({PAGE: (200, b"")}, "answers no JSON: nothing"),
        ({PAGE: (200, b"{}")}, "JSON that is no status"),
        ({PAGE: (200, b"[1]")}, "JSON that is no status: '[1]'"),
        ({PAGE: (200, b"[" * 100_000)}, "answers no JSON"),
        ({PAGE: (200, b"{}", ("Content-Encoding", "gzip"))}, "not as HTTP should"),
        ({PAGE: (302, b"", ("Location", "http://a.b:\x1b/"))}, "not as HTTP should"),
        ({PAGE: (200, b'{"greenserve_version": "9.9", "new": 1}')}, "runs greenserve 9.9"),
    ],
)
def test_a_server_without_a_status_is_said_in_one_line(server, green, answers, words):
    server.answers.update(answers)
    code, out, err = green("--live", server.url)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "answers",
    [
        {PAGE: (200, b'{"greenserve_version": "9\\u001b[2J", "engine": 7}')},
        {"/metrics": (200, b'greenserve_info{version="9\x1b[2J"} 1\n')},
        {PAGE: (500, b"\x1b[2J")},
        {PAGE: (200, b"\x1b[2J")},
    ],
)
def test_control_characters_of_a_refusal_do_not_reach_the_terminal(server, green, answers):
    server.answers.update(answers)
    code, _, err = green("--live", server.url)
    assert code == 2
    assert "x1b" in err
    assert "\x1b" not in err


def test_a_server_that_is_not_there_is_said_in_one_line(green):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, _, err = green("--live", f"http://user:pw@127.0.0.1:{port}")
    assert code == 2
    assert "No server can be reached" in err
    assert "pw" not in err
    assert err.count("\n") == 1


def test_a_server_that_hangs_is_given_up(server, green, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(live, "TIMEOUT_S", 0.1)
    server.answers[PAGE] = lambda headers: (release.wait(60), (200, b"{}"))[1]
    code, _, err = green("--live", server.url)
    release.set()
    assert code == 2
    assert "did not answer within 0.1 s" in err


def test_an_answer_without_end_is_given_up(server, green, monkeypatch):
    monkeypatch.setattr(live, "_MAX_BYTES", 1_000)
    server.answers[PAGE] = (200, b"x" * 5_000)
    code, _, err = green("--live", server.url)
    assert code == 2
    assert "does not come to an end" in err


@pytest.mark.parametrize("end", ["/", "/v1", "/v1/", PAGE, PAGE + "/", "/?x=1", "/#x"])
def test_an_address_may_be_copied_from_anywhere(server, green, end):
    server.show(status())
    code, out, err = green("--live", server.url + end, "--seconds", "0", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["url"] == server.url


@pytest.mark.parametrize(
    ("name", "value"), [("ALL_PROXY", "socks4://h:1"), ("SSL_CERT_FILE", "/no/such/file")]
)
def test_network_settings_that_cannot_be_used_are_said_in_one_line(green, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    code, _, err = green("--live", "https://192.0.2.1:1", "--seconds", "0")
    assert code == 2
    assert name in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "", "http://[::1"])
def test_what_is_no_address_is_refused_with_an_example(green, url):
    code, _, err = green("--live", url)
    assert code == 2
    assert "http://127.0.0.1:8000" in err


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_a_wait_that_is_no_number_of_seconds_is_refused(green, seconds):
    code, _, err = green("--live", "http://127.0.0.1:1", "--seconds", seconds)
    assert code == 2
    assert "number of seconds" in err
