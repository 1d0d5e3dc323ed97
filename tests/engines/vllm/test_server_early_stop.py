"""Early stops on a real server and a real model. The policy is chosen by editing its config."""

import json
from collections.abc import Iterator

import pytest
from policy_grid import policy_config
from vllm_server import Server, until

pytestmark = pytest.mark.server
ON = {"X-Green-Stop": "on"}
LOOPING = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 400}
ENDLESS = {"logit_bias": {"0": -100, "2": -100}}  # the model's own ends never come
SCHEMA = {
    "type": "object",
    "properties": {"names": {"type": "array", "items": {"enum": ["Ann", "Bob"]}, "minItems": 12}},
    "required": ["names"],
    "additionalProperties": False,
}


def _use(server: Server, policies: str) -> Server:
    config = policy_config(server.folder, policies)
    if config == server.config_path.read_text():
        return server
    reloads = server.log.count("configuration reloaded")
    server.configure(config)
    until(lambda: server.log.count("configuration reloaded") > reloads, "the config in force", 10)
    return server


@pytest.fixture(scope="module")
def restored(policy_server: Server) -> Iterator[Server]:
    yield policy_server
    _use(policy_server, "")


@pytest.fixture(scope="module")
def loops(restored: Server) -> Server:
    """It stops loops, short ones too."""
    params = '[policies.token_stop]\nwatch = ["repetition"]\nmin_repeated_tokens = 24'
    return _use(restored, f'exit = "token_stop"\n{params}')


@pytest.fixture(scope="module")
def nervous(restored: Server) -> Server:
    """It takes for noise whatever the model is not all but certain of."""
    params = '[policies.token_stop]\nwatch = ["low_confidence"]\nmean_logprob = -1e-6'
    return _use(restored, f'exit = "token_stop"\n{params}')


@pytest.fixture(scope="module")
def usual(restored: Server) -> Server:
    """It has its default parameters."""
    return _use(restored, 'exit = "token_stop"')


