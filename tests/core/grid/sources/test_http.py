"""The HTTP client: every way in which an answer can fail, and that no secret gets out."""

from __future__ import annotations

import shutil
import threading
import time
from email.utils import formatdate

import httpx
import pytest

from green_core.config import CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid.sources.http import Http, TokenAuth, token
from green_core.testing.carbon_api import CarbonApi, Reply, make_certificate

SECRET = "s3cret-0f-the-user"
PATIENCE_S = 30.0


@pytest.fixture
def api():
    with CarbonApi() as double:
        double.route("/value", lambda question: {"value": 1, **question.params})
        yield double


@pytest.fixture
def client(api):
    clients = []

    def open_client(url: str = "", *, timeout_s: float = PATIENCE_S, auth=None, **carbon) -> Http:
        config = CarbonConfig(timeout_s=timeout_s, **carbon)
        clients.append(Http(config, url or api.url, service="Service", auth=auth))
        return clients[-1]

    yield open_client
    for opened in clients:
        opened.close()


def failure(http: Http, path: str = "/value", **options) -> SignalUnavailable:
    with pytest.raises(SignalUnavailable) as caught:
        http.get(path, **options)
    return caught.value


def wait_until(condition) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def answers(http: Http) -> bool:
    """Whether a question succeeds now; with a short time-out that may take a second try."""
    try:
        return http.get("/value") == {"value": 1}
    except SignalUnavailable:
        return False


def asking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "green-carbon-http"]


# --- answers --------------------------------------------------------------------------------


def test_it_says_who_asks_and_answers_json(api, client):
    assert client().get("/value", {"a": "b c&d"}) == {"value": 1, "a": "b c&d"}
    assert api.requests[0].headers["user-agent"].startswith("greenserve/")


def test_the_connection_is_kept(api, client):
    http = client()
    for _ in range(3):
        http.get("/value")
    assert api.connections == 1


def test_a_slash_at_the_end_of_the_url_does_no_harm(api, client):
    client(api.url + "/").get("/value")
    assert api.requests[0].path == "/value"


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("401", "auth", "does not accept the token"),
        ("403", "forbidden", "refuses access"),
        ("404", "server_error", "knows nothing"),
        ("429", "rate_limited", "fewer questions"),
        ("500", "server_error", "failed (HTTP 500"),
        ("503", "server_error", "failed (HTTP 503"),
        ("refuse", "network", "cannot be reached"),
        ("truncated", "malformed", "cut short"),
        ("cut_json", "malformed", "cut JSON"),
        ("html", "malformed", "an HTML page"),
        ("empty", "malformed", "answered nothing"),
        ("huge", "malformed", "more than 8 MiB"),
    ],
)
def test_each_failure_has_its_reason_and_ends_with_it(api, client, name, reason, words):
    http = client()
    api.fail(name)
    error = failure(http)
    assert error.reason == reason
    assert str(error).startswith("Service: ")
    assert words in str(error)
    api.recover()
    assert http.get("/value") == {"value": 1}


@pytest.mark.parametrize("name", ["hang", "drip", "drip_head"])
def test_the_time_out_bounds_the_whole_answer(api, client, name):
    http = client(timeout_s=0.3)
    wait_until(lambda: answers(http))  # so that the connection is one that was kept
    api.fail(name)
    start_s = time.monotonic()
    error = failure(http)
    assert error.reason == "timeout"
    assert "within 0.3 s" in str(error)
    assert time.monotonic() - start_s < 5.0
    wait_until(lambda: not asking())  # though the service still drips
    api.recover()
    wait_until(lambda: answers(http))


def test_closing_ends_a_question_that_is_under_way(api, client):
    http = client(timeout_s=300.0)
    api.fail("hang")
    errors = []
    asker = threading.Thread(target=lambda: errors.append(failure(http)))
    asker.start()
    wait_until(lambda: api.requests)
    http.close()
    asker.join(PATIENCE_S)
    assert not asker.is_alive()
    assert errors[0].reason == "timeout"
    wait_until(lambda: not asking())


