"""Names, links and paths in the documents exist."""

import argparse
import re

import pytest

from green_core.cli import build_parser
from green_core.export.catalogue import CATALOGUE

MACHINE_PATH = re.compile(r"(?<![\w.\-/}])/(?:work|root|home|Users|tmp)/\w")
SUFFIXES = ("", "_bucket", "_count", "_sum")


def anchors(text):
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_relative_link_leads_to_a_file_and_a_heading(pages, root):
    for page, text in pages.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            file = (root / page).parent / target if target else root / page
            assert file.exists(), (page, link)
            if anchor:
                assert anchor in anchors(file.read_text("utf-8")), (page, link)


def test_every_page_is_linked_from_the_index_or_the_readme(pages):
    text = pages["docs/index.md"] + pages["README.md"]
    for page in pages:
        if page.startswith("docs/") and page != "docs/index.md":
            assert f"({page.removeprefix('docs/')})" in text or f"({page})" in text, page


def test_files_that_documents_name_exist(pages, root):
    """Paths in code type that begin with a room of the repository; capitals stand for a name."""
    path = re.compile(r"`((?:core|plugins|tools|tests|docs|demo)/[\w./-]+?)(?:::\w+)?`")
    for page, text in pages.items():
        for name in path.findall(text):
            assert (root / name).exists() or "ENGINE" in name, (page, name)


def test_metrics_named_in_any_document_exist(pages):
    known = {name + suffix for name in CATALOGUE for suffix in SUFFIXES}
    for page, text in pages.items():
        for name in re.findall(r"\b(?:greenserve|llm_serving)_[a-z_]+\b", text):
            is_column = page == "docs/ledger.md" and name == "greenserve_version"
            assert name in known or name == "greenserve_" or is_column, (page, name)


def test_every_metric_is_documented(pages):
    assert [name for name in CATALOGUE if f"`{name}`" not in pages["docs/metrics.md"]] == []


def commands(parser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def resolve(words):
    """Follow ``words`` down the command line; answers the parser and what is left."""
    parser = build_parser()
    words = list(words)
    while words and (child := dict(commands(parser)).get(words[0])) is not None:
        parser = child
        words.pop(0)
    return parser, words


def test_green_commands_named_in_any_document_exist(pages):
    """The page of the command itself has a test of its own."""
    names = "|".join(name for name, _ in commands(build_parser()))
    named = re.compile(rf"(?:^|`)(?:\$ )?(green (?:{names})\b[^`\n#>|]*)", re.M)
    found = 0
    for page, text in pages.items():
        for line in named.findall(text) if page != "docs/cli.md" else ():
            parser, left = resolve(line.split()[1:])
            options = [option for action in parser._actions for option in action.option_strings]
            assert [w for w in left if w.startswith("--") and w not in options] == [], (page, line)
            assert list(commands(parser)) == [], (page, line)
            found += 1
    assert found >= 10


def test_no_document_names_a_green_command_that_does_not_exist(pages, blocks):
    known = {name for name, _ in commands(build_parser())}
    for page, _, _, code in blocks:
        for name in re.findall(r"^(?:\$ )?green (\S+)", code, re.M):
            assert name in known, (page, name)
    for page, text in pages.items():
        for name in re.findall(r"`green ([a-z]+)(?:`| --| \w+ --| \w+`)", text):
            assert name in known, (page, name)


def test_environment_variables_named_in_documents_exist(pages):
    from green_core.config import env_names
    from green_core.config.load import RESERVED_ENV, load
    from green_core.errors import ConfigError

    def is_ignored(name):
        """What Kubernetes may set: a variable that is none of ours would be refused."""
        try:
            load(env={name: "x"})
        except ConfigError:
            return False
        return True

    known = {*env_names(), *RESERVED_ENV, "GREEN_TABLE_KEY"}
    for page, text in pages.items():
        for name in re.findall(r"\bGREEN_[A-Z_]+[A-Z]\b", text):
            assert name in known or is_ignored(name), (page, name)


@pytest.mark.parametrize("option", ["--plugins", "--green-config"])
def test_options_of_the_adapter_exist(option):
    from vllm_green.cli import add_flags

    parser = argparse.ArgumentParser()
    add_flags(parser)
    assert option in parser.format_help()


def test_no_document_names_a_folder_of_one_machine(pages):
    for page, text in pages.items():
        assert MACHINE_PATH.search(text) is None, page


def test_span_attributes_are_documented(pages):
    import msgspec

    from green_core.export.otel import span_attributes
    from green_core.values import EnergyParts, EngineInfo, RequestRecord

    def sample(struct, **known):
        samples = {str: "cpu", float: 1.0, int: 1, bool: True, EnergyParts: EnergyParts()}
        fields = msgspec.structs.fields(struct)
        return struct(**{f.name: samples.get(f.type, "average") for f in fields} | known)

    text = pages["docs/telemetry.md"]
    for name in span_attributes(sample(RequestRecord), sample(EngineInfo)):
        assert f"`{name}`" in text or f"`.{name.rpartition('.')[2]}`" in text, name
