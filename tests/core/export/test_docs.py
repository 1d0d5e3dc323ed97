"""The documents say what the code does."""

import re
from pathlib import Path

import pytest

from green_core.export.catalogue import CATALOGUE
from green_core.export.ledger import SCHEMA_VERSION, schema

DOCS = Path(__file__).parents[3] / "docs"


def test_the_catalogue_in_the_docs_is_that_of_the_code():
    documented = re.findall(r"^\| `\w+` \|.*\|$", (DOCS / "metrics.md").read_text(), re.M)
    assert documented == [
        f"| `{spec.name}` | {spec.kind} | {', '.join(f'`{label}`' for label in spec.labels)}"
        f" | {spec.help} |"
        for spec in CATALOGUE.values()
    ]


@pytest.mark.parametrize("query", re.findall(r"greenserve_\w+", (DOCS / "metrics.md").read_text()))
def test_metrics_named_in_the_docs_exist(query):
    assert query in CATALOGUE or query == "greenserve_"


def test_every_column_is_documented():
    text = (DOCS / "ledger.md").read_text()
    named = {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", code)}
    instances = re.findall(r"(\w+) (?:TEXT|REAL|INTEGER)", schema.DDL[0])
    for column in (*schema.REQUEST_COLUMNS, *schema.INTERVAL_COLUMNS, *instances):
        assert column in named, column
    assert f"version of this schema, now {SCHEMA_VERSION}" in text