def test_deep_json_is_refused_and_kills_nothing(api, client):
    api.route("/value", Reply(200, b"[" * 200_000))
    assert failure(client()).reason == "malformed"


def test_a_status_means_what_the_source_says_it_means(api, client):
    api.fail("404")
    assert failure(client(), reasons={404: "zone"}).reason == "zone"


def test_no_content_is_no_value(api, client):
    api.route("/value", Reply(204, b""))
    assert failure(client()).reason == "empty"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("30", 30.0), (" 7 ", 7.0), ("soon", None), ("-5", None), ("9" * 400, 86_400.0), ("", None)],
)
def test_retry_after_is_read_in_seconds(api, client, header, seconds):
    api.fail("429", retry_after=header)
    assert failure(client()).retry_after_s == seconds


def test_retry_after_is_read_as_a_date(api, client):
    api.fail("503", retry_after=formatdate(time.time() + 600, usegmt=True))
    assert failure(client()).retry_after_s == pytest.approx(600, abs=60)
    api.recover()
    api.fail("503", retry_after="Wed, 21 Oct 2015 07:28:00 GMT")
    assert failure(client()).retry_after_s == 0.0


# --- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"message": "Zone\n\x1b[31mXX\x1b[0m not in plan"},
        {"error": {"code": "403 Forbidden", "message": "Zone\r\n XX not in plan"}},
        b"Zone XX not in plan",
        {"error": ["Zone XX not in plan"]},
    ],
)
def test_the_words_of_the_service_are_told_on_one_printable_line(api, client, body):
    """FIELD G5."""
    api.route("/value", Reply(403, body))
    text = str(failure(client()))
    assert "XX" in text
    assert "not in plan" in text
    assert text.isprintable()


def test_long_words_are_cut(api, client):
    api.fail("403", says="x" * 10_000)
    assert len(str(failure(client()))) < 400


def test_the_page_of_a_refusal_is_not_repeated(api, client):
    api.route("/value", Reply(403, b"<html>blocked</html>", {"Content-Type": "text/html"}))
    assert "blocked" not in str(failure(client()))


def test_a_secret_is_in_no_error_and_no_repr(api, client, monkeypatch):
    monkeypatch.setenv("GREEN_CARBON_TOKEN", SECRET)
    carbon = CarbonConfig()
    http = client(auth=TokenAuth(carbon, "authorization", prefix="Bearer "))
    api.route("/value", lambda question: Reply(403, {"error": question.headers["authorization"]}))
    error = failure(http)
    assert api.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert "Bearer ..." in str(error)
    for text in (str(error), repr(error), repr(http), repr(http.__dict__), repr(carbon)):
        assert SECRET not in text


def test_a_secret_in_a_header_of_the_source_is_in_no_error(api):
    http = Http(CarbonConfig(), api.url, service="Service", headers={"x-key": SECRET})
    api.route("/value", lambda question: Reply(500, {"error": question.headers["x-key"]}))
    error = failure(http)
    http.close()
    assert SECRET not in str(error) + repr(http)


def test_a_redirect_is_told_and_not_followed(api, client, monkeypatch):
    monkeypatch.setenv("GREEN_CARBON_TOKEN", SECRET)
    with CarbonApi() as other:
        api.fail("redirect", to=f"{other.url}/value")
        error = failure(client(auth=TokenAuth(CarbonConfig(), "auth-token")))
        assert other.requests == []
    assert error.reason == "server_error"
    assert f"redirects to {other.url}" in str(error)


# --- token ----------------------------------------------------------------------------------


def test_the_token_stands_in_its_file_or_in_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text(f"  {SECRET}\n")
    assert token(CarbonConfig()) == ""
    monkeypatch.setenv("GREEN_CARBON_TOKEN", " from-the-environment ")
    assert token(CarbonConfig()) == "from-the-environment"
    assert token(CarbonConfig(token_file=str(file))) == SECRET


@pytest.mark.parametrize("content", [b"", b" \n", b"one\ntwo", "schlüssel".encode(), b"\xff\xfe"])
def test_a_file_without_one_token_is_refused_and_not_quoted(tmp_path, content):
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        token(CarbonConfig(token_file=str(file)))
    assert caught.value.path == "carbon.token_file"
    assert "two" not in str(caught.value)


