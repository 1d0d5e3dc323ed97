"""Draw terminal output as an SVG picture: ``python tools/terminal_svg.py < output > picture.svg``.

Lines that begin with ``$ `` are shown as commands. Standard library only.
"""

from __future__ import annotations

import argparse
import sys
from html import escape

FONT_PX = 14
CHAR_PX = 8.43  # advance of common monospace fonts at 14 px; textLength pins it
LINE_PX = 20
PADDING_PX = 18
BAR_PX = 32
BACKGROUND, TEXT, COMMAND, BAR = "#10201a", "#d5e5dc", "#7fdc9f", "#1c332a"
DOTS = ("#e0695f", "#dfb44e", "#62b872")


def draw(text: str, title: str = "") -> str:
    """The picture of ``text``; every line is one ``<text>`` of fixed width."""
    lines = text.expandtabs(8).rstrip("\n").split("\n")
    columns = max(len(line) for line in lines)
    width = round(columns * CHAR_PX + 2 * PADDING_PX)
    height = BAR_PX + len(lines) * LINE_PX + 2 * PADDING_PX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title or lines[0])}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        f'<path d="M0 {BAR_PX}V8a8 8 0 0 1 8-8h{width - 16}a8 8 0 0 1 8 8v{BAR_PX - 8}z" '
        f'fill="{BAR}"/>',
    ]
    parts += [
        f'<circle cx="{20 + 20 * index}" cy="{BAR_PX / 2:g}" r="6" fill="{colour}"/>'
        for index, colour in enumerate(DOTS)
    ]
    if title:
        parts.append(
            f'<text x="{width / 2:g}" y="{BAR_PX / 2 + 5:g}" text-anchor="middle" fill="{TEXT}" '
            f'font-family="sans-serif" font-size="13">{escape(title)}</text>'
        )
    parts.append(
        '<g font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        f'font-size="{FONT_PX}" xml:space="preserve">'
    )
    for number, line in enumerate(lines):
        if line.strip():
            parts.append(_line(line, BAR_PX + PADDING_PX + number * LINE_PX + FONT_PX))
    parts += ["</g>", "</svg>", ""]
    return "\n".join(parts)


def _line(line: str, y: float) -> str:
    is_command = line.startswith("$ ")
    style = f'fill="{COMMAND}" font-weight="bold"' if is_command else f'fill="{TEXT}"'
    shown = line.rstrip()
    # No-break spaces: some renderers drop xml:space and would fold the columns of a table.
    kept = escape(shown).replace(" ", "\u00a0")
    return (
        f'<text x="{PADDING_PX}" y="{y:g}" textLength="{len(shown) * CHAR_PX:.1f}" '
        f'lengthAdjust="spacingAndGlyphs" {style}>{kept}</text>'
    )


def main() -> None:
    """Read text from stdin, write the picture to stdout."""
    parser = argparse.ArgumentParser(description="Draw terminal output as an SVG picture.")
    parser.add_argument("--title", default="", help="shown in the window's bar")
    arguments = parser.parse_args()
    sys.stdout.write(draw(sys.stdin.read(), arguments.title))


if __name__ == "__main__":
    main()
