"""The pictures in the documents, and the tool that draws terminal output."""

import subprocess
import sys
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    lines = (element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text"))
    return [line.replace("\u00a0", " ") for line in lines]


def test_a_drawing_keeps_every_line_of_the_output(root):
    output = '$ green report <x> & "y"\ntenant   kWh\n\na        0.1'
    drawn = subprocess.run(
        [sys.executable, root / "tools" / "terminal_svg.py"],
        input=output,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    ).stdout
    assert texts(drawn) == [line for line in output.splitlines() if line]


def test_every_picture_is_well_formed(root):
    pictures = list((root / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        assert texts(picture.read_text("utf-8")), picture.name


def test_every_picture_is_shown_in_a_document(root, pages):
    for picture in (root / "docs" / "images").iterdir():
        assert any(f"images/{picture.name})" in text for text in pages.values()), picture.name
