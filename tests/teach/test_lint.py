"""The notebook lint: a good chapter passes, and each broken rule is found by name."""

import inspect

import nbformat
import pytest

from course_lib.paths import CourseFolders
from course_lib.teach.adopt import cell_text
from course_lib.teach.chapters import load_chapter
from course_lib.teach.lint import lint_chapter, lint_outputs
from course_lib.teach.measures import measure
from tests.mini_course import chapter_text

SKIP = 'slideshow={"slide_type": "skip"}'


def findings_for(course: CourseFolders, old: str, new: str) -> list[str]:
    """Return the findings of the mini chapter with one text replaced."""
    text = chapter_text()
    assert old in text
    path = course.chapters / "00_mini.py"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return lint_chapter(load_chapter(path))


def test_a_chapter_that_keeps_the_rules_has_no_findings(course: CourseFolders):
    assert lint_chapter(load_chapter(course.chapters / "00_mini.py")) == []


def test_measures_leave_solutions_and_speaker_notes_out(course: CourseFolders):
    m = measure(load_chapter(course.chapters / "00_mini.py"))
    assert (m.cells, m.code_cells, m.exercises, m.notes) == (35, 28, 3, 1)
    assert m.code_lines_median == 1
    assert m.checked_cells == 1 + 3 + 20
    text = chapter_text().replace("new_weight = weight -", "x = 1\n    new_weight = weight -", 1)
    (course.chapters / "00_mini.py").write_text(text, encoding="utf-8")
    assert measure(load_chapter(course.chapters / "00_mini.py")).code_lines_max == m.code_lines_max


BROKEN = {
    "too few cells": ('# %% id="00-fill0" ' + SKIP + "\nassert 0 + 1 == 1\n", "", "34 cells"),
    "no role": ('id="00-fill3" ' + SKIP, 'id="00-fill3"', "slide role None"),
    "unknown role": (
        'id="00-fill3" ' + SKIP,
        f'id="00-fill3" {SKIP}'.replace("skip", "big"),
        "'big'",
    ),
    "trailing semicolon": ("assert 3 + 1 == 4", "print(3);", "ends with ';'"),
    "bare name": ("assert 3 + 1 == 4", "values", "bare expression"),
    "bare call": ("assert 3 + 1 == 4", "values.copy()", "bare expression"),
    "wide line": ("assert 3 + 1 == 4", "assert 3  # " + "x" * 80, "92 characters"),
    "long cell": ("assert 3 + 1 == 4", "\n".join(f"x{n} = {n}" for n in range(26)), "26 lines"),
    "long code on a slide": (
        "mean = sum(values)",
        "\n".join(f"x{n} = {n}" for n in range(12)) + "\nmean = sum(values)",
        "15 lines of code on a slide",
    ),
    "second title": ("# ## Goals", "# # Goals", "no other, carries the title"),
    "check of another exercise": ('check("00.2", my_step_2)', 'check("00.1", my_step_2)', "00.2"),
    "check of another name": ('check("00.2", my_step_2)', 'check("00.2", my_step_1)', "my_step_2"),
    "no exercise in the header": (' exercise="00.2"', "", "holds a solution"),
    "an exercise of another chapter": ('exercise="00.2"', 'exercise="01.2"', "'01.2'"),
    "a picture by link": ("# - add two numbers", "# ![a](images/a.png)", "'images/a.png'"),
    "invalid Python": ("assert 3 + 1 == 4", "assert 3 +", "no valid Python"),
    "an answer without my_": ("def my_step_2(", "def step_2(", "named my_…"),
    "a mirror of nothing": (
        'id="00-fill3" ' + SKIP,
        f'id="00-fill3" {SKIP} tags=["mirrors:course_lib.errors.Nothing"]',
        "defines no 'Nothing'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found(course: CourseFolders, name: str):
    old, new, words = BROKEN[name]
    assert any(words in finding for finding in findings_for(course, old, new))


def test_too_few_checks_are_found(course: CourseFolders):
    text = chapter_text().replace("assert ", "x = ")
    path = course.chapters / "00_mini.py"
    path.write_text(text, encoding="utf-8")
    assert any("3 of 28 code cells" in f for f in lint_chapter(load_chapter(path)))


def test_a_mirror_is_compared_by_its_syntax_tree(course: CourseFolders):
    header = f'id="00-fill3" {SKIP}'
    tagged = f'{header} tags=["mirrors:course_lib.teach.adopt.cell_text"]'
    source = inspect.getsource(cell_text)
    text = chapter_text().replace(header, tagged, 1)
    path = course.chapters / "00_mini.py"
    for body, right in [
        (source.replace('"""Return', '"""In other words, return'), True),
        (source.replace('rstrip("\\n")', "rstrip()"), False),
    ]:
        assert body != source
        path.write_text(text.replace("assert 3 + 1 == 4", body, 1), encoding="utf-8")
        differs = [finding for finding in lint_chapter(load_chapter(path)) if "mirrors:" in finding]
        assert (differs == []) is right


OUTPUTS = {
    "an object's repr": ({"text/plain": "<Axes: title={'center': 'x'}>"}, "repr"),
    "an address": ({"text/plain": "[<f at 0x7f3a>]"}, "repr"),
    "a path": ({"text/plain": "'/home/me/x'"}, "path"),
    "a widget without a picture": (
        {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "Box()"},
        "static picture",
    ),
}


def notebook_with(output: dict) -> nbformat.NotebookNode:
    """Return a notebook of one executed cell with this output."""
    cell = nbformat.v4.new_code_cell("x", id="c", execution_count=1, outputs=[output])
    return nbformat.v4.new_notebook(cells=[cell])


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_changes_between_runs_is_found(name: str):
    data, words = OUTPUTS[name]
    notebook = notebook_with(nbformat.v4.new_output("display_data", data))
    assert any(words in finding for finding in lint_outputs(notebook))


def test_stderr_errors_and_cells_never_executed_are_found():
    warning = nbformat.v4.new_output("stream", name="stderr", text="Warning: x")
    assert "stderr" in lint_outputs(notebook_with(warning))[0]
    error = nbformat.v4.new_output("error", ename="NameError", evalue="x", traceback=[])
    assert "NameError" in lint_outputs(notebook_with(error))[0]
    never = notebook_with(nbformat.v4.new_output("stream", name="stdout", text="1"))
    never.cells[0].execution_count = None
    assert "never executed" in lint_outputs(never)[0]


def test_a_figure_with_its_text_is_fine():
    data = {"image/png": "aaaa", "text/plain": "<Figure size 640x480 with 1 Axes>"}
    assert lint_outputs(notebook_with(nbformat.v4.new_output("display_data", data))) == []
