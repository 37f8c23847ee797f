"""Estimate how high cells are on a slide, so that what does not fit moves to a slide of its own.

The browser measures the truth in the tests; the estimate need only be good enough that authors can
write `fragment` without counting lines. Heights are in the deck's pixels (1280 x 720).
"""

import math
import re

from nbformat import NotebookNode

from course_lib.teach.blanks import has_blank, stub_source
from course_lib.teach.chapters import tags

ROOM_PX = 628
GAP_PX = 16
PICTURE_PX = 270
CODE_LINE_PX, CODE_FRAME_PX, CODE_COLUMNS = 28.4, 30, 90
OUTPUT_LINE_PX, OUTPUT_FRAME_PX = 28.4, 16
HTML_PX = 110
PROSE_LINE_PX, PROSE_GAP_PX, PROSE_COLUMNS = 37, 12, 88
HEADING_PX = 78
FORMULA_PX = 80


def height_px(cell: NotebookNode) -> float:
    """Return about how many pixels the cell takes."""
    return _prose_px(cell.source) if cell.cell_type == "markdown" else _code_px(cell)


def _lines(text: str, columns: int) -> int:
    return sum(max(1, math.ceil(len(line) / columns)) for line in text.split("\n"))


def _code_px(cell: NotebookNode) -> float:
    source = stub_source(cell.source) if has_blank(cell.source) else cell.source
    height = 0.0
    if "hide-input" not in tags(cell):
        height += _lines(slide_code(source), CODE_COLUMNS) * CODE_LINE_PX + CODE_FRAME_PX
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if any(kind.startswith("image/") for kind in data):
            height += PICTURE_PX
        elif "text/html" in data:
            height += HTML_PX
        else:
            text = output.get("text", "") or data.get("text/plain", "")
            height += _lines(text.rstrip("\n"), CODE_COLUMNS) * OUTPUT_LINE_PX + OUTPUT_FRAME_PX
    return height


def _prose_px(text: str) -> float:
    height = 0.0
    for block in re.split(r"\n\s*\n", text):
        if block.lstrip().startswith("#"):
            height += HEADING_PX
        elif block.lstrip().startswith("$$"):
            height += FORMULA_PX
        elif re.match(r"\s*(?:[-*|>]|\d+\.)", block):
            height += _lines(block, PROSE_COLUMNS) * (PROSE_LINE_PX + 6) + PROSE_GAP_PX
        else:
            joined = " ".join(block.split())
            height += _lines(joined, PROSE_COLUMNS) * PROSE_LINE_PX + PROSE_GAP_PX
    return height


def slide_code(source: str) -> str:
    """Return code as a slide shows it: no two empty lines in a row, no marks for the formatter."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" *# fmt: skip$", "", source, flags=re.MULTILINE))
