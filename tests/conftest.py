"""Settings that every test shares."""

import os

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
