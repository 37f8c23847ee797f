"""`course adopt`: edits come home, and what the notebook doesn't hold stays as it was."""

from collections.abc import Callable

import nbformat
import pytest

from course_lib.errors import UserError
from course_lib.paths import CourseFolders
from course_lib.teach.adopt import adopt
from course_lib.teach.build import build, check, solved_notebook
from course_lib.teach.chapters import load_chapter
from course_lib.teach.student import notebook_text, student_edition
from tests.mini_course import chapter_text


@pytest.fixture
def edit(course: CourseFolders):
    """Return a function that edits the solved notebook and adopts it."""
    source = course.chapters / "00_mini.py"
    path = course.notebooks / "00_mini.ipynb"
    path.write_text(notebook_text(solved_notebook(load_chapter(source))), "utf-8")

    def change(edit_cells: Callable[[list], None]):
        notebook = nbformat.read(path, as_version=4)
        edit_cells(notebook.cells)
        notebook.metadata["language_info"] = {"name": "python"}  # as JupyterLab saves it
        nbformat.write(notebook, path)
        return adopt(path, course), source.read_text("utf-8")

    return change


def by_id(cells: list, name: str):
    """Return the cell of that id."""
    return next(cell for cell in cells if cell.id == name)


def test_nothing_changed_leaves_the_chapter_to_the_byte(edit):
    result, text = edit(lambda cells: None)
    assert text == chapter_text()
    assert (result.changed, result.new, result.removed, result.moved) == ([], [], [], False)


def test_an_edited_cell_comes_home_alone(edit):
    def change(cells):
        by_id(cells, "00-mean").source += "\nprint('梯度')"

    result, text = edit(change)
    assert result.changed == ["00-mean"]
    assert text == chapter_text().replace("print(mean)\n", "print(mean)\nprint('梯度')\n")


def test_an_edited_solution_keeps_its_stub_and_exercise(edit):
    def change(cells):
        cell = by_id(cells, "00-ex2")
        cell.source = cell.source.replace("weight - rate", "weight + -rate")

    result, text = edit(change)
    assert result.changed == ["00-ex2"]
    want = chapter_text().replace("weight - rate * gradient * 2", "weight + -rate * gradient * 2")
    # Another cell's layout may change only in how many empty lines surround a function.
    assert [line for line in text.split("\n") if line] == [
        line for line in want.split("\n") if line
    ]


def test_a_new_cell_gets_an_id_and_a_role(edit):
    def change(cells):
        cells.insert(4, nbformat.v4.new_markdown_cell("A new *thought*\n\nin two paragraphs"))

    result, text = edit(change)
    assert result.new == ["00-a-new-thought"]
    assert (
        '# %% [markdown] id="00-a-new-thought" slideshow={"slide_type": "skip"}\n'
        "# A new *thought*\n#\n# in two paragraphs\n" in text
    )


def test_tags_and_roles_set_in_jupyterlab_come_home(edit):
    def change(cells):
        cell = by_id(cells, "00-fill1")
        cell.metadata["tags"] = ["nbval-ignore-output"]
        cell.metadata["slideshow"] = {"slide_type": "slide"}
        cell.metadata["collapsed"] = False

    _, text = edit(change)
    assert (
        '# %% id="00-fill1" slideshow={"slide_type": "slide"} tags=["nbval-ignore-output"]\n'
        in text
    )


def test_removed_and_moved_cells_are_told(edit):
    def change(cells):
        cells.remove(by_id(cells, "00-fill3"))
        cells.append(cells.pop(6))

    result, text = edit(change)
    assert result.removed == ["00-fill3"]
    assert result.moved
    assert "00-fill3" not in text
    assert text.rstrip().endswith("print(mean)")


def test_after_adopt_and_build_all_agrees(edit, course: CourseFolders):
    edit(lambda cells: by_id(cells, "00-goals").__setitem__("source", "## Goals\n\n- one\n- two"))
    build(course)
    assert check(course) == []


def test_a_student_edition_is_refused_and_nothing_is_written(course: CourseFolders):
    chapter = load_chapter(course.chapters / "00_mini.py")
    path = course.notebooks / "00_mini.ipynb"
    path.write_text(notebook_text(student_edition(chapter)), "utf-8")
    with pytest.raises(UserError, match="student edition"):
        adopt(path, course)
    assert chapter.path.read_text("utf-8") == chapter_text()


def test_a_solution_without_its_marks_is_refused(edit, course: CourseFolders):
    def change(cells):
        cell = by_id(cells, "00-ex1")
        cell.source = cell.source.replace("### END SOLUTION", "### BEGIN SOLUTION")

    with pytest.raises(UserError, match="00-ex1"):
        edit(change)
    assert (course.chapters / "00_mini.py").read_text("utf-8") == chapter_text()


def test_what_is_no_notebook_of_a_chapter_is_refused(course: CourseFolders):
    with pytest.raises(UserError, match="no notebook"):
        adopt(course.notebooks / "nothing.ipynb", course)
    broken = course.notebooks / "broken.ipynb"
    broken.write_text("{", "utf-8")
    with pytest.raises(UserError, match="can be read"):
        adopt(broken, course)
    stranger = course.notebooks / "09_stranger.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), stranger)
    with pytest.raises(UserError, match="there is no 09_stranger"):
        adopt(stranger, course)
