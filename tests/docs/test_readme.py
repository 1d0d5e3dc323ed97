"""The first screen of the README."""

import re

from vllm_green.versions import VERIFIED

MAIN = "python -m pip install tox && python -m tox run -e demo"
TESTS = "python -m pip install tox && python -m tox run"
FIRST_SCREEN_LINES = 40


def test_the_first_screen_has_both_commands_a_picture_and_every_engine(pages):
    screen = pages["README.md"].splitlines()[:FIRST_SCREEN_LINES]
    assert MAIN in screen
    assert TESTS in screen
    assert any(re.match(r"!\[.+\]\(docs/images/\S+\)$", line) for line in screen)
    for engine in ("vLLM", "SGLang", "Hugging Face TGI"):
        assert any(line.startswith(f"| {engine} |") for line in screen), engine


def test_the_commands_are_those_that_run(root):
    assert (root / ".ci" / "run").read_text("utf-8").splitlines()[-1] == TESTS
    assert "[testenv:demo]" in (root / "tox.ini").read_text("utf-8")


def test_engines_are_called_supported_only_with_an_adapter(pages, root):
    for engine, package in (("SGLang", "sglang_green"), ("Hugging Face TGI", "tgi_green")):
        (state,) = re.findall(rf"^\| {engine} \| (.+) \|$", pages["README.md"], re.M)
        assert (root / "plugins" / package).is_dir() != state.startswith("not yet"), engine


def test_verified_versions_are_those_of_the_code(pages):
    (state,) = re.findall(r"^\| vLLM \| (.+) \|$", pages["README.md"], re.M)
    assert re.findall(r"\d+\.\d+\.\d+", state) == list(VERIFIED)


def test_the_example_answer_has_the_fields_of_the_code(pages):
    from green_core.export.usage import usage_payload
    from green_core.testing.builders import request_record

    fields = list(usage_payload([request_record()]))
    for page in ("README.md", "docs/telemetry.md"):
        text = pages[page]
        assert [f for f in fields if f'"{f}"' not in text and f"`{f}`" not in text] == [], page
