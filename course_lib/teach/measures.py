"""Measure a chapter: how many cells, how long its code, how often it checks itself.

Lengths leave solutions out: a learner sees the stub, and writes what they like.
"""

import ast
import statistics
from dataclasses import asdict, dataclass

from nbformat import NotebookNode

from course_lib.teach.blanks import exercise_cells, has_blank, solved_source
from course_lib.teach.chapters import Chapter, role
from course_lib.teach.student import solution_lines


@dataclass(frozen=True)
class Measures:
    """The measures of one chapter; lengths in lines that are not empty, widths in characters."""

    chapter: str
    cells: int
    code_cells: int
    code_lines_median: float
    code_lines_max: int
    widest_line: int
    checked_cells: int
    exercises: int
    slides: int
    notes: int

    @property
    def check_share(self) -> float:
        """The share of code cells that check something."""
        return self.checked_cells / max(1, self.code_cells)

    def as_dict(self) -> dict[str, object]:
        """Return the measures as plain values, for JSON and tables."""
        return asdict(self) | {"check_share": round(self.check_share, 3)}


def code_cells(chapter: Chapter) -> list[NotebookNode]:
    """Return the chapter's code cells in order."""
    return [cell for cell in chapter.notebook.cells if cell.cell_type == "code"]


def code_lines(cell: NotebookNode) -> list[str]:
    """Return the cell's lines that are not empty and not part of a solution."""
    hidden = solution_lines(cell.source) if has_blank(cell.source) else set()
    lines = enumerate(cell.source.split("\n"))
    return [line for number, line in lines if number not in hidden and line.strip()]


def parse_code(cell: NotebookNode) -> ast.Module:
    """Return the cell's syntax tree, with lines of magic (`%`, `!`) left out.

    A cell magic (`%%ranks`) keeps its body: that is Python too.
    """
    lines = solved_source(cell.source).split("\n")
    return ast.parse("\n".join("" if line.startswith(("%", "!")) else line for line in lines))


def called_name(call: ast.Call) -> str:
    """Return the last part of the name of what is called: `assert_close` of `torch.testing.…`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def checks_something(cell: NotebookNode) -> bool:
    """Tell whether the cell asserts: an assert, or a call of `check…` or `assert…`."""
    for node in ast.walk(parse_code(cell)):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and called_name(node).startswith(("check", "assert")):
            return True
    return False


def measure(chapter: Chapter) -> Measures:
    """Measure a chapter as its readers meet it: speaker notes are counted apart from cells."""
    cells = [cell for cell in chapter.notebook.cells if role(cell) != "notes"]
    code = code_cells(chapter)
    lengths = [len(code_lines(cell)) for cell in code] or [0]
    return Measures(
        chapter=chapter.name,
        cells=len(cells),
        code_cells=len(code),
        code_lines_median=statistics.median(lengths),
        code_lines_max=max(lengths),
        widest_line=max(
            (len(line) for cell in code for line in cell.source.split("\n")), default=0
        ),
        checked_cells=sum(checks_something(cell) for cell in code),
        exercises=len(exercise_cells(chapter)),
        slides=sum(role(cell) in ("slide", "subslide") for cell in cells),
        notes=sum(role(cell) == "notes" for cell in chapter.notebook.cells),
    )
