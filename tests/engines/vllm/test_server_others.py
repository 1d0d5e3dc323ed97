"""Pooling models, a server nobody asked to be green, and vLLM without a server."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from vllm_server import PLUGINS, descendants, until

pytestmark = pytest.mark.server


def test_an_embedding_is_accounted_and_can_be_held(embedding_server):
    server = embedding_server
    answer = server.post("/v1/embeddings", input="How green is this?")
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["green"]["energy_j"] > 0
    replies = []
    headers = {"X-Green-Deadline-S": "12", "X-Green-Tenant": "vectors"}

    def ask() -> None:
        replies.append(server.post("/v1/embeddings", headers=headers, input="Later").json())

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: server.metric("greenserve_held_requests") == 1, "the hold", 8)
    thread.join(60)
    assert replies[0]["usage"]["green"]["wait_s"] > 1
    row = until(lambda: [r for r in server.ledger() if r["tenant"] == "vectors"], "the row")[0]
    assert (row["urgency"], row["output_tokens"]) == ("flex", 0)


def test_installed_but_not_asked_changes_nothing(stock_server):
    answer = stock_server.complete(prompt="The capital of France is", max_tokens=5, temperature=0)
    assert "Paris" in answer["choices"][0]["text"]
    assert "green" not in answer["usage"]
    marked = stock_server.post(
        "/v1/completions", headers={"X-Green-Deadline-S": "nonsense"}, prompt="Once", max_tokens=2
    )
    assert marked.status_code == 200
    assert "greenserve" not in stock_server.client.get("/metrics").text
    assert "greenserve" not in stock_server.log
    for pid in [stock_server.process.pid, *descendants(stock_server.process.pid)]:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert not [entry for entry in environment if entry.startswith(b"GREEN_")]
        names = [p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/comm")]
        assert not [name for name in names if name.startswith("green")]


OFFLINE = """
import json, sys
import vllm_green
if __name__ == "__main__":
    vllm_green.enable(sys.argv[2])
    from vllm import LLM, SamplingParams
    llm = LLM(
        sys.argv[1], dtype="float32", enforce_eager=True, max_model_len=512, block_size=32,
        max_num_seqs=4, num_gpu_blocks_override=40,
    )
    plain = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)
    marked = SamplingParams(
        max_tokens=5, temperature=0, ignore_eos=True,
        extra_args={"green_class": "flex", "green_deadline_s": 12, "green_tenant": "batch"},
    )
    outputs = llm.generate(["The capital of France is", "Later"], [plain, marked])
    print("RESULT", json.dumps([[o.outputs[0].text, o.green] for o in outputs]))
"""


def _run(folder: Path, *command: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = str(PLUGINS)
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def _offline_config(folder: Path) -> str:
    path = folder / "green.toml"
    path.write_text(
        f'[policies]\nadmission = "test_hold"\n[ledger]\npath = "{folder}/ledger.sqlite"\n'
    )
    return str(path)


def test_the_offline_engine_accounts_and_holds(tmp_path):
    (tmp_path / "offline.py").write_text(OFFLINE)
    model = os.environ["GREENSERVE_TEST_MODEL"]
    out = _run(tmp_path, sys.executable, "offline.py", model, _offline_config(tmp_path))
    line = next(line for line in out.splitlines() if line.startswith("RESULT "))
    (text, plain), (_, marked) = json.loads(line.removeprefix("RESULT "))
    assert "Paris" in text
    assert plain["energy_j"] > 0
    assert plain["wait_s"] < marked["wait_s"]
    assert marked["wait_s"] > 1


def test_a_batch_file_is_accounted_line_by_line(tmp_path):
    model = os.environ["GREENSERVE_TEST_MODEL"]
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": model,
                "messages": [{"role": "user", "content": f"Say {number}"}],
                "max_tokens": 4 + 4 * number,
                "ignore_eos": True,
            },
        }
        for number in range(3)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    vllm = str(Path(sys.executable).with_name("vllm"))
    _run(
        tmp_path,
        *(vllm, "run-batch", "-i", "in.jsonl", "-o", "out.jsonl", "--model", model),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--block-size", "32"),
        *("--num-gpu-blocks-override", "40", "--max-num-seqs", "4"),
        *("--green-config", _offline_config(tmp_path)),
    )
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    energies = {
        answer["custom_id"]: answer["response"]["body"]["usage"]["green"]["energy_j"]
        for answer in answers
    }
    assert len(energies) == 3
    assert energies["line-0"] < energies["line-2"]
