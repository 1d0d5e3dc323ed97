"""What a client sees: answers, streams, tools, headers, traces, metrics."""

import json

import pytest
from otlp import Receiver
from vllm_server import Server, until

pytestmark = pytest.mark.server
FIELDS = {
    "energy_j",
    "carbon_g",
    "method",
    "kind",
    "basis",
    "settled",
    "zone",
    "intensity_g_per_kwh",
    "wait_s",
}


def _stream(server: Server, path: str, **body):
    body = {"model": "smol", "stream": True, "stream_options": {"include_usage": True}, **body}
    with server.client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_every_answer_carries_its_joules_and_grams(policy_server):
    usage = policy_server.complete(max_tokens=8, ignore_eos=True)["usage"]
    green = usage["green"]
    assert set(green) == FIELDS
    assert green["energy_j"] > 0
    assert green["zone"] == "DE"
    assert green["method"].startswith("estimated")
    pue, joules_per_kwh = 1.2, 3.6e6
    expected_g = green["energy_j"] * pue * green["intensity_g_per_kwh"] / joules_per_kwh
    assert green["carbon_g"] == pytest.approx(expected_g, rel=1e-3)


def test_the_responses_api_carries_them_too(policy_server):
    answer = policy_server.post("/v1/responses", input="Hello", max_output_tokens=5)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["green"]["energy_j"] > 0


def test_only_the_last_streamed_usage_chunk_carries_them(policy_server):
    chunks = _stream(policy_server, "/v1/completions", prompt="Once", max_tokens=6)
    with_green = [c for c in chunks if (c.get("usage") or {}).get("green")]
    assert with_green == [chunks[-1]]


def test_a_stop_string_is_accounted_though_the_front_ends_the_request(policy_server):
    answer = policy_server.complete(
        prompt="1 2 3 4 5 6 7 8", max_tokens=200, temperature=0, ignore_eos=True, stop=[" "]
    )
    assert answer["choices"][0]["finish_reason"] == "stop"
    green = answer["usage"]["green"]
    assert green["energy_j"] > 0
    assert green["settled"] is False
    row = until(lambda: policy_server.ledger(answer["id"]), "the ledger row")[0]
    assert row["finish_reason"] == "stop_string_or_abort"
    assert row["energy_j"] >= green["energy_j"] * 0.99


def test_all_choices_of_an_answer_are_accounted(policy_server):
    one = policy_server.complete(prompt="Tell me", n=1, max_tokens=12, ignore_eos=True)
    two = policy_server.complete(prompt="Tell me", n=2, max_tokens=12, ignore_eos=True)
    assert len(two["choices"]) == 2
    rows = until(
        lambda: len(rows := policy_server.ledger(two["id"])) == 2 and rows, "two ledger rows"
    )
    total_j = sum(row["energy_j"] for row in rows)
    assert two["usage"]["green"]["energy_j"] == pytest.approx(total_j, rel=1e-4)
    assert len(policy_server.ledger(one["id"])) == 1


def test_tool_calls_work_and_are_accounted(policy_server):
    tool = {
        "type": "function",
        "function": {
            "name": "weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Paris", "Rome"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    answer = policy_server.post(
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "Weather in Paris?"}],
        tools=[tool],
        tool_choice="required",
        max_tokens=120,
    )
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    assert message.get("tool_calls"), answer.text
    assert message["tool_calls"][0]["function"]["name"] == "weather"
    assert answer.json()["usage"]["green"]["energy_j"] > 0


def test_nothing_is_shown_that_was_not_asked_for(policy_server):
    answer = policy_server.complete(max_tokens=4)
    assert answer["choices"][0]["logprobs"] is None
    assert answer["kv_transfer_params"] is None
    chunks = _stream(policy_server, "/v1/completions", prompt="Once", max_tokens=3)
    assert "greenserve" not in json.dumps(chunks)


def test_a_users_kv_transfer_params_are_neither_echoed_nor_lost(policy_server):
    answer = policy_server.complete(max_tokens=3, kv_transfer_params={"mine": 1})
    assert "greenserve" not in json.dumps(answer)
    assert answer["usage"]["green"]["energy_j"] > 0


