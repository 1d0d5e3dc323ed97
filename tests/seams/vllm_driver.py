"""Starts ``vllm`` again and again, up to where it would serve, and tells what became of it.

Run as a program: vLLM is imported once (that takes seconds), then each case of the JSON list on
standard input runs in a forked child, so no case sees another one's flags, patches or variables.
A case is ``{"name", "argv", "env"}``, or has ``"call"``, the name of a function below, instead of
``argv``. The answers go to standard output as one JSON object by name.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any
from unittest import mock


def import_vllm() -> None:
    """Everything that ``vllm serve`` imports before it parses; plugins are not loaded yet."""
    import vllm.entrypoints.cli.benchmark.main
    import vllm.entrypoints.cli.collect_env
    import vllm.entrypoints.cli.download_kernels
    import vllm.entrypoints.cli.launch
    import vllm.entrypoints.cli.main
    import vllm.entrypoints.cli.openai
    import vllm.entrypoints.cli.preload
    import vllm.entrypoints.cli.run_batch
    import vllm.entrypoints.cli.serve
    import vllm.entrypoints.cli.snapshot
    import vllm.plugins

    assert not vllm.plugins.plugins_loaded


def serve(argv: list[str]) -> dict[str, Any]:
    """``vllm ARGV`` until it would start the server."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.entrypoints.cli.main import main
    from vllm.entrypoints.cli.serve import ServeSubcommand

    seen: dict[str, Any] = {}

    def would_serve(args: Any) -> None:
        for name in ("plugins", "green_config", "middleware", "model"):
            seen[name] = getattr(args, name, None)

    original = EngineArgs.__dict__["add_cli_args"]
    with mock.patch.object(sys, "argv", ["vllm", *argv]):
        with mock.patch.object(ServeSubcommand, "cmd", staticmethod(would_serve)):
            main()
    return {**seen, **state(), "parser_restored": EngineArgs.__dict__["add_cli_args"] is original}


def state() -> dict[str, Any]:
    """What of ours is in this process."""
    ours = sorted(
        name for name in sys.modules if name.split(".")[0] in {"green_core", "vllm_green"}
    )
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("green")]
    answer: dict[str, Any] = {"modules": ours, "threads": threads}
    for name in ("VLLM_PLUGINS", "GREEN_ENABLE", "GREEN_RUN_DIR"):
        answer[name] = os.environ.get(name)
    from vllm_green.seams import table  # only now, as it was not to be imported before

    answer["live"] = {
        where: not table.__wrapped__().verify(where=where) for where in ("engine", "front", "http")
    }
    return answer


def embed() -> dict[str, Any]:
    """A program of its own that uses ``vllm.LLM``."""
    import vllm_green

    vllm_green.enable(os.environ.get("TEST_CONFIG"))
    vllm_green.enable(os.environ.get("TEST_CONFIG"))  # harmless
    return state()


def fork_again() -> dict[str, Any]:
    """FIELD P1: the child inherits that plugins are loaded, and must prove its seams anew."""
    import vllm_green
    from vllm_green import start
    from vllm_green.seams import table

    vllm_green.enable()
    started = start._started_in
    table().undo()  # the child must notice, and not trust what it inherited
    result = in_child(lambda: {"started": _register_again(), **state()})
    return {"parent": os.getpid(), "parent_started": started, "child": result}


def _register_again() -> int:
    import vllm_green
    from vllm_green import start

    vllm_green.register()
    return start._started_in


def compile_key() -> dict[str, Any]:
    """What vLLM mixes into the key of compiled graphs, once green is on."""
    import vllm.envs

    import vllm_green

    vllm_green.enable(os.environ.get("TEST_CONFIG"))
    return {name: repr(value) for name, value in vllm.envs.compile_factors().items()}


def unverified() -> dict[str, Any]:
    """A release that nobody has run this with."""
    import vllm.version

    import vllm_green

    with mock.patch.object(vllm.version, "__version__", "0.99.0+cpu"):
        try:
            vllm_green.enable()
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}", **state()}
    return state()


def moved() -> dict[str, Any]:
    """One symbol has another signature, all others fit."""
    from vllm.v1.core.sched.scheduler import Scheduler

    import vllm_green

    def schedule(self: Any, budget: int) -> None:
        """Another engine's."""

    with mock.patch.object(Scheduler, "schedule", schedule):
        try:
            vllm_green.enable()
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}", **state()}
    return state()


def in_child(call: Any) -> dict[str, Any]:
    """Run ``call`` in a forked child: its answer, exit code and standard error."""
    with tempfile.TemporaryDirectory() as folder:
        answer, errors = Path(folder, "answer"), Path(folder, "errors")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with errors.open("w") as stream:
                    os.dup2(stream.fileno(), 2)
                    os.dup2(2, 1)
                sys.stderr = sys.stdout = os.fdopen(2, "w", buffering=1, closefd=False)
                answer.write_text(json.dumps(call()))
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        told = json.loads(answer.read_text()) if answer.exists() else {}
        code = os.waitstatus_to_exitcode(status)
        return {**told, "code": code, "stderr": errors.read_text(), "pid": pid}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """One case, in its own environment."""
    os.environ.update(case.get("env", {}))
    if call := case.get("call"):
        return globals()[call]()
    return serve(case["argv"])


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs to standard output
    import_vllm()
    cases = json.load(sys.stdin)
    json.dump({case["name"]: in_child(lambda c=case: run(c)) for case in cases}, out)
    out.flush()
