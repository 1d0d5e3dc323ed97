"""The commands that ask a live source, each test with folders of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from grid_cases import CASES, SECRET

from green_core.testing.carbon_api import CarbonApi


@pytest.fixture(autouse=True)
def fresh_folders(tmp_path, monkeypatch):
    """No cache, lock or token of anybody else's."""
    for name in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("GREEN_CARBON_TOKEN", SECRET)


@pytest.fixture
def api() -> Iterator[CarbonApi]:
    with CarbonApi() as double:
        yield double


@pytest.fixture
def ask(green, api, tmp_path):
    """Run a command for a source of ``CASES``, which is served unless the test serves something
    itself; no answer ever holds the token.
    """
    served = []

    def call(command: str, source: str, *options: str, timeout_s: float = 5.0, serve=True):
        case = CASES[source]
        if serve and not served:
            case.serve(api)
            served.append(source)
        path = tmp_path / "green.toml"
        path.write_text(f"[carbon]\ntimeout_s = {timeout_s}\n{case.config}")
        place = ("--source", source, "--zone", case.zone, "--kind", case.kind, "--url", api.url)
        answer = green(command, "--config", path, *place, *options)
        assert SECRET not in answer.out + answer.err
        assert "Traceback" not in answer.err
        return answer

    return call
