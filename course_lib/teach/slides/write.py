"""Write decks: the chapter's cells with the outputs that its built notebook stores."""

import copy
from pathlib import Path

import nbformat

from course_lib.errors import UserError
from course_lib.paths import CourseFolders
from course_lib.teach.build import notebook_path, solved_notebook
from course_lib.teach.chapters import load_chapters
from course_lib.teach.slides.page import deck_html


def write_decks(
    folders: CourseFolders,
    numbers: list[str] | None = None,
    out: Path | None = None,
    extra_css: Path | None = None,
) -> list[Path]:
    """Write a deck for each chapter (or those named) and return their paths.

    Raises:
        UserError: if a chapter's notebook is missing or is not built from it as it stands, since a
            slide would then show outputs of other code; or if the style file can't be read.
    """
    css = _read_css(extra_css)
    folder = out or folders.slides
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for chapter in load_chapters(folders.chapters, numbers):
        path = notebook_path(folders, chapter.name)
        wanted = solved_notebook(chapter)
        stored = nbformat.read(path, as_version=4) if path.is_file() else None
        if stored is None or [c.source for c in stored.cells] != [c.source for c in wanted.cells]:
            raise UserError(
                f"{path.name} is not built from its chapter as it stands; "
                f"run course build {chapter.number}."
            )
        shown = copy.deepcopy(stored)
        for cell, source in zip(shown.cells, chapter.notebook.cells, strict=True):
            cell.source = source.source  # with its stub: a slide shows that, not the solution
        deck = folder / f"{chapter.name}.html"
        deck.write_text(deck_html(chapter, shown, css), "utf-8")
        written.append(deck)
    return written


def _read_css(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The style file {str(path)!r} can't be read: {error}.") from error
