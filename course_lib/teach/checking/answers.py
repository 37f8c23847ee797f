"""Finds the answers in notebooks: exercise cells by id, with what they need of earlier cells."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_lib.errors import UserError
from course_lib.teach.checking.checker import check_source
from course_lib.teach.checking.judge import SourceAnswer
from course_lib.teach.checking.prelude import prelude_for
from course_lib.teach.checking.result import CheckResult
from course_lib.teach.checking.source import blanks
from course_lib.teach.exercises import registry

_CHAPTER_FILE = re.compile(r"(\d\d)_.*\.ipynb")


def answers_in(cells: list[dict[str, Any]]) -> dict[str, SourceAnswer]:
    """Return the answer to each exercise in a notebook's cells; of doubles the last one.

    Args:
        cells: as they stand in the notebook's JSON; a cell is an exercise's by its metadata, or
            where that was lost by the `check("08.3", my_...)` that follows it.
    """
    code = [cell for cell in cells if cell.get("cell_type") == "code"]
    sources = [_text(cell) for cell in code]
    found: dict[str, SourceAnswer] = {}
    for index, (cell, source) in enumerate(zip(code, sources, strict=True)):
        exercise = cell.get("metadata", {}).get("exercise")
        if exercise is not None:
            found[exercise] = _answer(exercise, sources, index)
            continue
        for called, name in _checks(source):
            definers = [i for i in range(index) if _defines(sources[i], name)]
            if definers and called not in found:
                found[called] = _answer(called, sources, definers[-1], name)
    return found


def check_folder(folder: Path, chapters: list[str] | None = None) -> Iterator[CheckResult]:
    """Check every exercise in a folder's notebooks, chapter by chapter.

    Args:
        folder: a learner's workbook.
        chapters: numbers such as "08"; all where None or empty.

    Yields:
        A result for each exercise found in a notebook, in the notebooks' order.

    Raises:
        UserError: there is no notebook of the course in the folder, or none of a chapter asked for,
            or one can't be read.
    """
    for path in _notebooks(folder, chapters or []):
        for exercise_id, answer in answers_in(_cells(path)).items():
            exercise = registry.find(exercise_id)
            if exercise is not None:
                yield check_source(exercise, answer)


def _notebooks(folder: Path, chapters: list[str]) -> list[Path]:
    found = sorted(path for path in folder.glob("*.ipynb") if _CHAPTER_FILE.fullmatch(path.name))
    if not found:
        raise UserError(
            f"There is no notebook of the course in {folder}: run `course check` in your "
            "workbook's folder (`course lab` makes one), or name it with --folder."
        )
    wanted = {chapter.zfill(2) for chapter in chapters}
    numbers = [path.name[:2] for path in found]
    missing = sorted(wanted - set(numbers))
    if missing:
        here = ", ".join(dict.fromkeys(numbers))
        raise UserError(f"There is no chapter {missing[0]} in {folder}; there are {here}.")
    return [path for path in found if not wanted or path.name[:2] in wanted]


def _cells(path: Path) -> list[dict[str, Any]]:
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path.name} is not a notebook that can be read ({error}); open it in JupyterLab and "
            "save it, or take it out of the folder."
        ) from None
    return list(cells)


def _answer(exercise_id: str, sources: list[str], index: int, name: str = "") -> SourceAnswer:
    blank = blanks().get(exercise_id)
    name = name or (blank.name if blank else "") or _first_answer(sources[index])
    return SourceAnswer(prelude_for(sources[index], sources[:index]), sources[index], name)


def _first_answer(source: str) -> str:
    match = re.search(r"^(?:def|class)?\s*(my_\w+)", source, re.MULTILINE)
    return match.group(1) if match else "my_answer"


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)


def _checks(source: str) -> list[tuple[str, str]]:
    """Return (exercise id, name of the answer) for each `check("08.3", my_...)` in a cell."""
    return re.findall(r"""\bcheck\(\s*["'](\d\d\.\d+)["']\s*,\s*(\w+)\s*\)""", source)


def _defines(source: str, name: str) -> bool:
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return False
    return any(
        getattr(statement, "name", "") == name
        or any(
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name
            for node in ast.walk(statement)
            if isinstance(statement, ast.Assign | ast.AnnAssign)
        )
        for statement in body
    )