@pytest.mark.parametrize(
    ("header", "value", "says"),
    [
        ("X-Green-Deadline-S", "soon", "'soon' is not a number of seconds above 0"),
        ("X-Green-Deadline-S", "-1", "'-1' is not"),
        ("X-Green-Deadline-S", "nan", "'nan' is not"),
        ("X-Green-Class", "urgent", "unknown class 'urgent'"),
        ("X-Green-Tenant", "x" * 200, "1 to 128 printable"),
        ("X-Green-Tenat", "acme", "unknown header. Did you mean 'X-Green-Tenant'"),
    ],
)
def test_a_malformed_header_is_answered_400_naming_it(policy_server, header, value, says):
    answer = policy_server.post("/v1/completions", headers={header: value}, prompt="Once")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert header in error["message"]
    assert says in error["message"]


def test_a_malformed_body_mark_is_answered_400_naming_it(policy_server):
    for xargs in ({"green_deadline_s": -1}, {"green_class": "urgent"}, {"green_clas": "flex"}):
        answer = policy_server.post(
            "/v1/chat/completions",
            messages=[{"role": "user", "content": "Hi"}],
            vllm_xargs=xargs,
            max_tokens=3,
        )
        assert answer.status_code == 400, answer.text
        assert next(iter(xargs)) in answer.json()["error"]["message"]


def test_marks_among_sampling_parameters_are_read_and_a_malformed_one_is_answered_400(
    policy_server,
):
    """``/inference/v1/generate`` takes tokens and vLLM's own sampling parameters."""

    def ask(**marks):
        sampling = {"max_tokens": 2, "extra_args": marks}
        path = "/inference/v1/generate"
        return policy_server.post(path, token_ids=[5, 6, 7], sampling_params=sampling)

    refused = ask(green_class="urgent")
    assert refused.status_code == 400, refused.text
    assert "green_class" in refused.json()["error"]["message"]
    answer = ask(green_tenant="raw")
    assert answer.status_code == 200, answer.text
    until(lambda: [r for r in policy_server.ledger() if r["tenant"] == "raw"], "the ledger row")


def test_tenant_and_class_reach_the_ledger(policy_server):
    answer = policy_server.complete(
        max_tokens=3, headers={"X-Green-Tenant": "acme", "X-Green-Class": "standard"}
    )
    row = until(lambda: policy_server.ledger(answer["id"]), "the ledger row")[0]
    assert (row["tenant"], row["urgency"], row["settled"]) == ("acme", "standard", 1)


def test_the_requests_own_span_carries_our_attributes(policy_server, receiver: Receiver):
    answer = policy_server.complete(max_tokens=3, headers={"X-Green-Tenant": "traced"})

    def span():
        ours = [a for _, a in receiver.spans if a.get("billing.account") == "traced"]
        return ours[0] if ours else None

    attributes = until(span, "the request's span")
    assert attributes["gen_ai.request.id"].startswith(answer["id"])
    assert attributes["gen_ai.energy.kwh"] > 0
    assert attributes["gen_ai.carbon.gco2"] > 0
    assert attributes["gen_ai.region"] == "DE"
    assert attributes["gen_ai.usage.completion_tokens"] == 3


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Accept-Encoding": "identity"},
        {"Accept-Encoding": "gzip"},
        {"Accept": "application/openmetrics-text; version=1.0.0"},
    ],
)
def test_metrics_are_whole_however_they_are_asked_for(policy_server, path, headers):
    text = policy_server.client.get(path, headers=headers).text
    assert "greenserve_info{" in text
    assert "vllm:num_requests_running{" in text


def test_metrics_show_the_work(policy_server):
    before = policy_server.metric("greenserve_requests_total")
    policy_server.complete(max_tokens=3)
    until(lambda: policy_server.metric("greenserve_requests_total") > before, "the request counted")
    assert policy_server.metric("greenserve_info", engine_name="vllm", profile="measure") == 1
    assert policy_server.metric("greenserve_carbon_intensity_grams_per_kwh", zone="DE") in (
        100,
        500,
    )
    assert policy_server.metric("llm_serving_energy_joules_per_token", backend="vllm") > 0
