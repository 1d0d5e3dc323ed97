"""What every test of a source shares."""

import pytest


@pytest.fixture(autouse=True)
def _no_settings_of_the_caller(monkeypatch):
    """No proxy, no CA file and no token of whoever runs the tests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("SSL_CERT_DIR", "GREEN_CARBON_TOKEN"):
        monkeypatch.delenv(name, raising=False)
