"""Shared by the tests of live signals."""

import pytest


@pytest.fixture
def live_folders(tmp_path, monkeypatch):
    """Locks and caches of one test only; answers the folder with the cache."""
    for name in ("run", "cache"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "greenserve"
