"""What ``green doctor`` learns of the installed vLLM without a server."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest

from green_core.seams import SeamTable
from vllm_green.inspect import inspect
from vllm_green.seams import table
from vllm_green.versions import VERIFIED


def test_the_installed_engine_is_named_with_every_seam() -> None:
    told = inspect()
    assert told["engine"] == "vllm"
    assert importlib.metadata.version(told["distribution"]).startswith(told["version"])
    assert told["version"] in told["verified"] == list(VERIFIED)
    assert told["supported"] is True
    assert [seam["target"] for seam in told["seams"]] == [seam.target for seam in table().seams]
    assert all(seam["ok"] and not seam["problem"] for seam in told["seams"])


def test_looking_changes_nothing() -> None:
    seams: SeamTable = table.__wrapped__()
    before = seams.verify()
    inspect()
    assert seams.verify() == before


def test_a_moved_symbol_is_told_and_makes_the_engine_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.setattr(Scheduler, "schedule", lambda self, budget: None)
    told = inspect()
    assert told["supported"] is False
    (moved,) = [seam for seam in told["seams"] if not seam["ok"]]
    assert moved["target"].endswith(":Scheduler.schedule")
    assert "takes (self, budget)" in moved["problem"]


def test_a_release_that_nobody_has_verified_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.version

    monkeypatch.setattr(vllm.version, "__version__", "0.99.0")
    told = inspect()
    assert (told["version"], told["supported"]) == ("0.99.0", False)
    assert told["seams"]


def test_without_vllm_there_is_nothing_to_tell() -> None:
    with mock.patch.object(importlib.metadata, "packages_distributions", return_value={}):
        told: dict[str, Any] = inspect()
    assert (told["distribution"], told["version"], told["supported"]) == ("", "", False)
    assert told["seams"] == []


def test_standard_output_is_left_to_who_asks() -> None:
    """vLLM logs to it while it is imported, which would spoil ``green doctor --json``."""
    program = "import json, vllm_green.inspect as i; print(json.dumps(i.inspect()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(done.stdout)["engine"] == "vllm"
