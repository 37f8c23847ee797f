"""The student edition: every solution gives way to its stub, and nothing of it is left behind.

It drops speaker notes, cells tagged `solution-only` and every output, and proves on the finished
notebook that no line of a solution remains, before anyone gets it.
"""

import copy
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.errors import UserError
from course_lib.teach.blanks import BEGIN, END, chapter_blanks, regions, stub_source
from course_lib.teach.chapters import Chapter, role, tags

# A shorter line, such as `return total`, is too common to be a leak.
TELLING_LINE_LENGTH = 12


def student_edition(chapter: Chapter) -> NotebookNode:
    """Return the notebook that learners get: ids as in the chapter, no output, stubs only.

    Raises:
        UserError: if a line of a solution is left in it.
    """
    notebook = copy.deepcopy(chapter.notebook)
    notebook.cells = [
        _student_cell(cell)
        for cell in notebook.cells
        if role(cell) != "notes" and "solution-only" not in tags(cell)
    ]
    notebook.metadata["course"] = {"chapter": chapter.name, "edition": "student"}
    left = leftovers(chapter, notebook)
    if left:
        raise UserError(f"{chapter.path.name}: the student edition still shows {left[0]}.")
    return notebook


def _student_cell(cell: NotebookNode) -> NotebookNode:
    if cell.cell_type == "code":
        cell.source = stub_source(cell.source)
        cell.outputs, cell.execution_count = [], None
    return cell


def leftovers(chapter: Chapter, student: NotebookNode) -> list[str]:
    """Return what a student edition gives away, each as "line … in cell …"; empty is right.

    A telling line is one that a solution has and its stub has not; none may stand in any cell, nor
    may a mark or an output.
    """
    telling = telling_lines(chapter)
    found = []
    for cell in student.cells:
        if cell.get("outputs"):
            found.append(f"an output in cell {cell.id}")
        for line in cell.source.split("\n"):
            bare = line.strip()
            if BEGIN in bare or END in bare or "### STUB" in bare or bare in telling:
                found.append(f"the line {bare!r} in cell {cell.id}")
    return found


def telling_lines(chapter: Chapter) -> set[str]:
    """Return the stripped lines that give a solution of this chapter away."""
    lines: set[str] = set()
    for blank in chapter_blanks(chapter).values():
        stub = {line.strip() for line in blank["stub"].split("\n")}
        solution = {line.strip() for line in blank["solution"].split("\n")}
        lines |= {line for line in solution - stub if len(line) >= TELLING_LINE_LENGTH}
    return lines


def solution_lines(source: str) -> set[int]:
    """Return the numbers of the lines (from 0) that belong to solutions, marks included."""
    return {n for begin, end in regions(source) for n in range(begin, end + 1)}


def write_student_editions(chapters: list[Chapter], folder: Path) -> list[Path]:
    """Write the student edition of each chapter into `folder` and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for chapter in chapters:
        path = folder / f"{chapter.name}.ipynb"
        path.write_text(notebook_text(student_edition(chapter)), encoding="utf-8")
        paths.append(path)
    return paths


def notebook_text(notebook: NotebookNode) -> str:
    """Return the notebook's JSON, valid and always the same for the same content."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"
