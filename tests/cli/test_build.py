"""`course build`: stored outputs, equal rebuilds, and a check that finds every disagreement."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from course_lib.errors import UserError
from course_lib.paths import CourseFolders
from course_lib.teach.build import build, check
from course_lib.teach.chapters import chapter_paths, load_chapter
from course_lib.teach.execute import execute
from tests.mini_course import chapter_text


def run_course(course: CourseFolders, *arguments: str) -> subprocess.CompletedProcess:
    """Run the command line on this course."""
    code = "from course_lib.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "COURSE_HOME": str(course.root)},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_build_executes_stores_and_rebuilds_to_the_byte(course: CourseFolders):
    first = run_course(course, "build", "00")
    assert first.returncode == 0, first.stderr
    path = course.notebooks / "00_mini.ipynb"
    stored = path.read_bytes()
    notebook = nbformat.read(path, as_version=4)
    by_id = {cell.id: cell for cell in notebook.cells}
    assert by_id["00-mean"].outputs[0].text == "25.0\n"
    assert by_id["00-check1"].outputs[0].data["text/plain"] == "00.1: right"
    assert "language_info" not in notebook.metadata
    assert "### STUB" not in path.read_text(encoding="utf-8")
    assert (course.student / "00_mini.ipynb").is_file()
    again = run_course(course, "build")
    assert again.returncode == 0, again.stderr
    assert path.read_bytes() == stored
    checked = run_course(course, "build", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_blanks_are_recorded(course: CourseFolders):
    build(course)
    blanks = json.loads(course.blanks.read_text(encoding="utf-8"))
    assert list(blanks) == ["00.1", "00.2", "00.3"]
    assert blanks["00.1"]["name"] == "my_step_1"
    solved: dict = {}
    exec(blanks["00.1"]["solution"], solved)
    assert solved["my_step_1"](0.8, 0.01, 0.1) == pytest.approx(0.799)
    blank: dict = {}
    exec(blanks["00.1"]["stub"], blank)
    assert blank["my_step_1"](0.8, 0.01, 0.1) is ...


def test_with_every_blank_blank_the_student_edition_runs(course: CourseFolders):
    build(course)
    notebook = nbformat.read(course.student / "00_mini.ipynb", as_version=4)
    execute(notebook, course.notebooks)
    outputs = [str(c.outputs) for c in notebook.cells if c.id.startswith("00-check")]
    assert len(outputs) == 3
    assert all("not attempted yet" in output for output in outputs)


def test_check_finds_every_disagreement(course: CourseFolders):
    assert "missing" in " ".join(check(course))
    build(course)
    assert check(course) == []
    chapter, notebook = course.chapters / "00_mini.py", course.notebooks / "00_mini.ipynb"
    good_chapter, good_notebook = chapter.read_text("utf-8"), notebook.read_text("utf-8")

    chapter.write_text(good_chapter.replace("print(mean)", "print(mean + 1)"), "utf-8")
    assert any("source of cell 00-mean" in p for p in check(course))
    chapter.write_text(
        good_chapter.replace("STUB: new_weight = ...", "STUB: new_weight = 0"), "utf-8"
    )
    assert any("blanks.json" in p for p in check(course))
    chapter.write_text(good_chapter, "utf-8")

    notebook.write_text(
        good_notebook.replace('"slide_type": "subslide"', '"slide_type": "slide"', 1)
    )
    assert any("metadata of cell 00-goals" in p for p in check(course))
    notebook.write_text(good_notebook.replace('"execution_count": 1,', '"execution_count": null,'))
    assert any("never executed" in p for p in check(course))
    notebook.write_text(good_notebook.replace('"id": "00-fill7"', '"id": "00-other"'))
    assert any("other cells" in p for p in check(course))
    notebook.write_text(good_notebook)

    (course.notebooks / "07_old.ipynb").write_text(good_notebook)
    assert any("07_old.ipynb has no chapter" in p for p in check(course))


def test_a_cell_that_fails_is_named_and_nothing_is_written(course: CourseFolders):
    path = course.chapters / "00_mini.py"
    path.write_text(chapter_text().replace("assert mean == 25", "assert mean == 26, 'no'"), "utf-8")
    result = run_course(course, "build")
    assert result.returncode == 2
    assert "Cell 00-mean failed: AssertionError: no" in result.stderr
    assert not (course.notebooks / "00_mini.ipynb").exists()


def test_timings_stay_until_fresh_ones_are_asked_for(course: CourseFolders):
    header = 'id="00-fill5" slideshow={"slide_type": "skip"}'
    text = chapter_text().replace(header, header + ' tags=["nbval-ignore-output"]')
    text = text.replace("assert 5 + 1 == 6", "import time\n\nprint(time.perf_counter())")
    (course.chapters / "00_mini.py").write_text(text, "utf-8")
    path = course.notebooks / "00_mini.ipynb"
    build(course)
    first = path.read_bytes()
    build(course)
    assert path.read_bytes() == first
    build(course, fresh=True)
    assert path.read_bytes() != first


@pytest.mark.parametrize(
    ("replace", "by", "words"),
    [
        ('id="00-mean" ', "", "cell 7"),
        ('id="00-mean" ', 'id="00 mean" ', "'00 mean'"),
        ('id="00-mean" ', 'id="00-idea" ', "two cells have the id '00-idea'"),
    ],
)
def test_ids_that_are_missing_unusable_or_doubled_are_refused(
    course: CourseFolders, replace: str, by: str, words: str
):
    path = course.chapters / "00_mini.py"
    path.write_text(chapter_text().replace(replace, by), "utf-8")
    with pytest.raises(UserError, match=words):
        load_chapter(path)


def test_an_unknown_chapter_is_refused_with_the_known_ones(course: CourseFolders):
    with pytest.raises(UserError, match="no chapter '42'; there are 00"):
        chapter_paths(course.chapters, ["42"])
    result = run_course(course, "build", "42")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1


def test_one_chapter_is_built_while_another_is_half_written(course: CourseFolders):
    build(course)
    (course.chapters / "01_draft.py").write_text("# %% [markdown]\n# no id yet\n", "utf-8")
    build(course, ["00"])
    blanks = json.loads(course.blanks.read_text("utf-8"))
    course.blanks.write_text(json.dumps(blanks | {"07.1": blanks["00.1"]}), "utf-8")
    build(course, ["00"])
    assert json.loads(course.blanks.read_text("utf-8")) == blanks
