"""``green doctor --live`` on real servers: it names the traps that are there, and no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from crowd import Waiting
from trapped import TRAPS
from vllm_server import Server, until

pytestmark = pytest.mark.server
PROMPT = "You are a careful assistant who answers in few words. " * 20
# Frequency and NUMA belong to the machine that the tests run on. Servers of tests compute in
# float32, as any CPU can; on one that computes in bfloat16 that is a trap, and rightly found.
HOST_TRAPS = {"frequency", "numa", "fp32"}


def _doctor(server: Server) -> tuple[int, dict[str, Any]]:
    """Exit code and report."""
    green = Path(sys.executable).with_name("green")
    command = [green, "doctor", "--live", server.url, "--json"]
    env = {**os.environ, "VLLM_API_KEY": server.api_key}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)


def _work(server: Server, together: int, *, busy_s: float) -> None:
    """Requests that share most of their prompt, until the engine was at work for ``busy_s``."""
    sent = 0
    while sent < 24 or server.status()["load"]["busy_s"] < busy_s:
        crowd = [
            Waiting(server, prompt=f"{PROMPT}Question {sent + n}", max_tokens=6, ignore_eos=True)
            for n in range(together)
        ]
        sent += together
        for request in crowd:
            request.wait()
    until(lambda: _idle_s(server) > 3, "the engine to be idle, and its workers to notice")


def _idle_s(server: Server) -> float:
    load = server.status()["load"]
    return 0.0 if load["running"] else load["until_s"] - load["last_step_s"]


def _found(report: dict[str, Any]) -> dict[str, str]:
    """Evidence by trap, so that a failing assert shows it."""
    return {entry["trap"]: entry["evidence"] for entry in report["findings"]}


def _not_checked(report: dict[str, Any]) -> dict[str, str]:
    return {entry["trap"]: entry["why"] for entry in report["not_checked"]}


def test_three_planted_traps_are_named_and_no_other(trapped_server: Server) -> None:
    _work(trapped_server, 24, busy_s=12.0)
    code, report = _doctor(trapped_server)
    assert code == 1
    evidence = {t: e for t, e in _found(report).items() if t not in {"frequency", "numa"}}
    assert set(evidence) == TRAPS, evidence
    assert report["problems"] == []
    for finding in report["findings"]:
        if finding["trap"] in TRAPS:
            assert finding["remedy"]
            assert finding["energy_j_per_day"] > 0
            assert finding["carbon_g_per_day"] > 0


def test_a_well_set_server_under_the_same_prompts_has_none(policy_server: Server) -> None:
    _work(policy_server, 8, busy_s=0.0)
    _, report = _doctor(policy_server)
    assert set(_found(report)) <= HOST_TRAPS, _found(report)
    assert report["problems"] == []
    looked_for = {"prefix_cache", "idle_spin", "repeated_loading"}
    assert not looked_for & set(_not_checked(report)), _not_checked(report)
    roles = {process["role"] for process in report["status"]["seams"]}
    assert roles == {"engine", "front", "http"}


def test_the_page_wants_the_servers_key(trapped_server: Server) -> None:
    page = trapped_server.url + "/v1/green/status"
    assert httpx.get(page).status_code == 401
    wrong = {"Authorization": "Bearer open"}
    assert httpx.get(page, headers=wrong).status_code == 401
    assert httpx.get(page, headers=trapped_server.headers).status_code == 200
    assert trapped_server.client.post("/v1/green/status").status_code == 405
