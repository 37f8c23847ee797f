"""Every chapter of the course: rules kept, editions equal, a student edition that runs blank."""

from pathlib import Path

import nbformat
import pytest

from course_lib.paths import course_folders
from course_lib.teach.blanks import chapter_blanks
from course_lib.teach.build import check
from course_lib.teach.chapters import Chapter, load_chapters
from course_lib.teach.execute import execute
from course_lib.teach.student import student_edition

FOLDERS = course_folders()
CHAPTERS = load_chapters(FOLDERS.chapters)


def test_chapters_notebooks_student_edition_and_blanks_agree():
    assert check(FOLDERS) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_the_student_edition_runs_with_every_blank_blank(chapter: Chapter, tmp_path: Path):
    notebook = student_edition(chapter)
    execute(notebook, tmp_path)
    _assert_told_blank(notebook, chapter)


def _assert_told_blank(notebook: nbformat.NotebookNode, chapter: Chapter) -> None:
    """Each exercise's check says that nothing has been tried yet, and none says it is right."""
    for exercise in chapter_blanks(chapter):
        cell = next(c for c in notebook.cells if f'check("{exercise}"' in c.source)
        said = "".join(out.get("data", {}).get("text/plain", "") for out in cell.outputs)
        assert "not attempted" in said, f"{exercise} says {said!r}"
