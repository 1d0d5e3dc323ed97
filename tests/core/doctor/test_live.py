"""``green doctor --live`` against a loopback server that answers scripted statuses."""

import json

import msgspec
import pytest

from green_core.doctor.facts import MeterFacts, PolicyFacts, SeamFacts, SettingFacts, Status
from green_core.testing.builders import grid_view
from green_core.testing.status import (
    NOW_S,
    engine_facts,
    load_facts,
    process_facts,
    signal_facts,
    status,
)

PAGE = "/v1/green/status"


def two_looks(cores=0.0, **changes):
    """Five seconds apart by the server's own clock, whatever the doctor waits."""
    before = process_facts(at_s=NOW_S - 5.0)
    after = process_facts(cpu_s=before.cpu_s + 5.0 * cores)
    return (
        status(**changes, processes=(before,)),
        status(**changes, processes=(after,)),
    )


def test_a_healthy_server_is_reported_clean_and_exits_with_0(server, green):
    server.show(*two_looks())
    code, out, err = green("--live", server.url, "--seconds", "0.01")
    assert (code, err) == (0, "")
    for words in (
        "greenserve 0.2.0 at " + server.url,
        "/health: 200 in",
        "vllm 0.32.0, org/model-8b on 1 x NVIDIA H100",
        "engine 100: vllm.v1.core.sched.scheduler:Scheduler",
        "measured:nvml-counter (GPU-0), moves every 0.1 s, uncertain by 5%",
        "400.0 gCO2e/kWh (average, basis unknown) in DE: dirty, fresh",
        "batch: slo, active",
        "Looked for and not found",
    ):
        assert words in out
    assert "Not checked" not in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_three_planted_traps_are_named_and_no_other(server, green):
    planted = two_looks(
        cores=1.0,
        engine=engine_facts(prefix_caching=False, weights_dtype="float32"),
        load=load_facts(repeated_tokens=200_000, cached_tokens=0),
    )
    server.show(*planted)
    code, out, _ = green("--live", server.url, "--seconds", "0.01", "--json")
    report = json.loads(out)
    assert code == 1
    assert {found["trap"] for found in report["findings"]} == {"prefix_cache", "fp32", "idle_spin"}
    assert report["problems"] == report["not_checked"] == []
    server.show(*planted)
    _, text, _ = green("--live", server.url, "--seconds", "0.01")
    assert "prompts repeat and the prefix cache is off (prefix_cache)" in text
    assert "kWh" in text
    assert "remedy: Start vLLM with --enable-prefix-caching" in text


def test_json_holds_the_whole_status_and_keys_that_do_not_depend_on_what_was_found(server, green):
    shown = status()
    server.show(shown)
    code, out, _ = green("--live", server.url + "/v1/", "--seconds", "0", "--json")
    report = json.loads(out)
    assert code == 0
    assert list(report) == ["url", "health", "status", "problems", "findings", "not_checked"]
    assert msgspec.convert(report["status"], Status) == shown
    assert [each["trap"] for each in report["not_checked"]] == ["idle_spin"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"signal": signal_facts(view=grid_view(quality="stale"))}, "signal is stale"),
        ({"signal": signal_facts(view=grid_view(quality="fallback"))}, "was never heard"),
        ({"signal": signal_facts(problem="401 from the service")}, "401 from the service"),
        ({"meter": MeterFacts("estimated:model", problem="no driver")}, "no driver"),
        ({"policies": (PolicyFacts("batch", "slo", active=False),)}, "slo was chosen and decides"),
        ({"seams": ()}, "no process shows"),
        ({"seams": (SeamFacts("engine", 100),)}, "no seam took hold in engine 100"),
        ({"faults": ("metering",)}, "a fault in metering"),
        ({"silent_s": 12.0}, "does not answer, and what is shown of it is 12 s old"),
        ({"policies": (PolicyFacts("power", "cap", False, problem="no right"),)}, ": no right"),
    ],
)
def test_each_fault_of_a_server_is_a_problem_and_exits_with_1(server, green, change, words):
    server.show(status(**change))
    code, out, _ = green("--live", server.url, "--seconds", "0")
    assert code == 1
    assert words in out


def test_policies_that_rest_since_the_signal_is_stale_say_so(server, green):
    server.show(
        status(
            signal=signal_facts(view=grid_view(quality="stale")),
            policies=(PolicyFacts("batch", "slo", active=False),),
            settings={"carbon.on_stale": SettingFacts("off", "default")},
        )
    )
    _, out, _ = green("--live", server.url, "--seconds", "0")
    assert "decides nothing: the signal is not fresh (carbon.on_stale)" in " ".join(out.split())


def test_an_idle_spin_is_not_ruled_out_where_an_engine_did_not_answer(server, green):
    before, after = two_looks()
    server.show(before, msgspec.structs.replace(after, silent_s=3.0))
    code, out, _ = green("--live", server.url, "--seconds", "0.01")
    assert code == 1
    assert "idle_spin: an engine process did not answer" in out


