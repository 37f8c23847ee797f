"""The student edition: no output, no notes, no line of a solution, wherever it may hide."""

import pytest

from course_lib.errors import UserError
from course_lib.paths import CourseFolders
from course_lib.teach.chapters import load_chapter
from course_lib.teach.student import leftovers, student_edition
from tests.mini_course import chapter_text


def test_solutions_and_notes_are_gone(course: CourseFolders):
    chapter = load_chapter(course.chapters / "00_mini.py")
    student = student_edition(chapter)
    text = "\n".join(cell.source for cell in student.cells)
    assert "Say hello" not in text
    assert "new_weight = ..." in text
    assert "weight - rate * gradient" not in text
    assert "###" not in text
    assert [c.id for c in student.cells] == [
        c.id for c in chapter.notebook.cells if c.id != "00-title-notes"
    ]


def test_a_solution_given_away_in_another_cell_is_refused(course: CourseFolders):
    leak = "new_weight = weight - rate * gradient * 2"
    path = course.chapters / "00_mini.py"
    path.write_text(
        chapter_text().replace("# - add two numbers", f"# - add\n#\n#       {leak}"), "utf-8"
    )
    with pytest.raises(UserError, match="still shows the line"):
        student_edition(load_chapter(path))


def test_a_stored_output_is_a_leftover(course: CourseFolders):
    chapter = load_chapter(course.chapters / "00_mini.py")
    student = student_edition(chapter)
    cell = next(c for c in student.cells if c.cell_type == "code")
    cell.outputs = [{"output_type": "stream", "name": "stdout", "text": "100"}]
    assert leftovers(chapter, student) == [f"an output in cell {cell.id}"]


def test_a_cell_tagged_solution_only_is_dropped(course: CourseFolders):
    path = course.chapters / "00_mini.py"
    header = 'id="00-fill4" slideshow={"slide_type": "skip"}'
    path.write_text(chapter_text().replace(header, header + ' tags=["solution-only"]'), "utf-8")
    ids = [cell.id for cell in student_edition(load_chapter(path)).cells]
    assert "00-fill4" not in ids
    assert "00-fill3" in ids
