"""Two API servers over one engine, whose energy a (scripted) NVML counter measures."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from crowd import Waiting
from vllm_server import PLUGINS, Server, until

from green_core.export.ledger import balance

pytestmark = pytest.mark.server


def _settled(server: Server, answer: dict) -> dict:
    return until(lambda: server.ledger(answer["id"]), "the settled ledger row")[0]


def _cost_j(server: Server, **body) -> float:
    answer = server.complete(ignore_eos=True, temperature=0, **body)
    return _settled(server, answer)["energy_j"]


def _sums(server: Server) -> tuple[float, float]:
    """Joules so far: of this server's engine, and of others on its device."""
    kinds = ("active", "idle", "rest")
    names = [f"greenserve_{kind}_energy_joules_total" for kind in kinds]
    server.metric(names[0])  # a scrape has the idle engine bring its books up to date
    time.sleep(0.5)
    active_j, idle_j, rest_j = (server.metric(name) for name in names)
    return active_j + idle_j, rest_j


def test_an_answer_leaves_unsettled_and_the_ledger_settles_it(metered_server):
    answer = metered_server.complete(max_tokens=20, ignore_eos=True)
    green = answer["usage"]["green"]
    assert green["settled"] is False
    row = _settled(metered_server, answer)
    assert row["settled"] == 1
    assert row["method"] == "measured:nvml-counter"


def test_two_api_servers_show_the_same_work_once(metered_server):
    """FIELD P28."""
    counter = "greenserve_requests_total"
    for _ in range(12):  # a new connection each: the kernel spreads them over both servers
        with httpx.Client(base_url=metered_server.url, timeout=60) as client:
            body = {"model": "smol", "prompt": "Once", "max_tokens": 2}
            headers = {"X-Green-Tenant": "pair"}
            assert client.post("/v1/completions", json=body, headers=headers).status_code == 200
    until(lambda: metered_server.metric(counter, tenant="pair") == 12, "twelve requests counted")
    seen = set()
    for _ in range(12):
        with httpx.Client(base_url=metered_server.url, timeout=60) as client:
            text = client.get("/metrics").text
            seen.add(tuple(x for x in text.splitlines() if x.startswith(counter) and "pair" in x))
    assert len(seen) == 1
    assert metered_server.metric("vllm:request_success_total") >= 12  # vLLM's own are there too


def test_requests_and_idle_add_up_to_the_counter(metered_server, nvml):
    """FIELD E8, E9, E12."""
    for number in range(4):
        metered_server.complete(prompt=f"Story {number}", max_tokens=16, ignore_eos=True)
    instances = until(lambda: balance(metered_server.ledger_path), "the ledger")
    assert len(instances) == 1
    first_counter_j, (first_sum_j, _) = nvml.counter_j(), _sums(metered_server)
    metered_server.complete(max_tokens=60, ignore_eos=True)
    nvml.set_power(160.0)
    time.sleep(3)
    second_counter_j, (second_sum_j, _) = nvml.counter_j(), _sums(metered_server)
    nvml.set_power(80.0)
    delta_j = second_counter_j - first_counter_j
    # The books lag the counter by less than two seconds of the power in force.
    assert second_sum_j - first_sum_j == pytest.approx(delta_j, abs=2 * 160.0)
    assert delta_j > 3 * 160.0
    assert metered_server.metric("greenserve_meter_gaps_total") == 0


