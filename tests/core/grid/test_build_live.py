"""From configuration to a live signal, and how a service's refusal is said."""

import logging
import subprocess
import sys
import threading

import pytest

from green_core.config import BUILT_IN_SOURCES, LIVE_SOURCES, CarbonConfig
from green_core.errors import ConfigError, SignalUnavailable
from green_core.grid import sources
from green_core.grid.build import build_signal
from green_core.grid.live import LiveSignal
from green_core.testing.carbon_api import CarbonApi
from green_core.testing.carbon_services import serve_uk
from green_core.testing.doubles import ScriptedClock
from green_core.testing.grid import ScriptedSource


@pytest.fixture
def source(monkeypatch, live_folders):
    """Every live source is this double."""
    double = ScriptedSource()
    monkeypatch.setattr(sources, "open_source", lambda carbon: double)
    return double


def build(**carbon):
    config = CarbonConfig(**{"source": "uk", "zone": "GB", **carbon})
    clock = ScriptedClock()
    signal = build_signal(config, anchor_s=0.0, now_s=clock.now(), clock=clock)
    try:
        return signal.view(clock.now())
    finally:
        signal.close()


def no_thread_is_left():
    return not [t for t in threading.enumerate() if t.name == "green-carbon"]


def test_a_live_source_is_asked_once_and_the_next_build_uses_the_cache(source):
    """FIELD G1."""
    views = [build(), build(), build()]
    assert len(source.asked) == 1
    assert {view.quality for view in views} == {"fresh"}
    assert source.is_closed
    assert no_thread_is_left()


@pytest.mark.parametrize(
    ("reason", "path"),
    [
        ("auth", "carbon.token_file"),
        ("forbidden", "carbon.zone"),
        ("zone", "carbon.zone"),
        ("kind", "carbon.kind"),
        ("unit", "carbon.unit"),
        ("synthetic", "carbon.allow_synthetic"),
    ],
)
def test_a_refusal_for_good_stops_the_start_and_names_key_words_and_remedy(source, reason, path):
    """FIELD G3, G5, G9, G10."""
    source.failure = SignalUnavailable("the service says: no GB in plan basic", reason=reason)
    for _ in range(2):  # the second time from what was remembered
        with pytest.raises(ConfigError) as caught:
            build()
        assert caught.value.path == path
        assert "no GB in plan basic" in caught.value.problem
        assert caught.value.remedy
    assert len(source.asked) == 1
    assert no_thread_is_left()


@pytest.mark.parametrize("reason", ["network", "timeout", "server_error", "malformed", "empty"])
def test_a_passing_failure_starts_with_the_yearly_average_and_one_warning(source, reason, caplog):
    source.failure = SignalUnavailable("no answer", reason=reason)
    assert build().quality == "fallback"
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "greenserve")
    assert f"({reason}): no answer" in record.getMessage()
    assert build().quality == "fallback"
    assert len(source.asked) == 1


def test_a_service_that_hangs_delays_the_start_by_its_time_limit_only(source, caplog):
    source.answers.clear()
    assert build(timeout_s=0.05).quality == "fallback"
    (record,) = caplog.records
    assert "within 0.05 s" in record.getMessage()
    source.answers.set()


def test_another_kind_or_basis_than_configured_is_refused(source):
    """FIELD G12."""
    for carbon in ({"kind": "marginal"}, {"basis": "direct"}):
        with pytest.raises(ConfigError, match=r"carbon.kind.*scripted service serves"):
            build(**carbon)


@pytest.mark.parametrize("name", [name for name in LIVE_SOURCES if name != "prometheus"])
def test_no_place_is_ever_guessed(live_folders, name):
    """FIELD G2, G11: without a zone nothing is asked."""
    with pytest.raises(ConfigError, match=r"carbon.zone: is empty"):
        build(source=name, zone="  ", url="http://127.0.0.1:9", username="me")


@pytest.mark.parametrize("failure", ["500", "html", "cut_json", "empty_object", "null"])
def test_a_real_source_is_heard_fails_and_is_heard_again(live_folders, failure):
    """FIELD G7: whatever a service answers, a view is there."""
    clock = ScriptedClock()
    with CarbonApi() as api:
        serve_uk(api, [210.0, 190.0, 170.0], now_s=clock.wall)
        config = CarbonConfig(source="uk", zone="GB", url=api.url, timeout_s=60.0)
        signal = LiveSignal(config, sources.open_source(config), clock=clock)
        answers = []
        for harm in (None, failure, None):
            api.recover()
            if harm is not None:
                api.fail(harm)
            clock.advance(signal.poller.tick() + 1)
            answers.append((signal.problem == "", signal.view(clock.now()).quality))
            clock.advance(1800)
        signal.close()
    assert answers == [(True, "fresh"), (False, "fresh"), (True, "fresh")]


def test_a_query_needs_no_zone(source):
    assert build(source="prometheus", zone="", query="up").quality == "fresh"


def test_the_token_names_the_cache_and_stands_in_no_file(source, live_folders, monkeypatch):
    monkeypatch.setenv("GREEN_CARBON_TOKEN", "secret-one")
    build()
    monkeypatch.setenv("GREEN_CARBON_TOKEN", "secret-two")
    build()
    assert len(source.asked) == 2
    for path in live_folders.iterdir():
        assert "secret" not in path.name
        assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize("name", ["static", "file"])
def test_values_of_another_basis_than_configured_are_refused(name, tmp_path):
    file = tmp_path / "ci.csv"
    file.write_text("time,value\n2024-01-01T00:00Z,250\n2024-01-01T01:00Z,310\n")
    config = {"source": name, "zone": "US-CAMX", "path": str(file)}
    assert build(**config, basis="direct").basis == "direct"
    if name == "static":  # of a file its user says what it holds
        with pytest.raises(ConfigError, match=r"carbon.basis.*of direct basis"):
            build(**config, basis="lifecycle")
        assert "public domain" in build(**config).licence


def test_an_unknown_source_is_refused_with_the_nearest_of_all_built_in_ones():
    with pytest.raises(ConfigError, match="watttime"):
        build(source="wattime")
    assert set(LIVE_SOURCES) < set(BUILT_IN_SOURCES)


def test_every_live_source_has_its_module():
    for name in LIVE_SOURCES:
        with pytest.raises(ConfigError, match="carbon"):
            sources.open_source(CarbonConfig(source=name, zone="?", url="no address"))


def test_a_static_start_loads_no_client_and_no_live_source():
    code = (
        "import sys; from green_core.config import CarbonConfig\n"
        "from green_core.grid.build import build_signal\n"
        "build_signal(CarbonConfig(), anchor_s=0.0, now_s=0.0)\n"
        "print([m for m in sys.modules if m in ('httpx', 'green_core.grid.live')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