def test_processes_with_the_same_seams_share_a_line(server, green):
    server.show(status(seams=tuple(SeamFacts("http", pid, ("a:B",)) for pid in (7, 8, 9))))
    _, out, _ = green("--live", server.url, "--seconds", "0")
    assert "http 7, 8, 9: a:B" in out


def test_policies_that_somebody_switched_off_are_said_and_no_problem(server, green):
    off = (PolicyFacts("batch", "slo", active=False),)
    server.show(status(switched_off=True, policies=off))
    code, out, _ = green("--live", server.url, "--seconds", "0")
    assert code == 0
    assert "switched off" in out


def test_an_estimate_that_somebody_asked_for_is_no_problem(server, green):
    wish = {"energy.meter": SettingFacts("model", "file /etc/green.toml")}
    estimated = MeterFacts("estimated:model", problem='energy.meter = "model"')
    server.show(status(meter=estimated, settings={**status().settings, **wish}))
    code, out, _ = green("--live", server.url, "--seconds", "0")
    assert code == 0, out


def test_settings_show_their_origin_and_defaults_only_when_asked_for(server, green):
    settings = {
        "carbon.zone": SettingFacts("DE", "environment"),
        "energy.pue": SettingFacts(1.2, "default"),
    }
    server.show(status(settings=settings))
    _, out, _ = green("--live", server.url, "--seconds", "0")
    assert 'carbon.zone = "DE"  # environment' in out
    assert "energy.pue" not in out
    _, out, _ = green("--live", server.url, "--seconds", "0", "--all")
    assert "energy.pue = 1.2  # default" in out


def test_secrets_in_settings_are_never_shown(server, green):
    settings = {
        "carbon.url": SettingFacts("https://me:hunter2@example.org/x?y=1&Api-Key=hunter2", "file"),
        "policies.params": SettingFacts({"mine": {"api_key": "hunter2", "limit": 3}}, "file"),
    }
    server.show(status(settings=settings))
    for form in ((), ("--json",)):
        _, out, _ = green("--live", server.url, "--seconds", "0", *form)
        assert "hunter2" not in out
        assert "example.org/x?y=1" in out
        assert "limit" in out


def test_control_characters_from_a_server_do_not_reach_the_terminal(server, green):
    server.show(status(faults=("\x1b[2Jgone",)))
    _, out, _ = green("--live", server.url, "--seconds", "0")
    assert "\x1b" not in out


def test_a_time_beyond_any_calendar_is_shown_as_it_is(server, green):
    server.show(status(signal=signal_facts(view=grid_view(observed_at_s=1e300))))
    _, out, _ = green("--live", server.url, "--seconds", "0")
    assert "observed 1e+300 s after 1970" in out


# --- keys -----------------------------------------------------------------------------------


def locked(key, page):
    def answer(headers):
        if headers.get("Authorization") == f"Bearer {key}":
            return (200, page)
        return (401, b'{"error":"Unauthorized"}')

    return answer


@pytest.mark.parametrize("place", ["VLLM_API_KEY", "OPENAI_API_KEY", "file"])
def test_a_key_opens_a_server_that_wants_one_and_is_never_shown(
    server, green, monkeypatch, tmp_path, place
):
    server.answers[PAGE] = locked("s3cret", msgspec.json.encode(status()))
    options = []
    if place == "file":
        (tmp_path / "key").write_text("s3cret\n")
        options = ["--api-key-file", tmp_path / "key"]
    else:
        monkeypatch.setenv(place, "s3cret")
    code, out, err = green("--live", server.url, "--seconds", "0", *options)
    assert code == 0
    assert "s3cret" not in out + err


def test_a_key_is_not_sent_to_a_server_that_wants_none(server, green, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    server.show(status())
    green("--live", server.url, "--seconds", "0")
    assert {authorization for _, authorization in server.asked} == {None}


def test_a_missing_key_and_a_wrong_one_are_told_apart(server, green, monkeypatch):
    server.answers[PAGE] = locked("right", b"")
    code, out, err = green("--live", server.url)
    assert (code, out) == (2, "")
    assert "wants an API key (401)" in err
    monkeypatch.setenv("VLLM_API_KEY", "wrong")
    _, _, err = green("--live", server.url)
    assert "refuses the API key (401)" in err
    assert "wrong" not in err


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"\xff"])
def test_a_file_without_a_key_is_an_error(green, tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    code, _, err = green("--live", "http://127.0.0.1:1", "--api-key-file", tmp_path / "key")
    assert code == 2
    assert "--api-key-file" in err


def test_a_server_that_goes_away_between_the_looks_is_an_error(server, green):
    server.answers[PAGE] = [(200, msgspec.json.encode(status())), (500, b"gone")]
    code, out, err = green("--live", server.url, "--seconds", "0.01")
    assert (code, out) == (2, "")
    assert "answers 500" in err


def test_health_that_does_not_answer_is_said(server, green):
    server.show(status())
    server.answers["/health"] = (500, b"")
    _, out, _ = green("--live", server.url, "--seconds", "0")
    assert "/health: 500" in out
