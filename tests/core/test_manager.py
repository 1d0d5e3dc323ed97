from importlib.metadata import EntryPoint

import pytest

from green_core import BatchPlan, ConfigError, hookimpl
from green_core import manager as manager_module
from green_core.config import GreenConfig, PoliciesConfig
from green_core.manager import GreenManager, discover


def _config(**policies):
    return GreenConfig(policies=PoliciesConfig(**policies))


class Batch:
    @hookimpl
    def green_batch_policy(self, params):
        return lambda queue, grid: BatchPlan(max_running=params.get("n", 1))


class Observer:
    def __init__(self, log, name, fail=False):
        self.log, self.name, self.fail = log, name, fail

    @hookimpl
    def green_on_request(self, record):
        self.log.append(self.name)
        if self.fail:
            raise RuntimeError("broken observer")


def test_only_what_the_config_names_is_loaded():
    manager = GreenManager(_config(), {"b": Batch})
    assert manager.policy("batch") is None


def test_a_policy_gets_its_own_parameters():
    config = _config(batch="b", params={"b": {"n": 7}, "other": {"n": 9}})
    policy = GreenManager(config, {"b": Batch}).policy("batch")
    assert policy(None, None).max_running == 7


def test_an_unknown_policy_is_an_error_that_names_its_key_and_neighbours():
    with pytest.raises(ConfigError, match=r"policies\.batch: unknown name 'sloo'.*'slo'"):
        GreenManager(_config(batch="sloo"))


def test_a_plugin_without_the_hook_is_refused():
    with pytest.raises(ConfigError, match="does not implement green_admission_policy"):
        GreenManager(_config(admission="b"), {"b": Batch}).policy("admission")


def test_a_blocked_plugin_cannot_be_chosen():
    with pytest.raises(ConfigError, match=r"policies\.block"):
        GreenManager(_config(batch="b", block=("b",)), {"b": Batch})


def test_a_misspelt_hook_is_refused():
    class Misspelt:
        @hookimpl
        def green_bach_policy(self):
            return None

    with pytest.raises(Exception, match="green_bach_policy"):
        GreenManager(_config(batch="m"), {"m": Misspelt})


def test_observers_are_isolated_and_run_in_the_configs_order():
    """FIELD P25, P26."""
    log = []
    plugins = {
        "a": Observer(log, "a"),
        "bad": Observer(log, "bad", fail=True),
        "z": Observer(log, "z"),
    }
    manager = GreenManager(_config(observers=("z", "bad", "a")), plugins)
    manager.observe_request(None)
    manager.observe_request(None)
    assert log == ["z", "bad", "a", "z", "a"]


def test_the_same_entry_point_found_twice_counts_once(monkeypatch):
    """FIELD P27."""
    entry = EntryPoint("slo", "pkg:Slo", manager_module.GROUP)
    monkeypatch.setattr(manager_module, "entry_points", lambda group: [entry, entry])
    assert list(discover()) == ["slo"]


def test_two_plugins_of_one_name_are_refused(monkeypatch):
    entries = [EntryPoint("slo", value, manager_module.GROUP) for value in ("a:Slo", "b:Slo")]
    monkeypatch.setattr(manager_module, "entry_points", lambda group: entries)
    with pytest.raises(ConfigError, match="two installed plugins are called 'slo'"):
        discover()


def test_a_plugin_that_cannot_be_imported_says_so(monkeypatch):
    entry = EntryPoint("lost", "no_such_module:Slo", manager_module.GROUP)
    monkeypatch.setattr(manager_module, "entry_points", lambda group: [entry])
    with pytest.raises(ConfigError, match="cannot be imported"):
        GreenManager(_config(batch="lost"))
