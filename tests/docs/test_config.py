"""docs/config.md against the schema, and every TOML block against the loader."""

import json
import re
import tomllib
import types
import typing

import msgspec

from green_core import config as configuration
from green_core.config import PROFILES, GreenConfig
from green_core.config.schema import Table

TYPES = {str: "text", float: "number", int: "whole number", bool: "switch"}


def keys():
    """(dotted key, type in words, default in TOML) of the whole tree."""
    for field in msgspec.structs.fields(GreenConfig):
        if isinstance(field.type, type) and issubclass(field.type, Table):
            for inner in msgspec.structs.fields(field.type):
                yield f"{field.name}.{inner.name}", words(inner.type), shown(default(inner))
        else:
            yield field.name, words(field.type), shown(default(field))


def default(field):
    if field.default is msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def words(annotation):
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        (annotation,) = (a for a in typing.get_args(annotation) if a is not type(None))
        return words(annotation)
    return {tuple: "list", dict: "table"}.get(origin) or TYPES[annotation]


def shown(value):
    return "unset" if value is None else f"`{json.dumps(value)}`"


def test_every_key_is_documented_with_type_default_and_variable(pages):
    variables = {key: f"`{name}`" for name, key in configuration.env_names().items()}
    documented = [
        (key, kind, default, variable)
        for key, kind, default, variable, meaning in re.findall(
            r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \| (`GREEN_\w+`|none) \| ([^|]+) \|$",
            pages["docs/config.md"],
            re.M,
        )
        if meaning.strip()
    ]
    expected = [(key, kind, value, variables.get(key, "none")) for key, kind, value in keys()]
    assert [row[0] for row in documented] == [row[0] for row in expected]
    for found, wanted in zip(documented, expected, strict=True):
        assert found[1] == wanted[1] or found[1].startswith(f"{wanted[1]}, "), found[0]
        assert found[2:] == wanted[2:], found[0]


def test_every_number_with_a_unit_in_its_name_says_the_unit(pages):
    units = {"_ms": "ms", "_s": "s", "_j": "J ", "_w": "W ", "_days": "days", "_years": "years"}
    rows = re.findall(r"^\| `\w+\.(\w+)` \| number,? ?([^|]*) \|", pages["docs/config.md"], re.M)
    assert rows
    for name, unit in rows:
        for suffix, expected in units.items():
            if name.endswith(suffix):
                assert unit.startswith(expected.strip()), name


def test_profiles_are_those_of_the_code(pages):
    rows = re.findall(r"^\| `(\w+)`(?: \(default\))? \| (.+) \|$", pages["docs/config.md"], re.M)
    documented = {name: text for name, text in rows if name in PROFILES}
    assert set(documented) == set(PROFILES)
    for name, bundle in PROFILES.items():
        assignments = [
            f"`{table}.{key} = {json.dumps(value)}`"
            for table, values in bundle.items()
            for key, value in values.items()
        ]
        assert documented[name] == (", ".join(assignments) or "nothing")


def test_tables_that_need_a_restart_are_those_of_the_code(pages):
    from green_core.reloading import FIXED_TABLES

    sections = re.findall(r"^### (\w+)\n\n(.*?)^\|", pages["docs/config.md"], re.M | re.S)
    assert {name for name, text in sections if "Needs a restart" in text} == set(FIXED_TABLES)


def test_every_toml_block_is_a_valid_configuration(blocks, tmp_path):
    """Fragments of a table (``replay_start = ...``) follow the block before them on their page."""
    checked = 0
    for page, language, _, code in blocks:
        if language != "toml" or "project" in tomllib.loads(code):
            continue
        is_fragment = page == "docs/carbon-signal.md" and "[" not in code.splitlines()[0]
        file = tmp_path / "green.toml"
        file.write_text(("[carbon]\n" if is_fragment else "") + code, "utf-8")
        configuration.load(file, env={})
        checked += 1
    assert checked >= 8
