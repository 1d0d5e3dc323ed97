import pytest

from green_core import ConfigError
from green_core.config import GreenConfig, env_names, freeze, load, thaw


def _load(tmp_path, text, env=None, **kwargs):
    path = tmp_path / "green.toml"
    path.write_text(text)
    return load(path, env=env or {}, **kwargs)


def test_the_default_changes_nothing():
    policies = load(env={}).config.policies
    assert not any(
        policies.choice(f) for f in ("batch", "admission", "cache", "eviction", "kv", "exit")
    )


def test_flag_beats_environment_beats_file_beats_profile(tmp_path):
    text = 'profile = "carbon"\n[slo]\nitl_ms = 10\nlatency_ms = 10\n[policies]\nbatch = "x"\n'
    resolved = _load(
        tmp_path,
        text,
        {"GREEN_SLO_ITL_MS": "20", "GREEN_SLO_LATENCY_MS": "20"},
        overrides={"slo.itl_ms": 30.0},
    )
    config = resolved.config
    assert (config.slo.itl_ms, config.slo.latency_ms) == (30.0, 20.0)
    assert (config.policies.batch, config.policies.admission) == ("x", "deadline")
    assert resolved.origins["slo.itl_ms"] == "flag"
    assert resolved.origins["policies.admission"] == "profile carbon"


def test_a_frozen_config_is_the_same_in_every_process(tmp_path):
    resolved = _load(tmp_path, '[carbon]\nzone = "DE"\n[policies.slo]\nmin_running = 2\n')
    assert thaw(freeze(resolved)) == resolved


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[carbon]\nzon = "DE"', r"carbon\.zon: unknown key\. Did you mean 'zone'"),
        ("[carbn]\nzone = 1", r"carbn: unknown key\. Did you mean 'carbon'"),
        ("[carbon]\nhigh_threshold = nan", r"carbon\.high_threshold: .*finite"),
        ("[carbon]\nhigh_threshold = inf", r"carbon\.high_threshold: .*finite"),
        ('[carbon]\nspeed = "fast"', r"carbon\.speed: expected `float`"),
        ("[carbon]\nspeed = 0", r"carbon\.speed: must be above 0"),
        ('[carbon]\nsource = "file"', r"carbon\.path: is empty"),
        ("[carbon]\nmedium_threshold = 400", r"carbon\.medium_threshold: 400.0 is above"),
        ("[admission]\nmax_hold_s = -1", r"admission\.max_hold_s: .*at least 0"),
        ("[energy]\npue = 0.9", r"energy\.pue: must be at least 1"),
        ('profile = "eco"', r"profile: unknown profile 'eco'"),
        ('[policies]\nshadow = ["batsh"]', r"policies\.shadow: unknown family 'batsh'.*'batch'"),
        ("x = [", "is not valid TOML"),
        ("x = " + "[" * 5000, "is not valid TOML"),
        ("[carbon]\nforecast_hours = 1e6", r"carbon\.forecast_hours: must be at most 336"),
        ("[energy]\nflop_j = 1e300", r"energy\.flop_j: must be at most"),
    ],
)
def test_a_bad_key_is_named_in_one_line(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        _load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_missing_file_says_what_to_check(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read.*Check the path"):
        load(tmp_path / "none.toml", env={})


def test_an_unknown_variable_is_refused_with_its_neighbour():
    with pytest.raises(ConfigError, match="GREEN_CARBON_ZNE: unknown variable.*GREEN_CARBON_ZONE"):
        load(env={"GREEN_CARBON_ZNE": "DE"})


def test_variables_that_kubernetes_injects_are_nobodys_mistake():
    env = {"GREEN_SERVICE_HOST": "10.0.0.1", "GREEN_PORT": "tcp://", "GREEN_PORT_80_TCP": "x"}
    assert load(env=env).origins == {}


FITTING = {
    "energy.pue": "1.5",
    "energy.embodied_share": "0.9",
    "slo.attainment": "0.9",
    "cache.max_ratio": "0.9",
    "cache.min_ratio": "0.1",
    "carbon.medium_threshold": "100",
    "carbon.high_threshold": "500",
    "carbon.stale_after_s": "600",
    "carbon.poll_s": "60",
}


def test_every_key_can_be_set_by_a_variable():
    tried = 0
    for variable, key in env_names().items():
        table, _, leaf = key.rpartition(".")
        default = getattr(getattr(GreenConfig(), table), leaf) if table else None
        if not isinstance(default, (bool, int, float)):
            continue
        text = "0" if isinstance(default, bool) else FITTING.get(key, "7")
        value = getattr(getattr(load(env={variable: text}).config, table), leaf)
        assert value == float(text), key
        assert type(value) is type(default)
        tried += 1
    assert tried > 20
