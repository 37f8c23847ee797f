"""Chapter to notebook: `course build` executes it, `course build --check` proves that they agree.

From one source come the solved notebook with stored outputs (what people read and nbval runs), the
student edition, and the record of every blank that `check` compares answers with.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.errors import UserError
from course_lib.paths import CourseFolders
from course_lib.teach.blanks import chapter_blanks, read_blanks, solved_source
from course_lib.teach.chapters import Chapter, chapter_paths, load_chapters
from course_lib.teach.execute import execute, keep_stored_timings
from course_lib.teach.lint import lint_chapter, lint_outputs
from course_lib.teach.student import notebook_text, student_edition, write_student_editions


@dataclass(frozen=True)
class Built:
    """What one chapter's build took: seconds in all and of the slowest cell."""

    name: str
    time_s: float
    slowest_cell: str
    slowest_time_s: float


def solved_notebook(chapter: Chapter) -> NotebookNode:
    """Return the chapter's solved notebook, not yet executed."""
    notebook = copy.deepcopy(chapter.notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = solved_source(cell.source)
    notebook.metadata["course"] = {"chapter": chapter.name, "edition": "solved"}
    return notebook


def blanks_text(chapters: list[Chapter]) -> str:
    """Return the text of blanks.json for all chapters."""
    blanks = {}
    for chapter in chapters:
        blanks.update(chapter_blanks(chapter))
    return _json_text(blanks)


def _json_text(blanks: dict[str, dict[str, str]]) -> str:
    return json.dumps(blanks, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def notebook_path(folders: CourseFolders, name: str) -> Path:
    """Return where the solved notebook of the chapter `name` lies."""
    return folders.notebooks / f"{name}.ipynb"


def write_blanks(folders: CourseFolders, chapters: list[Chapter]) -> None:
    """Bring blanks.json up to date for these chapters, before any cell runs: `check` reads it.

    The other chapters' blanks stay as they are, so that one chapter can be built while another is
    half written; those of chapters that are no longer there go.
    """
    before = json.loads(read_blanks(folders.blanks) or "{}")
    ours = {chapter.number for chapter in chapters}
    there = {path.stem[:2] for path in chapter_paths(folders.chapters)}
    blanks = {key: blank for key, blank in before.items() if key[:2] in there - ours}
    for chapter in chapters:
        blanks.update(chapter_blanks(chapter))
    folders.blanks.parent.mkdir(parents=True, exist_ok=True)
    text = _json_text(blanks)
    if read_blanks(folders.blanks) != text:
        folders.blanks.write_text(text, encoding="utf-8")


def build(
    folders: CourseFolders,
    numbers: list[str] | None = None,
    *,
    fresh: bool = False,
    on_built: Callable[[Built], None] = lambda built: None,
) -> list[Built]:
    """Execute the chapters (all, or those named) and write notebooks, student edition and blanks.

    `fresh` takes new timings too; else unchanged cells tagged `nbval-ignore-output` keep theirs, so
    that a rebuild of an unchanged chapter is equal to the byte.

    Raises:
        UserError: if a chapter breaks a rule of `lint`, or a cell fails. Nothing is written for it.
    """
    chapters = load_chapters(folders.chapters, numbers)
    for chapter in chapters:
        refuse_findings(chapter.path.name, lint_chapter(chapter))
    write_blanks(folders, chapters)
    folders.notebooks.mkdir(exist_ok=True)
    done = []
    for chapter in chapters:
        done.append(_build_one(folders, chapter, fresh=fresh))
        on_built(done[-1])
    write_student_editions(chapters, folders.student)
    return done


def _build_one(folders: CourseFolders, chapter: Chapter, *, fresh: bool) -> Built:
    notebook = solved_notebook(chapter)
    path = notebook_path(folders, chapter.name)
    try:
        times_s = execute(notebook, folders.notebooks)
    except UserError as error:
        raise UserError(f"{chapter.path.name}: {error}") from error
    if path.is_file() and not fresh:
        keep_stored_timings(notebook, nbformat.read(path, as_version=4))
    refuse_findings(path.name, lint_outputs(notebook))
    path.write_text(notebook_text(notebook), encoding="utf-8")
    slowest = max(times_s, key=lambda cell: times_s[cell], default="")
    return Built(chapter.name, sum(times_s.values()), slowest, times_s.get(slowest, 0.0))


def refuse_findings(name: str, findings: list[str]) -> None:
    """Raise a UserError that lists the findings, if there are any."""
    if findings:
        raise UserError("\n".join(f"{name}: {finding}" for finding in findings))


def check(folders: CourseFolders, numbers: list[str] | None = None) -> list[str]:
    """Return every way in which chapters, notebooks and blanks disagree; empty is right.

    Nothing is executed: the notebook's cells are compared with the chapter's, its outputs with the
    rules, blanks.json with what the chapters give, the student edition with the solutions.
    """
    chapters = load_chapters(folders.chapters)
    problems = []
    for chapter in load_chapters(folders.chapters, numbers):
        problems += [f"{chapter.path.name}: {finding}" for finding in lint_chapter(chapter)]
        problems += _check_notebook(folders, chapter)
        try:
            student_edition(chapter)
        except UserError as error:
            problems.append(str(error))
    if read_blanks(folders.blanks) != blanks_text(chapters):
        problems.append("blanks.json is not what the chapters give; run course build.")
    known = {chapter.name for chapter in chapters}
    for path in sorted(folders.notebooks.glob("*.ipynb")):
        if path.stem not in known:
            problems.append(f"{path.name} has no chapter; remove it.")
    return problems


def _check_notebook(folders: CourseFolders, chapter: Chapter) -> list[str]:
    path = notebook_path(folders, chapter.name)
    if not path.is_file():
        return [f"{path.name} is missing; run course build {chapter.number}."]
    stored, wanted = nbformat.read(path, as_version=4), solved_notebook(chapter)
    mend = f"run course build {chapter.number} (or course adopt {path.name}, to keep its edits)"
    if [c.id for c in stored.cells] != [c.id for c in wanted.cells]:
        return [f"{path.name} has other cells than its chapter; {mend}."]
    problems = []
    for mine, theirs in zip(stored.cells, wanted.cells, strict=True):
        for part in ("cell_type", "source", "metadata"):
            if mine[part] != theirs[part]:
                problems.append(f"{path.name}: the {part} of cell {mine.id} differs; {mend}.")
    if stored.metadata != wanted.metadata:
        problems.append(f"{path.name}: its metadata differs; {mend}.")
    return problems + [f"{path.name}: {finding}" for finding in lint_outputs(stored)]
