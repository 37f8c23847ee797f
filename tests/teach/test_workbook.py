"""The workbook: new chapters come, and nothing that a learner changed is ever overwritten."""

from pathlib import Path

import nbformat
import pytest

from course_lib.errors import UserError
from course_lib.paths import CourseFolders
from course_lib.teach.chapters import load_chapters
from course_lib.teach.workbook import update_workbook
from tests.mini_course import chapter_text

NAME = "00_mini.ipynb"
BESIDE = "00-new_mini.ipynb"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """The folder of a workbook."""
    return tmp_path / "workbook"


def update(course: CourseFolders, book: Path) -> list[str]:
    """Update the workbook from the course as it is now."""
    return update_workbook(load_chapters(course.chapters), book)


def new_chapter(course: CourseFolders, word: str) -> None:
    """Publish another version of the chapter."""
    text = chapter_text().replace("# - add two numbers", f"# - {word}")
    (course.chapters / "00_mini.py").write_text(text, "utf-8")


def edit(path: Path, words: str) -> bytes:
    """Change a notebook as a learner would, and return its bytes."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3].source += f"\n# {words}"
    nbformat.write(notebook, path)
    return path.read_bytes()


def names(book: Path) -> list[str]:
    """Return the notebooks of a workbook."""
    return sorted(path.name for path in book.glob("*.ipynb"))


def test_a_new_workbook_and_a_second_time_without_news(course: CourseFolders, book: Path):
    assert update(course, book) == [f"{NAME} is new."]
    assert update(course, book) == []
    assert names(book) == [NAME]


def test_an_unchanged_notebook_is_brought_up_to_date(course: CourseFolders, book: Path):
    update(course, book)
    new_chapter(course, "subtract")
    assert "brought up to date" in update(course, book)[0]
    assert "subtract" in (book / NAME).read_text("utf-8")
    assert update(course, book) == []


def test_a_run_alone_is_no_change_but_is_kept(course: CourseFolders, book: Path):
    update(course, book)
    notebook = nbformat.read(book / NAME, as_version=4)
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", name="stdout", text="mine")]
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, book / NAME)
    new_chapter(course, "subtract")
    update(course, book)
    assert names(book) == [NAME]
    assert "mine" in (book / ".course" / f"replaced_{NAME}").read_text("utf-8")


def test_a_changed_notebook_is_never_touched(course: CourseFolders, book: Path):
    update(course, book)
    mine = edit(book / NAME, "mine")
    assert update(course, book) == []
    new_chapter(course, "subtract")
    sentence = update(course, book)[0]
    assert "your changes" in sentence
    assert BESIDE in sentence
    assert (book / NAME).read_bytes() == mine
    assert "subtract" in (book / BESIDE).read_text("utf-8")
    assert update(course, book) == []

    theirs = edit(book / BESIDE, "mine too")
    new_chapter(course, "multiply")
    assert "00-new2_mini.ipynb" in update(course, book)[0]
    assert (book / NAME).read_bytes() == mine
    assert (book / BESIDE).read_bytes() == theirs


def test_an_untouched_new_version_makes_way_for_the_next(course: CourseFolders, book: Path):
    update(course, book)
    edit(book / NAME, "mine")
    for word in ("subtract", "multiply"):
        new_chapter(course, word)
        update(course, book)
    assert names(book) == [BESIDE, NAME]
    assert "multiply" in (book / BESIDE).read_text("utf-8")


def test_a_lost_record_or_a_broken_notebook_is_taken_for_the_learners(
    course: CourseFolders, book: Path
):
    update(course, book)
    (book / NAME).write_text("{ half saved")
    (book / ".course" / "delivered.json").write_text("nonsense")
    assert "your changes" in update(course, book)[0]
    assert (book / NAME).read_text() == "{ half saved"


def test_a_folder_that_is_a_file_is_refused(course: CourseFolders, book: Path):
    book.write_text("not a folder")
    with pytest.raises(UserError, match="--folder"):
        update(course, book)
    assert book.read_text() == "not a folder"
