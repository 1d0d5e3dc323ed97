"""Fill the parts of the documents that are generated from code and tests.

``python tools/doc_tables.py`` rewrites them; ``tests/docs`` fails while one is out of date.
A generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. Run it with the
project installed, for example with the interpreter of the tox environment ``docs``.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOT_HELD = "no test yet"
TESTS = ("core/green_core/testing", "tests")  # the contract suite is part of the package
_FIELD = re.compile(r"\bFIELD ((?:[PEG]\d+(?:, | and )?)+)")
_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def seams() -> str:
    """The compatibility table of ``docs/vllm.md``."""
    from vllm_green.seams import table
    from vllm_green.versions import VERIFIED

    lines = [
        f"Verified by running it: vLLM {', '.join(VERIFIED)}.",
        "",
        "| Symbol | Process | Use | Why | Goes when |",
        "|---|---|---|---|---|",
    ]
    for seam in table().seams:
        use = "wrapped" if seam.wrap is not None else "overridden"
        params = ", ".join(seam.params)
        lines.append(
            f"| `{seam.target}({params})` | {', '.join(seam.where)} | {use} | {seam.reason} "
            f"| {seam.removal} |"
        )
    return "\n".join(lines) + "\n"


def guarantees() -> str:
    """The table of ``docs/guarantees.md``: the text of each line is kept, its tests are found."""
    text = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    part = next(m for m in _PART.finditer(text) if m[2] == "guarantees")
    tests = tests_by_field()
    lines = []
    for line in part[0].splitlines()[1:-1]:
        row = re.match(r"\| ([PEG]\d+) \| ([^|]+) \|", line)
        if row is None:
            lines.append(line)
            continue
        held = "<br>".join(f"`{name}`" for name in tests[row[1]]) or NOT_HELD
        lines.append(f"| {row[1]} | {row[2]} | {held} |")
    return "\n".join(lines) + "\n"


def tests_by_field() -> dict[str, list[str]]:
    """Tests by the FIELD number that their docstrings name."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in TESTS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name, docstring in _tests(path):
                test = f"{path.relative_to(ROOT).as_posix()}::{name}"
                for match in _FIELD.finditer(docstring):
                    for number in re.findall(r"[PEG]\d+", match[1]):
                        found[number].append(test)
    return found


def _tests(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_":
            yield node.name, ast.get_docstring(node) or ""


def devices() -> str:
    """The table of ``docs/devices.md``: a row per device and document."""
    from green_core.energy.figures import Figure, figures, listed

    lines = ["| Device | Figures | Method | Source |", "|---|---|---|---|"]
    for name in listed():
        documents: dict[tuple[str, int, str], list[Figure]] = defaultdict(list)
        for figure in figures(name):
            documents[figure.source, figure.year, figure.method].append(figure)
        for (source, year, method), found in documents.items():
            cells = [
                f"{each.label} {each.shown}" + (f" ({each.note})" if each.note else "")
                for each in found
            ]
            lines.append(f"| {name} | {'<br>'.join(cells)} | {method} | {source}, {year} |")
    return "\n".join(lines) + "\n"


GENERATORS: dict[str, Callable[[], str]] = {
    "seams": seams,
    "guarantees": guarantees,
    "devices": devices,
}


def filled(text: str) -> str:
    """``text`` with every generated part made anew."""
    return _PART.sub(lambda part: part[1] + GENERATORS[part[2]]() + part[3], text)


def main() -> None:
    """Rewrite the documents."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (fresh := filled(text)) != text:
            path.write_text(fresh, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: brought up to date")


if __name__ == "__main__":
    main()
