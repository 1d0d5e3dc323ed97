"""Every test of the doctor has a state folder of its own and no server's keys."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from green_core.cli import run


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The folder in which starts are remembered."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("VLLM_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state" / "greenserve"


class Server:
    """A server on loopback that answers as it is told, path by path; a list is used up in turn."""

    def __init__(self):
        self.answers = {}
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append((self.path, self.headers.get("Authorization")))
                answer = outer.answers.get(self.path, (404, b"nothing here"))
                if isinstance(answer, list):
                    answer = answer.pop(0) if len(answer) > 1 else answer[0]
                if callable(answer):
                    answer = answer(self.headers)
                code, body, *headers = answer
                self.send_response(code)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *args: None  # a client that hung up
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    def show(self, *statuses):
        """Answer these statuses, one after the other; the last one stays."""
        pages = [(200, msgspec.json.encode(status)) for status in statuses]
        self.answers["/v1/green/status"] = pages
        self.answers["/health"] = (200, b"")

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server():
    """A loopback server that plays vLLM's part."""
    running = Server()
    yield running
    running.close()


@pytest.fixture
def green(capsys):
    """Run ``green doctor ARGUMENTS``: exit code, stdout, stderr."""

    def call(*arguments):
        try:
            code = run(["doctor", *map(str, arguments)])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return call
