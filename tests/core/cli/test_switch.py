"""Guarantees of the one switch back to stock."""

import stat

import pytest

from green_core.errors import ConfigError
from green_core.switch import is_off, set_off

CONFIG = 'profile = "carbon"  # a comment that must stay\n'


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "green.toml"
    path.write_text(CONFIG)
    return path


def test_policies_are_on_until_someone_switches_them_off(config, tmp_path):
    assert not is_off(config)
    assert not is_off(config, tmp_path)
    assert not is_off(None, None)
    assert not is_off("", "")


def test_the_switch_leaves_the_config_as_it_is(config):
    assert set_off(config, True)
    assert is_off(config)
    assert config.read_text() == CONFIG
    assert set_off(config, False)
    assert not is_off(config)
    assert config.read_text() == CONFIG


def test_the_switch_lies_beside_the_config(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    set_off("green.toml", True)
    assert (tmp_path / "green.toml.off").exists()
    assert is_off(config)


def test_a_server_without_a_config_has_its_switch_in_the_run_folder(tmp_path):
    assert set_off(None, True, run_dir=tmp_path)
    assert (tmp_path / "off").exists()
    assert is_off(None, tmp_path)
    assert is_off("", tmp_path)


def test_either_switch_is_enough(config, tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    set_off(None, True, run_dir=run_dir)
    assert is_off(config, run_dir)


def test_switching_twice_changes_nothing_more(config):
    assert [set_off(config, off) for off in (True, True, False, False)] == [True, False] * 2


def test_a_switch_without_a_place_is_refused():
    with pytest.raises(ConfigError, match="--run-dir"):
        set_off(None, True)


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(ConfigError, match="--run-dir"):
        set_off(tmp_path / "missing" / "green.toml", True)


def test_asking_never_fails(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        assert not is_off(closed / "green.toml", closed)
    finally:
        closed.chmod(stat.S_IRWXU)
    assert not is_off("nul\0byte", "nul\0byte")
