"""docs/hooks.md against spec.py."""

import inspect
import re

import pytest

from green_core import spec
from green_core.manager import FAMILIES

HOOKS = {
    name: hook
    for name, hook in vars(spec).items()
    if inspect.isfunction(hook) and hasattr(hook, f"{spec.PROJECT}_spec")
}
ROWS = {
    "lifecycle": ("Caller, process", "Frequency", "Gets, units", "`None` means", "On raise"),
    "factory": ("Caller, process", "Frequency", "Product", "`None` means", "On raise"),
    "observer": ("Caller, process", "Frequency", "Gets, units", "`None` means", "On raise"),
}


def kind_of(name):
    if name in ("green_configure", "green_unconfigure"):
        return "lifecycle"
    return "observer" if name.startswith("green_on_") else "factory"


@pytest.fixture(scope="module")
def sections(pages):
    return dict(re.findall(r"^### `(.+?)`\n(.*?)(?=^##|\Z)", pages["docs/hooks.md"], re.M | re.S))


def test_every_hook_is_documented_with_its_parameters_and_in_the_order_of_the_spec(sections):
    assert list(sections) == [
        f"{name}({', '.join(inspect.signature(hook).parameters)})" for name, hook in HOOKS.items()
    ]


@pytest.mark.parametrize("name", HOOKS)
def test_each_hook_says_who_calls_it_when_what_none_means_and_what_a_raise_does(name, sections):
    text = next(text for title, text in sections.items() if title.startswith(f"{name}("))
    rows = dict(re.findall(r"^\| ([^|]+?) \| (.+) \|$", text, re.M))
    assert rows["Kind"] == kind_of(name)
    for row in ROWS[kind_of(name)]:
        assert rows.get(row), row


def test_products_are_those_of_the_spec(sections):
    """The value types that a hook's docstring names stand in its section too."""
    for name, hook in HOOKS.items():
        text = next(text for title, text in sections.items() if title.startswith(f"{name}("))
        for types in re.findall(r"``\(([\w, ]+)\) ->", hook.__doc__):
            assert f"({types}) ->" in text, name


def test_hooks_that_nobody_calls_say_so(sections, root):
    """A hook is called where its name, or its family's, stands outside spec and families."""
    code = "".join(
        path.read_text("utf-8")
        for room in ("core", "plugins")
        for path in (root / room).rglob("*.py")
        if path.name != "spec.py" and "testing" not in path.parts and "policies" not in path.parts
    )
    for title, text in sections.items():
        name = title.partition("(")[0]
        family = next((f for f, hook in FAMILIES.items() if hook == name), "")
        asked = (f'("{family}", _STOCK', f'manager.policy("{family}")')
        called = any(text in code for text in asked) if family else f'"{name}"' in code
        assert called != ("nobody yet" in text), name
