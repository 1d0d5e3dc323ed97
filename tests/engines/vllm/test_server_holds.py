"""Holding, releasing and limiting on a real server. Policies are switched by editing its config."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from crowd import Waiting
from policy_grid import policy_config
from vllm_server import Server, cpu_s, rss_mib, until

from green_core.export.ledger import balance

pytestmark = pytest.mark.server
FLEX = {"X-Green-Class": "flex", "X-Green-Deadline-S": "600"}


def _use(server: Server, policies: str, **alive: str) -> None:
    server.configure(policy_config(server.folder, policies))
    for family, policy in alive.items():
        until(
            lambda family=family, policy=policy: server.metric(
                "greenserve_policy_active", family=family, policy=policy
            ),
            f"{policy} to be live",
            10,
        )


def _held(server: Server) -> float:
    return server.metric("greenserve_held_requests")


@pytest.fixture
def holding(policy_server):
    """The policy server, holding everything that may be held."""
    _use(policy_server, 'admission = "test_hold"', admission="test_hold")
    yield policy_server
    policy_server.configure(policy_config(policy_server.folder))
    until(lambda: _held(policy_server) == 0, "no held requests")


def test_flex_work_waits_for_the_clean_hour_and_ends_before_its_deadline(policy_server):
    server = policy_server
    _use(server, 'admission = "deadline"\nbatch = "slo"', admission="deadline", batch="slo")
    server.complete(max_tokens=8)  # so that run times are known
    intensity = "greenserve_carbon_intensity_grams_per_kwh"
    until(lambda: server.metric(intensity) == 100, "a clean hour", 120)
    until(lambda: server.metric(intensity) == 500, "a dirty hour", 120)
    flex = Waiting(server, headers={"X-Green-Deadline-S": "150", "X-Green-Tenant": "night"})
    until(lambda: _held(server) == 1, "the request to be held", 20)
    usual = server.complete(max_tokens=4)  # unmarked work is not held up
    assert usual["usage"]["green"]["intensity_g_per_kwh"] == 500
    green = flex.wait(150)["usage"]["green"]
    assert green["intensity_g_per_kwh"] == 100
    assert green["wait_s"] > 5
    assert flex.took_s < 150
    assert server.metric("vllm:num_requests_running") == 0


def test_a_deadline_releases_what_no_policy_lets_go(holding):
    flex = Waiting(holding, headers={"X-Green-Deadline-S": "12"})
    until(lambda: _held(holding) == 1, "the request to be held", 10)
    green = flex.wait(60)["usage"]["green"]
    assert green["wait_s"] > 1
    assert flex.took_s < 12


def test_held_requests_show_as_waiting_in_vllms_own_metrics(holding):
    flex = Waiting(holding, headers=FLEX)
    until(lambda: _held(holding) == 1, "the hold")
    assert holding.metric("vllm:num_requests_running") == 0
    until(lambda: holding.metric("vllm:num_requests_waiting") == 1, "vLLM to count it")
    flex.hang_up()


def test_service_tier_flex_and_xargs_mark_too(holding):
    tier = Waiting(holding, service_tier="flex")
    until(lambda: _held(holding) == 1, "the first hold")
    xargs = Waiting(holding, vllm_xargs={"green_class": "flex", "green_deadline_s": 500})
    until(lambda: _held(holding) == 2, "the second hold")
    tier.hang_up()
    xargs.hang_up()


def test_a_client_that_leaves_while_held_frees_its_request(holding):
    """FIELD P11."""
    flex = Waiting(holding, headers={**FLEX, "X-Green-Tenant": "leaver"})
    until(lambda: _held(holding) == 1, "the hold")
    flex.hang_up()
    until(lambda: _held(holding) == 0, "the abort")

    def row():
        return [row for row in holding.ledger() if row["tenant"] == "leaver"]

    row = until(row, "the ledger row")[0]
    assert row["finish_reason"] == "abort"
    assert row["energy_j"] == 0
    assert row["held_s"] > 0
    assert holding.complete(max_tokens=3)["usage"]["green"]["energy_j"] > 0


def test_a_thousand_held_requests_cost_no_cpu_and_little_memory(holding, record_property):
    """FIELD P8, P15, P24."""
    pid = holding.engine_pid()
    before_mib = rss_mib(pid)
    crowd = [Waiting(holding, headers=FLEX, prompt=f"Story {n}") for n in range(1000)]
    until(lambda: _held(holding) == 1000, "1,000 held requests", 120)
    usual = holding.complete(max_tokens=4)
    assert usual["usage"]["green"]["energy_j"] > 0
    assert holding.client.get("/health").status_code == 200
    grown_mib = rss_mib(pid) - before_mib
    time.sleep(3)  # let the settling of the usual request end
    started_s, since_s = cpu_s(pid), time.monotonic()
    time.sleep(10)
    used = (cpu_s(pid) - started_s) / (time.monotonic() - since_s)
    record_property("held_rss_mib", grown_mib)
    record_property("held_cpu_share", used)
    print(f"\n1,000 held requests: +{grown_mib:.1f} MiB, {used:.4f} of a core idle")
    for client in crowd:
        client.hang_up()
    until(lambda: _held(holding) == 0, "all of them aborted", 120)
    assert grown_mib < 100
    assert used < 0.02


def test_a_batch_cap_changes_live_and_shows_on_metrics(policy_server):
    server = policy_server
    _use(server, 'batch = "test_cap"\n[policies.test_cap]\nn = 2', batch="test_cap")
    work = [Waiting(server, max_tokens=40, ignore_eos=True) for _ in range(6)]
    until(lambda: server.metric("greenserve_batch_limit") == 2, "the cap on /metrics")
    until(lambda: server.metric("vllm:num_requests_waiting") > 0, "requests to queue")
    assert server.metric("vllm:num_requests_running") <= 2
    _use(server, 'batch = "test_cap"\n[policies.test_cap]\nn = 5', batch="test_cap")
    until(lambda: server.metric("greenserve_batch_limit") == 5, "the new cap on /metrics")
    for item in work:
        assert item.wait()["usage"]["completion_tokens"] == 40


def test_one_switch_returns_to_stock_and_back(holding):
    green = Path(sys.executable).with_name("green")
    flex = Waiting(holding, headers=FLEX)
    until(lambda: _held(holding) == 1, "the hold")
    subprocess.run([green, "off", "--config", holding.config_path], check=True)
    try:
        answer = flex.wait(20)
        assert answer["usage"]["completion_tokens"] > 0
        until(lambda: holding.metric("greenserve_policy_active") == 0, "policies shown as off")
    finally:
        subprocess.run([green, "on", "--config", holding.config_path], check=True)
    until(lambda: holding.metric("greenserve_policy_active") == 1, "policies shown as on")


@pytest.mark.parametrize("policy", ["test_raises", "test_sleeps", "test_nonsense"])
def test_a_broken_policy_leaves_stock_behaviour(policy_server, policy):
    """FIELD P9, P25."""
    server = policy_server
    failures = "greenserve_policy_failures_total"
    _use(server, f'batch = "{policy}"\nadmission = "{policy}"')
    until(lambda: server.metric("greenserve_policy_active", policy=policy) >= 0, "the policy")
    answers = [Waiting(server, headers=FLEX, max_tokens=30, ignore_eos=True) for _ in range(3)]
    for item in answers:
        assert item.wait(60)["usage"]["completion_tokens"] == 30
    until(lambda: server.metric(failures, policy=policy, family="admission") == 1, "the count")
    until(lambda: server.metric("greenserve_policy_active", policy=policy) < 2, "it to be off")
    server.complete(max_tokens=30, ignore_eos=True)
    assert server.log.count(f"policy {policy} ") <= 2  # once for each family


def test_a_bad_edit_of_the_config_keeps_what_is_in_force(policy_server):
    server = policy_server
    _use(server, 'batch = "test_cap"\n[policies.test_cap]\nn = 3', batch="test_cap")
    server.configure("[carbon]\nzon = 1\n")
    until(lambda: "carbon.zon: unknown key" in server.log, "the log line")
    assert server.metric("greenserve_policy_active", policy="test_cap") == 1
    server.configure(policy_config(server.folder))


def test_sigterm_drains_held_requests_and_closes_balanced_books(policy_server):
    """Last of this server: it was started with --shutdown-timeout, so it drains."""
    server = policy_server
    _use(server, 'admission = "test_hold"', admission="test_hold")
    held = [Waiting(server, headers=FLEX, max_tokens=6, ignore_eos=True) for _ in range(3)]
    until(lambda: _held(server) == 3, "three holds")
    server.terminate(90)
    for item in held:
        assert item.wait(30)["usage"]["completion_tokens"] == 6
    green = Path(sys.executable).with_name("green")
    command = [green, "ledger", "check", "--ledger", server.ledger_path]
    check = subprocess.run(command, check=False, capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
    (books,) = balance(server.ledger_path)
    assert books.closed
