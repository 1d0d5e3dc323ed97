"""Text that came from outside (tenants, request ids) made safe for a store, a label, a screen."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version

LABEL_MAX_CHARS = 128
# What spreadsheets take for the start of a formula; the last four are full-width forms.
_FORMULA_STARTS = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_CELL_BREAKS = frozenset("\t\r\n")


def storable(text: str) -> str:
    """``text`` with lone surrogates (undecodable header bytes) replaced, so UTF-8 can hold it."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def label_value(text: str) -> str:
    """``text`` as a metric label: storable, and cut to a length that a scrape can bear.

    The cut ends in a digest, so two long names that differ late stay two series.
    """
    text = storable(text)
    if len(text) <= LABEL_MAX_CHARS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{text[: LABEL_MAX_CHARS - 13]}~{digest}"


def csv_cell(text: str) -> str:
    """``text`` for a CSV cell: an apostrophe in front keeps spreadsheets from running it."""
    stripped = text.lstrip()
    if (stripped and stripped[0] in _FORMULA_STARTS) or (text and text[0] in _CELL_BREAKS):
        return "'" + text
    return text


def printable(text: str) -> str:
    """``text`` for a terminal: control characters are shown, not obeyed."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def greenserve_version() -> str:
    """Version of the installed distribution; ``unknown`` when run from loose files."""
    try:
        return version("greenserve")
    except PackageNotFoundError:
        return "unknown"
