"""The installed vLLM against this pack, for ``green doctor`` without a server."""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
import warnings
from typing import Any

from vllm_green.versions import VERIFIED, engine_version


def inspect() -> dict[str, Any]:
    """What is installed and whether it fits; imports vLLM, changes nothing in it.

    ``seams`` holds every symbol that the adapter builds on: ``target``, ``ok`` and, where it
    moved, the ``problem``. Without vLLM ``version`` and ``distribution`` are empty.
    """
    names = importlib.metadata.packages_distributions().get("vllm", [])
    facts: dict[str, Any] = {
        "engine": "vllm",
        "distribution": ", ".join(sorted(set(names))),
        "version": "",
        "verified": list(VERIFIED),
        "supported": False,
        "seams": [],
    }
    if not names:
        return facts
    from vllm_green.seams import table

    # While it is imported the engine warns and logs, to standard output.
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(sys.stderr):
        facts["version"] = engine_version()
        seams = table()
        problems = seams.problems()
    facts["supported"] = facts["version"] in VERIFIED and not problems
    facts["seams"] = [
        {
            "target": seam.target,
            "ok": seam.target not in problems,
            "problem": problems.get(seam.target, ""),
        }
        for seam in seams.seams
    ]
    return facts