def test_two_engines_on_one_device_add_up_to_its_counter(metered_server, nvml, tmp_path):
    """FIELD E8. Each alone would count all of it."""
    server, theirs = metered_server, tmp_path / "ledger.sqlite"
    here = Path(__file__).parent
    env = {**os.environ, **nvml.env(), "PYTHONPATH": f"{PLUGINS}:{here}"}
    command = [sys.executable, here / "neighbour.py", theirs, "8"]
    first_counter_j, first_sum_j, first_rest_j = nvml.counter_j(), *_sums(server)
    neighbour = subprocess.Popen(command, env=env)
    while neighbour.poll() is None:
        server.complete(max_tokens=30, ignore_eos=True)
    assert neighbour.returncode == 0
    time.sleep(2)
    second_counter_j, second_sum_j, second_rest_j = nvml.counter_j(), *_sums(server)
    (books,) = balance(theirs)
    assert books.balanced
    assert books.metered_j > 80.0
    delta_j = second_counter_j - first_counter_j
    ours_j = second_sum_j - first_sum_j
    assert ours_j + books.metered_j == pytest.approx(delta_j, abs=2 * 80.0)
    assert second_rest_j - first_rest_j == pytest.approx(books.metered_j, abs=2 * 80.0)
    assert delta_j > 8 * 80.0


def test_decoding_costs_more_than_prefilling_at_equal_tokens(metered_server):
    words = " word" * 110
    prefill_j = _cost_j(metered_server, prompt="Count:" + words, max_tokens=10)
    decode_j = _cost_j(metered_server, prompt="Count:" + " word" * 9, max_tokens=110)
    assert decode_j > prefill_j


def test_a_cached_prompt_costs_less_than_a_cold_one(metered_server):
    prompt = "The quick brown fox jumps over the lazy dog. " * 60
    cold = metered_server.complete(prompt=prompt, max_tokens=2, ignore_eos=True)
    warm = metered_server.complete(prompt=prompt, max_tokens=2, ignore_eos=True)
    cold, warm = _settled(metered_server, cold), _settled(metered_server, warm)
    assert cold["cached_tokens"] == 0
    assert warm["cached_tokens"] > 500
    assert warm["energy_j"] < cold["energy_j"]
    assert warm["avoided_j"] > 0


def test_eight_together_cost_less_each_than_one_alone(metered_server):
    """FIELD E9."""
    alone_j = _cost_j(metered_server, prompt="Alone", max_tokens=48)
    answers: list[dict] = []

    def ask(number: int) -> None:
        with httpx.Client(base_url=metered_server.url, timeout=120) as client:
            body = {"model": "smol", "prompt": f"Together {number}", "max_tokens": 48}
            reply = client.post("/v1/completions", json={**body, "ignore_eos": True})
            answers.append(reply.json())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together_j = [_settled(metered_server, answer)["energy_j"] for answer in answers]
    assert len(together_j) == 8
    assert max(together_j) < alone_j


def test_a_lost_driver_leaves_a_gap_and_no_failed_request(metered_server, nvml):
    """FIELD E17."""
    before = metered_server.metric("greenserve_meter_gaps_total")
    nvml.set_error("nvmlDeviceGetTotalEnergyConsumption", 15)  # GPU is lost
    answer = metered_server.complete(max_tokens=20, ignore_eos=True)

    def gap():
        metered_server.complete(max_tokens=2)
        return metered_server.metric("greenserve_meter_gaps_total") > before

    until(gap, "the gap to be counted", 60)
    row = _settled(metered_server, answer)
    assert "meter gap" in row["method"]
    assert row["energy_j"] > 0
    nvml.clear_errors()

    def measured():
        answer = metered_server.complete(max_tokens=4)
        return _settled(metered_server, answer)["method"] == "measured:nvml-counter"

    until(measured, "measuring to recover", 60)


def test_sigterm_answers_held_requests_of_several_servers(metered_server):
    """Last of this server. With several API servers vLLM itself cannot drain."""
    held = Waiting(metered_server, headers={"X-Green-Deadline-S": "600"}, max_tokens=6)
    until(lambda: metered_server.metric("greenserve_held_requests") == 1, "the hold")
    metered_server.terminate(90)
    answer = held.answer(30)
    assert answer.status_code == 503
    assert "shutting down" in answer.json()["error"]["message"]
    (books,) = balance(metered_server.ledger_path)
    assert books.balanced
