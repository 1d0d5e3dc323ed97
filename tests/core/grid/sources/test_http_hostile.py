"""The HTTP client: packed answers, and secrets in odd places."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zlib

import pytest

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.sources.http import Http, TokenAuth, token
from green_core.testing.carbon_api import CarbonApi, Reply

BODY = b'{"value": 1}'


@pytest.fixture
def api():
    with CarbonApi() as double:
        yield double


def get(url: str):
    http = Http(CarbonConfig(timeout_s=30.0), url, service="Service")
    try:
        return http.get("/value")
    finally:
        http.close()


def serve(api: CarbonApi, body: bytes, encoding: str) -> None:
    api.route("/value", lambda _: Reply(200, body, {"Content-Encoding": encoding}))


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY)),
        ("GZip", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("identity", BODY),
        ("", BODY),
    ],
)
def test_a_packed_answer_is_read(api, encoding, body):
    serve(api, body, encoding)
    assert get(api.url) == {"value": 1}
    assert api.requests[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", BODY),
        ("gzip", gzip.compress(BODY)[:-9]),
        ("br", BODY),
        ("zstd", BODY),
        ("gzip, gzip", gzip.compress(gzip.compress(BODY))),
    ],
)
def test_a_damaged_or_unasked_encoding_is_no_answer(api, encoding, body):
    serve(api, body, encoding)
    with pytest.raises(SignalUnavailable) as caught:
        get(api.url)
    assert caught.value.reason == "malformed"


ASK = """
import resource, sys
from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.sources.http import Http, TokenAuth, token

http = Http(CarbonConfig(timeout_s=60.0), sys.argv[1], service="Service")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    http.get("/value")
except SignalUnavailable as error:
    assert "8 MiB" in str(error), error
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("size_mib", [9, 512])
def test_an_answer_that_unpacks_to_much_takes_no_memory(api, size_mib):
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    parts = [packer.compress(bytes(1024 * 1024)) for _ in range(size_mib)]
    serve(api, b"".join([*parts, packer.flush()]), "gzip")
    command = [sys.executable, "-c", ASK, api.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 40 * 1024  # kB


@pytest.mark.parametrize(
    "proxy",
    ["http://user:hun/ter2@proxy:80", "http://user:hun#ter2@proxy:80", "http://user:hunter2@[::1"],
)
def test_a_password_in_a_proxy_that_makes_no_sense_is_in_no_error(monkeypatch, proxy):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    with pytest.raises(SignalUnavailable) as caught:
        get("http://127.0.0.1:9")
    assert "hun" not in str(caught.value)
    assert "HTTP_PROXY" in str(caught.value)


def test_a_header_that_cannot_be_sent_is_not_quoted(api):
    auth = TokenAuth(CarbonConfig(), "auth-token", prefix="\0")
    http = Http(CarbonConfig(timeout_s=30.0), api.url, service="Service", auth=auth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREEN_CARBON_TOKEN", "hunter2")
        with pytest.raises(SignalUnavailable) as caught:
            http.get("/value")
    http.close()
    assert "hunter" not in str(caught.value)


def test_a_token_file_that_is_a_pipe_or_a_device_holds_nothing_up(tmp_path):
    pipe, endless = tmp_path / "pipe", tmp_path / "endless"
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    before = len(os.listdir("/proc/self/fd"))
    for path in (pipe, endless, tmp_path):
        with pytest.raises(ConfigError, match="no regular file"):
            token(CarbonConfig(token_file=str(path)))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_token_file_may_begin_with_a_byte_order_mark_and_be_linked_but_not_be_huge(tmp_path):
    written, linked = tmp_path / "written", tmp_path / "linked"
    linked.symlink_to(written)  # as mounted secrets are
    written.write_bytes(b"\xef\xbb\xbfsecret\r\n")
    assert token(CarbonConfig(token_file=str(linked))) == "secret"
    written.write_bytes(b"x" * 100_000)
    with pytest.raises(ConfigError, match="printable ASCII"):
        token(CarbonConfig(token_file=str(linked)))
