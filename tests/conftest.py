"""Settings that every test shares."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# No test may depend on timing, nor on what the person who runs it has configured.
settings.register_profile("greenserve", deadline=None, print_blob=True)
settings.load_profile("greenserve")
for name in [name for name in os.environ if name.startswith("GREEN_")]:
    del os.environ[name]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which every test was skipped: it has shown nothing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    nothing_ran = reporter is None or not reporter.stats.get("passed")
    if nothing_ran and not session.config.option.collectonly and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks, caches and remembered starts of a test run are its own, also in its servers."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            folder = tmp_path_factory.mktemp(name.lower())
            folder.chmod(0o700)
            patch.setenv(name, str(folder))
        yield