def _stream(server: Server, headers: dict[str, str], **body):
    body = {"model": "smol", "stream": True, "stream_options": {"include_usage": True}, **body}
    with server.client.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_loop_is_ended_and_the_text_before_it_is_that_of_the_engine(loops):
    """FIELD P14: a stop of ours has a reason of its own."""
    stock = loops.complete(**LOOPING)
    assert stock["choices"][0]["finish_reason"] == "length"
    assert "stopped_early" not in stock["usage"]["green"]
    answer = loops.complete(headers=ON, **LOOPING)
    (choice,) = answer["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "green:repetition")
    tokens = answer["usage"]["completion_tokens"]
    assert tokens < 400
    assert stock["choices"][0]["text"].startswith(choice["text"])
    whole = loops.complete(**{**LOOPING, "max_tokens": tokens})
    assert choice["text"] == whole["choices"][0]["text"]  # its last token's text too
    assert choice["logprobs"] is None
    stopped = answer["usage"]["green"]["stopped_early"]
    assert stopped["reason"] == "green:repetition"
    assert stopped["saved_tokens"] == 400 - tokens
    assert stopped["saved_j"] > 0
    assert stopped["method"].startswith("estimated")


def test_a_stream_ends_alike(loops):
    chunks = _stream(loops, ON, **LOOPING)
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert choices[-1]["finish_reason"] == "stop"
    assert choices[-1]["stop_reason"] == "green:repetition"
    assert all(choice.get("logprobs") is None for choice in choices)
    text = "".join(choice["text"] for choice in choices)
    tokens = chunks[-1]["usage"]["completion_tokens"]
    whole = loops.complete(**{**LOOPING, "max_tokens": tokens})
    assert text == whole["choices"][0]["text"]
    assert chunks[-1]["usage"]["green"]["stopped_early"]["saved_tokens"] == 400 - tokens


def test_the_mark_works_in_a_body_and_an_unmarked_request_is_untouched(nervous):
    body = {"prompt": "Once", "temperature": 0, "max_tokens": 100}
    asked = nervous.complete(vllm_xargs={"green_stop": True}, **body)
    assert asked["choices"][0]["stop_reason"] == "green:low_confidence"
    silent = nervous.complete(**body)
    assert silent["choices"][0]["finish_reason"] == "length"
    assert silent["choices"][0]["text"].startswith(asked["choices"][0]["text"])


def test_all_choices_of_an_answer_are_stopped_and_their_savings_add_up(nervous):
    body = {"prompt": "Tell me", "n": 2, "max_tokens": 100, "temperature": 0.8, **ENDLESS}
    answer = nervous.complete(headers=ON, **body)
    assert len(answer["choices"]) == 2
    for choice in answer["choices"]:
        assert choice["stop_reason"] == "green:low_confidence"
        assert choice["logprobs"] is None
    saved = answer["usage"]["green"]["stopped_early"]["saved_tokens"]
    assert saved == 200 - answer["usage"]["completion_tokens"]


def test_log_probabilities_are_shown_to_who_asked_for_them_and_to_nobody_else(nervous):
    answer = nervous.complete(headers=ON, prompt="Once", temperature=0, max_tokens=100, logprobs=1)
    (choice,) = answer["choices"]
    assert choice["stop_reason"] == "green:low_confidence"
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["completion_tokens"]
    chat = nervous.post(
        "/v1/chat/completions",
        headers=ON,
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=100,
        temperature=0,
        **ENDLESS,
    ).json()
    assert chat["choices"][0]["stop_reason"] == "green:low_confidence"
    assert chat["choices"][0]["logprobs"] is None


def test_a_structured_answer_is_whole(nervous):
    """FIELD P14."""
    answer = nervous.post(
        "/v1/chat/completions",
        headers=ON,
        messages=[{"role": "user", "content": "Twelve names, please."}],
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        max_tokens=300,
        temperature=0,
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] > 40  # or this shows nothing
    assert "stopped_early" not in answer.json()["usage"]["green"]


def test_a_request_with_tools_is_never_cut(nervous):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    answer = nervous.post(
        "/v1/chat/completions",
        headers=ON,
        messages=[{"role": "user", "content": "Write a long story."}],
        tools=[tool],
        max_tokens=90,
        temperature=0,
    ).json()
    assert answer["choices"][0]["stop_reason"] is None
    assert answer["usage"]["completion_tokens"] > 60


def test_min_tokens_and_ignore_eos_are_kept(nervous):
    """FIELD P14."""
    body = {"prompt": "Once", "temperature": 0, "max_tokens": 120}
    least = nervous.complete(headers=ON, min_tokens=70, **body)
    assert least["choices"][0]["stop_reason"] == "green:low_confidence"
    assert least["usage"]["completion_tokens"] >= 80
    whole = nervous.complete(headers=ON, ignore_eos=True, **body)
    assert whole["usage"]["completion_tokens"] == 120
    assert whole["choices"][0]["finish_reason"] == "length"


def test_beam_search_and_a_malformed_mark_are_refused(nervous):
    beam = {"prompt": "Once", "use_beam_search": True, "n": 2, "max_tokens": 4, "temperature": 0}
    refused = nervous.post("/v1/completions", headers=ON, **beam)
    assert refused.status_code == 400, refused.text
    assert "beam search cannot be stopped early" in refused.json()["error"]["message"]
    assert nervous.post("/v1/completions", **beam).status_code == 200
    wrong = nervous.post("/v1/completions", headers={"X-Green-Stop": "maybe"}, prompt="Once")
    assert wrong.status_code == 400
    assert "X-Green-Stop" in wrong.json()["error"]["message"]


def test_early_stops_show_on_metrics(nervous):
    reason = {"policy": "token_stop", "reason": "green:low_confidence"}
    before = nervous.metric("greenserve_early_stops_total", **reason)
    nervous.complete(headers=ON, prompt="Once", max_tokens=100, temperature=0)
    until(lambda: nervous.metric("greenserve_early_stops_total", **reason) > before, "the count")
    assert nervous.metric("greenserve_early_stop_tokens_saved_total", **reason) > 0
    assert nervous.metric("greenserve_early_stop_joules_saved_total", **reason) > 0


def test_a_high_temperature_is_no_noise(usual):
    """Unlikely tokens are then drawn on purpose: below the threshold on average, and let be."""
    body = {"prompt": "Once", "temperature": 2.0, "seed": 1, "max_tokens": 80, **ENDLESS}
    answer = usual.complete(headers=ON, logprobs=0, **body)
    (choice,) = answer["choices"]
    found = choice["logprobs"]["token_logprobs"]
    assert sum(found) / len(found) < -8.2
    assert choice["finish_reason"] == "length"


def test_without_the_policy_a_mark_does_nothing(restored):
    server = _use(restored, "")
    answer = server.complete(headers=ON, **{**LOOPING, "max_tokens": 100})
    assert answer["choices"][0]["finish_reason"] == "length"
