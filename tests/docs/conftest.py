"""The documents, read once."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    """Text of every document for readers, by path from the root."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


@pytest.fixture(scope="session")
def blocks(pages: dict[str, str]) -> list[tuple[str, str, str, str]]:
    """Every fenced block: (page, language, rest of the opening line, code)."""
    fence = re.compile(r"^```(\w*)[ ]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [
        (page, *match.groups()) for page, text in pages.items() for match in fence.finditer(text)
    ]


@pytest.fixture(scope="session")
def doc_tables() -> ModuleType:
    """``tools/doc_tables.py``, which is a script and in no package."""
    spec = importlib.util.spec_from_file_location("doc_tables", ROOT / "tools" / "doc_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
