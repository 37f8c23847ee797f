"""Hints, solutions, progress, and `course check` on a learner's folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from course_lib.cli import app
from course_lib.errors import UserError
from course_lib.teach.checking import progress
from course_lib.teach.checking.answers import answers_in, check_folder
from course_lib.teach.checking.prelude import prelude_for
from course_lib.teach.checking.source import blanks
from course_lib.teach.exercises import check, hint, solution

RIGHT_ORDER = ["data", "forward", "loss", "backward", "sync", "update"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    progress.forget()
    return tmp_path


def code(source: str, **metadata: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source.splitlines(True), "metadata": metadata}


def write_notebook(folder: Path, cells: list[dict[str, Any]], name: str = "00_one.ipynb") -> None:
    (folder / name).write_text(json.dumps({"cells": cells, "nbformat": 4}), encoding="utf-8")


def a_notebook(order: list[str]) -> list[dict[str, Any]]:
    """Return cells with one right, one wrong or right, and one blank answer."""
    update = "def my_update(p, g, rate):\n    return torch.sub(p, rate * g)"
    return [
        {"cell_type": "markdown", "source": "# Text", "metadata": {}},
        code("import torch\nraise SystemExit('a cell that must not run')"),
        code("%matplotlib inline\nboom = open('/no/such/file')"),
        code(update, exercise="00.1"),
        code(blanks()["00.2"].stub, exercise="00.2"),
        code(f"my_order = {order}", exercise="00.3"),
    ]


def test_hints_come_one_at_a_time() -> None:
    first, second, third = (repr(hint("00.1")) for _ in range(3))
    assert first.count("hint") == 1
    assert second.startswith(first)
    assert 'solution("00.1")' in third
    assert repr(hint("00.1")) == third
    assert "00.1" in repr(hint("00.99"))


def test_a_solution_comes_after_an_attempt_not_after_a_blank() -> None:
    assert "Try it yourself first" in repr(solution("00.3"))
    check("00.3", [...])
    assert "Try it yourself first" in repr(solution("00.3"))
    check("00.3", RIGHT_ORDER[::-1])
    assert repr(solution("00.3")) == blanks()["00.3"].solution.strip()
    assert "SOLUTION" not in repr(solution("00.3"))
    assert "<pre" in solution("00.3")._repr_html_()
    assert "00.1" in repr(solution("00.99"))


def test_nothing_is_written_outside_a_workbook(tmp_path: Path) -> None:
    check("00.3", RIGHT_ORDER)
    hint("00.3")
    assert list(tmp_path.iterdir()) == []


def test_progress_is_kept_in_a_workbook_and_read_by_the_next_kernel(tmp_path: Path) -> None:
    progress.start(tmp_path)
    check("00.3", RIGHT_ORDER[::-1])
    check("00.3", RIGHT_ORDER)
    check("00.3", RIGHT_ORDER[::-1])
    hint("00.3")
    progress.forget()
    assert progress.of("00.3") == progress.Progress(attempts=3, passed=True, hints=1)
    assert repr(solution("00.3")).startswith("#")
    assert [path.name for path in tmp_path.iterdir()] == [progress.FILE_NAME]
    progress.start(tmp_path)
    assert progress.of("00.3").passed, "starting again keeps what there is"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"exercises": 3}', '{"exercises": {"00.1": 1}}'])
def test_a_broken_progress_file_is_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / progress.FILE_NAME).write_text(text)
    assert not check("00.3", RIGHT_ORDER[::-1]).passed
    assert progress.read(tmp_path / progress.FILE_NAME)["00.3"].attempts == 1


def test_a_lock_left_by_a_dead_kernel_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LOCK_WAIT_S", 0.05)
    progress.start(tmp_path)
    (tmp_path / f"{progress.FILE_NAME}.lock").touch()
    check("00.3", RIGHT_ORDER)
    assert progress.read(tmp_path / progress.FILE_NAME)["00.3"].passed


def test_a_prelude_defines_what_the_answer_uses_and_runs_nothing() -> None:
    earlier = [
        "import torch, math\nfrom pathlib import Path",
        "%load_ext course_lib\nRATE = 0.1\nmodel = train_for_an_hour()",
        "%%ranks 4\nx = 1",
        "def outer(x):\n    return inner(x) * RATE",
        "def inner(x):\n    return math.exp(x)",
        "this is not python",
        "def unused():\n    return Path('.')",
    ]
    prelude = prelude_for("def my_f(x):\n    return outer(x)", earlier)
    assert "def outer" in prelude
    assert "def inner" in prelude
    assert "RATE = 0.1" in prelude
    for left_out in ("train_for_an_hour", "unused", "Path", "%"):
        assert left_out not in prelude
    namespace: dict[str, Any] = {}
    exec(prelude, namespace)
    assert namespace["outer"](0.0) == 0.1


def test_answers_are_found_by_id_or_by_the_check_that_follows() -> None:
    found = answers_in(
        [
            code("def my_update(p, g, rate):\n    return p"),
            code('check("00.1", my_update)'),
            code("my_order = [1]", exercise="00.3"),
            code("my_order = [2]", exercise="00.3"),
        ]
    )
    assert found["00.1"].name == "my_update"
    assert found["00.1"].source.endswith("return p")
    assert found["00.3"].source == "my_order = [2]"


def test_a_folder_is_checked_without_running_its_notebooks(tmp_path: Path) -> None:
    write_notebook(tmp_path, a_notebook(RIGHT_ORDER[::-1]))
    results = {result.exercise_id: result.status for result in check_folder(tmp_path)}
    assert results == {"00.1": "passed", "00.2": "blank", "00.3": "failed"}


def test_course_check_prints_failures_and_exits_with_1_for_a_wrong_answer(tmp_path: Path) -> None:
    progress.start(tmp_path)
    write_notebook(tmp_path, a_notebook(RIGHT_ORDER[::-1]))
    result = CliRunner().invoke(app, ["check", "00", "--folder", str(tmp_path)])
    assert result.exit_code == 1
    assert "00.1 Compute an update: passed" in result.output
    assert "✗ wrong" in result.output
    assert "1 passed, 1 not right yet, 1 not attempted yet" in result.output
    shown = CliRunner().invoke(app, ["progress", "--folder", str(tmp_path)])
    assert "1 of " in shown.output
    assert shown.exit_code == 0


def test_course_check_and_progress_speak_json(tmp_path: Path) -> None:
    progress.start(tmp_path)
    write_notebook(tmp_path, a_notebook(RIGHT_ORDER))
    result = CliRunner().invoke(app, ["check", "--json"])
    assert result.exit_code == 0
    row = json.loads(result.output)
    assert (row["passed"], row["failed"], row["blank"]) == (2, 0, 1)
    done = json.loads(CliRunner().invoke(app, ["progress", "--json"]).output)
    assert done["passed"] == 2
    assert done["exercises"][0] == {
        "exercise": "00.1",
        "status": "passed",
        "attempts": 1,
        "hints": 0,
    }


def test_bad_folders_are_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="course lab"):
        list(check_folder(tmp_path))
    write_notebook(tmp_path, [])
    with pytest.raises(UserError, match=r"no chapter 08 in .*there are 00"):
        list(check_folder(tmp_path, ["8"]))
    (tmp_path / "00_one.ipynb").write_text("{")
    with pytest.raises(UserError, match=r"00_one\.ipynb is not a notebook"):
        list(check_folder(tmp_path))
    refused = CliRunner().invoke(app, ["progress"])
    assert isinstance(refused.exception, UserError)
