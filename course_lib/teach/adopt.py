"""Bring edits made in JupyterLab home: from a solved notebook into the chapter it was built from.

Cells are matched by id. An unchanged cell keeps its text in the chapter to the byte; a changed one
keeps its id, and its stubs, which the notebook does not hold; a new one gets an id of its own.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

from course_lib.errors import UserError
from course_lib.paths import CourseFolders
from course_lib.teach.blanks import has_blank, restore_stubs, solved_source
from course_lib.teach.chapters import LAYOUT_METADATA, Chapter, load_chapter, read_text

CELL_HEADER = re.compile(r"^# %%(?: |$)")
HEADER_ORDER = ("id", "exercise", "slideshow", "tags")


@dataclass
class Adopted:
    """What came home: the chapter's file, and the ids of cells by what happened to them."""

    path: Path
    changed: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    moved: bool = False


def adopt(notebook_path: Path, folders: CourseFolders) -> Adopted:
    """Write the notebook's cells into its chapter.

    Raises:
        UserError: if it is no notebook, a student edition, of no known chapter, or its solutions
            lost their marks. The chapter is then left as it was.
    """
    notebook = _read(notebook_path)
    chapter = _chapter_of(notebook, notebook_path, folders)
    blocks = split_blocks(chapter.path.read_text(encoding="utf-8"))
    before = {cell.id: cell for cell in chapter.notebook.cells}
    ids = {cell.id for cell in notebook.cells}
    result = Adopted(chapter.path, removed=[name for name in before if name not in ids])
    wanted: list[NotebookNode] = []
    out = [blocks[""]] if blocks[""] else []
    for cell in notebook.cells:
        old = before.get(cell.id)
        new = _home_cell(cell, old, chapter, {c.id for c in wanted} | set(before))
        wanted.append(new)
        if old is not None and _same(new, old):
            out.append(blocks[old.id])
            continue
        (result.new if old is None else result.changed).append(new.id)
        out.append(cell_text(new))
    kept = [cell.id for cell in wanted if cell.id in before]
    result.moved = kept != [name for name in before if name in kept]
    text = "\n\n".join(block.strip("\n") for block in out) + "\n"
    reread = read_text(text).cells
    if len(reread) != len(wanted) or not all(map(_same, reread, wanted)):
        raise UserError(
            f"{notebook_path.name} holds a cell that a chapter's file cannot; edit the chapter."
        )
    chapter.path.write_text(text, encoding="utf-8")
    return result


def _read(path: Path) -> NotebookNode:
    if not path.is_file():
        raise UserError(f"There is no notebook {str(path)!r}; name one in notebooks/.")
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:
        raise UserError(f"{str(path)!r} is not a notebook that can be read: {error}") from error
    return notebook


def _chapter_of(notebook: NotebookNode, path: Path, folders: CourseFolders) -> Chapter:
    course = notebook.metadata.get("course", {})
    blanks = [c for c in notebook.cells if c.metadata.get("exercise")]
    if course.get("edition") == "student" or any(not has_blank(c.source) for c in blanks):
        raise UserError(
            f"{path.name} is a student edition, without the solutions; "
            "adopt takes the solved notebook of notebooks/."
        )
    name = course.get("chapter", path.stem)
    source = folders.chapters / f"{name}.py"
    if not source.is_file():
        known = ", ".join(sorted(p.stem for p in folders.chapters.glob("*.py")))
        raise UserError(
            f"{path.name} belongs to no chapter (there is no {name}.py); there are {known}."
        )
    return load_chapter(source)


def _home_cell(
    cell: NotebookNode, old: NotebookNode | None, chapter: Chapter, taken: set[str]
) -> NotebookNode:
    """Return the cell as the chapter holds it: stubs back in place, an id and a role of its own."""
    metadata = {k: v for k, v in cell.metadata.items() if k not in LAYOUT_METADATA}
    source, cell_id = cell.source.strip("\n"), cell.id
    if old is None:
        cell_id = _new_id(cell, chapter, taken)
        metadata.setdefault("slideshow", {"slide_type": "skip"})
    elif old.cell_type == "code" and has_blank(old.source):
        if source == solved_source(old.source):
            source = old.source
        else:
            try:
                source = restore_stubs(source, old.source)
            except UserError as error:
                raise UserError(f"Cell {cell.id}: {error}") from error
    return NotebookNode(
        cell_type=cell.cell_type, id=cell_id, source=source, metadata=NotebookNode(metadata)
    )


def _new_id(cell: NotebookNode, chapter: Chapter, taken: set[str]) -> str:
    if cell.id.startswith(f"{chapter.number}-") and cell.id not in taken:
        return cell.id
    words = re.findall(r"[a-z0-9]+", cell.source.lower())[:3] or ["cell"]
    base = f"{chapter.number}-{'-'.join(words)}"[:40]
    number = 1
    while (name := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return name


def _same(a: NotebookNode, b: NotebookNode) -> bool:
    return (a.id, a.cell_type, a.source, dict(a.metadata)) == (
        b.id,
        b.cell_type,
        b.source,
        dict(b.metadata),
    )


def split_blocks(text: str) -> dict[str, str]:
    """Return {cell id: its text with its header}; what stands before the first cell is under ""."""
    blocks: dict[str, str] = {}
    current: list[str] = []
    name = ""
    for line in text.split("\n"):
        if CELL_HEADER.match(line):
            blocks[name] = "\n".join(current)
            current = []
            match = re.search(r'\bid="([^"]+)"', line)
            name = match[1] if match else f"line {len(blocks)}"
        current.append(line)
    blocks[name] = "\n".join(current)
    return blocks


def cell_text(cell: NotebookNode) -> str:
    """Return the percent text of one cell, its header in the order that chapters use."""
    kind = "" if cell.cell_type == "code" else f" [{cell.cell_type}]"
    values = {"id": cell.id} | dict(cell.metadata)
    keys = [k for k in HEADER_ORDER if k in values] + sorted(set(values) - set(HEADER_ORDER))
    header = " ".join(f"{key}={json.dumps(values[key], ensure_ascii=False)}" for key in keys)
    make = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
    lone = nbformat.v4.new_notebook(cells=[make(cell.source)])
    text = jupytext.writes(lone, fmt="py:percent")
    lines = text[text.index("# %%") :].split("\n")
    return "\n".join([f"# %%{kind} {header}", *lines[1:]]).rstrip("\n")