def test_a_missing_file_is_told_with_its_path(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        token(CarbonConfig(token_file=str(tmp_path / "nowhere")))


def test_a_rotated_token_needs_no_restart(api, client, tmp_path):
    file = tmp_path / "token"
    file.write_text("old")
    http = client(auth=TokenAuth(CarbonConfig(token_file=str(file)), "auth-token"))
    http.get("/value")
    file.write_text("new")
    http.get("/value")
    file.unlink()
    assert failure(http).reason == "auth"
    assert [question.headers["auth-token"] for question in api.requests] == ["old", "new"]


def test_without_a_token_nothing_is_sent_and_the_remedy_is_told(api, client):
    error = failure(client(auth=TokenAuth(CarbonConfig(), "auth-token", remedy="Get one at X")))
    assert error.reason == "auth"
    assert "GREEN_CARBON_TOKEN" in str(error)
    assert "Get one at X" in str(error)
    assert api.requests == []


# --- network --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "api.example.org", "ftp://host", "http://", "http://host/?a=b", "http://[]", "file:///x"],
)
def test_what_is_no_base_url_is_refused_at_the_start(url):
    with pytest.raises(ConfigError, match="carbon.url"):
        Http(CarbonConfig(), url, service="Service")


def test_a_url_with_a_password_is_refused_and_not_quoted():
    with pytest.raises(ConfigError) as caught:
        Http(CarbonConfig(), f"https://user:{SECRET}@host", service="Service")
    assert SECRET not in str(caught.value)


def test_an_unknown_host_is_a_network_failure(client):
    assert failure(client("http://carbon.invalid")).reason == "network"


def test_the_proxy_of_the_environment_is_used(api, client, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", api.url)
    assert client("http://carbon.invalid").get("/value") == {"value": 1}


def test_no_proxy_of_the_environment_is_respected(api, client, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert failure(client()).reason == "network"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert client().get("/value") == {"value": 1}


@pytest.mark.parametrize("proxy", ["nonsense://127.0.0.1:9", "http://127.0.0.1:none"])
def test_a_proxy_setting_that_makes_no_sense_is_told(client, monkeypatch, proxy):
    monkeypatch.setenv("ALL_PROXY", proxy)
    error = failure(client())
    assert error.reason == "network"
    assert "ALL_PROXY" in str(error)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
class TestTls:
    @pytest.fixture
    def secure(self, tmp_path):
        certificate = make_certificate(tmp_path)
        with CarbonApi(certificate=certificate) as double:
            double.route("/value", {"value": 1})
            double.pem = str(certificate[0])
            yield double

    def test_a_stranger_is_not_trusted(self, secure, client):
        error = failure(client(secure.url))
        assert error.reason == "network"
        assert "certificate" in str(error)

    def test_the_configured_ca_is_trusted(self, secure, client):
        assert client(secure.url, ca_file=secure.pem).get("/value") == {"value": 1}

    def test_the_ca_of_the_environment_is_trusted(self, secure, client, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", secure.pem)
        assert client(secure.url).get("/value") == {"value": 1}

    def test_the_time_out_holds_inside_tls(self, secure, client):
        http = client(secure.url, ca_file=secure.pem, timeout_s=0.5)
        wait_until(lambda: answers(http))
        secure.fail("drip_head")
        assert failure(http).reason == "timeout"
        wait_until(lambda: not asking())


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used_is_refused_at_the_start(tmp_path, content):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match="carbon.ca_file"):
        Http(CarbonConfig(ca_file=str(file)), "https://host", service="Service")


def test_a_missing_ca_file_of_the_environment_is_a_signal_failure(client, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere.pem"))
    assert failure(client("https://127.0.0.1:9")).reason == "network"


def test_any_failure_of_an_auth_flow_is_a_signal_failure(api, client):
    class Broken(httpx.Auth):
        def auth_flow(self, request):
            raise RuntimeError("boom")
            yield request

    assert failure(client(auth=Broken())).reason == "network"
