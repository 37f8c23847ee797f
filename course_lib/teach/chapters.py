"""Read chapters: `chapters/NN_name.py`, the single source of every edition of a chapter.

A chapter is a jupytext percent file. Each cell's header carries what text formats lose: its id, its
slide role, its tags, the exercise it holds:

    # %% id="00-ex1" exercise="00.1" slideshow={"slide_type": "skip"} tags=["hide-input"]

`load_chapter` turns it into a notebook whose cells still hold both the solution and the stub of
each exercise; `blanks` makes the solved and the student form of a cell from it.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jupytext
from nbformat import NotebookNode

from course_lib.errors import UserError

ROLES = ("slide", "subslide", "fragment", "skip", "notes")
CHAPTER_NAME = re.compile(r"(\d\d)_[a-z0-9_]+")
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}

# What jupytext keeps to remember how a text was laid out, and JupyterLab to remember a view.
LAYOUT_METADATA = (
    "lines_to_next_cell",
    "lines_to_end_of_cell_marker",
    "cell_marker",
    "title",
    "editable",
    "collapsed",
    "scrolled",
    "trusted",
    "execution",
    "jupyter",
)


@dataclass(frozen=True)
class Chapter:
    """One chapter: its file and its cells, solutions and stubs both inside."""

    path: Path
    notebook: NotebookNode

    @property
    def name(self) -> str:
        """`00_one_training_step`: what its notebook and its slides are called."""
        return self.path.stem

    @property
    def number(self) -> str:
        """`00`."""
        return self.name[:2]

    @cached_property
    def title(self) -> str:
        """The text of the first heading."""
        for cell in self.notebook.cells:
            match = re.search(r"^# (.+)$", cell.source, re.MULTILINE)
            if cell.cell_type == "markdown" and match:
                return match[1].strip()
        return self.name


def role(cell: NotebookNode) -> str | None:
    """Return the cell's slide role, one of `ROLES`, or None where its header states none."""
    return cell.metadata.get("slideshow", {}).get("slide_type")


def tags(cell: NotebookNode) -> list[str]:
    """Return the cell's tags."""
    return list(cell.metadata.get("tags", []))


def chapter_paths(folder: Path, numbers: list[str] | None = None) -> list[Path]:
    """Return the chapters' files in order, or those whose numbers or names are given.

    Raises:
        UserError: if the folder has no chapter, or a number names none; the sentence lists them.
    """
    paths = [p for p in sorted(folder.glob("*.py")) if CHAPTER_NAME.fullmatch(p.stem)]
    if not paths:
        raise UserError(f"There is no chapter in {folder}: chapters are named like 00_one_step.py.")
    if not numbers:
        return paths
    chosen: list[Path] = []
    for number in numbers:
        wanted = Path(number).stem
        found = [
            p for p in paths if wanted in (p.stem, p.stem[:2]) or p.stem[:2] == wanted.zfill(2)
        ]
        if not found:
            known = ", ".join(p.stem[:2] for p in paths)
            raise UserError(f"There is no chapter {number!r}; there are {known}.")
        chosen.extend(p for p in found if p not in chosen)
    return chosen


def read_text(text: str) -> NotebookNode:
    """Return the notebook of a percent text: ids on cells, layout remarks of jupytext dropped."""
    notebook = jupytext.reads(text, fmt="py:percent")
    for cell in notebook.cells:
        cell.id = str(cell.metadata.pop("id", ""))
        for key in LAYOUT_METADATA:
            cell.metadata.pop(key, None)
    notebook.metadata = NotebookNode(kernelspec=NotebookNode(KERNELSPEC))
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def load_chapter(path: Path) -> Chapter:
    """Read one chapter.

    Raises:
        UserError: if a cell has no id, an unusable one, or one that another cell has.
    """
    notebook = read_text(path.read_text(encoding="utf-8"))
    seen: set[str] = set()
    for position, cell in enumerate(notebook.cells, start=1):
        first_line = cell.source.split("\n", 1)[0][:40]
        if not CELL_ID.fullmatch(cell.id):
            raise UserError(
                f"{path.name}: cell {position} ({first_line!r}) has the id {cell.id!r}; "
                "write one of letters, digits, - and _ in its header, such as "
                f'# %% id="{path.stem[:2]}-goals".'
            )
        if cell.id in seen:
            raise UserError(f"{path.name}: two cells have the id {cell.id!r}; rename the second.")
        seen.add(cell.id)
    return Chapter(path, notebook)


def load_chapters(folder: Path, numbers: list[str] | None = None) -> list[Chapter]:
    """Read the chapters of a folder, or those whose numbers are given, in order."""
    return [load_chapter(path) for path in chapter_paths(folder, numbers)]
