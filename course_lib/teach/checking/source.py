"""The text behind an answer: its cell, the recorded stub and solution, the cells before it.

A blank is told by comparing syntax trees with the recorded stub: a body of `...` returns None,
which is the right answer of a function that works in place.
"""

import ast
import inspect
import json
import linecache
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from course_lib.paths import course_folders

_NOTHING: tuple[list[str], ...] = ([], ["Expr(value=Constant(value=Ellipsis))"], ["Pass()"])


@dataclass(frozen=True)
class Blank:
    """What the chapter records about an exercise's cell.

    Args:
        name: the name of the answer, `my_...`.
        stub: the cell as learners get it.
        solution: the cell solved.
    """

    name: str
    stub: str
    solution: str


def blanks() -> dict[str, Blank]:
    """Return every exercise cell by id, as `course build` recorded it; {} without a record."""
    path = course_folders().blanks
    if not path.is_file():
        return {}
    return _read_blanks(str(path), path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read_blanks(path: str, _changed_ns: int) -> dict[str, Blank]:
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    return {id: Blank(row["name"], row["stub"], row["solution"]) for id, row in rows.items()}


def is_blank(answer: Any, blank: Blank | None) -> bool:
    """Tell whether an answer is still what the learner was given.

    Args:
        answer: a function, a class or a value.
        blank: the recorded stub; without one, only `...` is a blank.
    """
    if callable(answer):
        return is_blank_definition(definition_of(answer), blank)
    items = answer if isinstance(answer, list | tuple) else [answer]
    return len(items) > 0 and all(item is Ellipsis for item in items)


def is_blank_source(source: str, name: str, blank: Blank | None) -> bool:
    """Tell whether a cell's text is still what the learner was given.

    Args:
        source: the cell.
        name: the answer's name.
        blank: the recorded stub; without one, only `...` is a blank.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    found = _find(tree, name)
    if found is None or isinstance(found, ast.FunctionDef | ast.ClassDef):
        return is_blank_definition(found, blank)
    if blank is not None:
        stub = _find(ast.parse(blank.stub), name)
        if stub is not None and ast.dump(stub) == ast.dump(found):
            return True
    return ast.unparse(found).partition("=")[2].strip() in ("...", "[...]", "(...,)")


def is_blank_definition(found: ast.AST | None, blank: Blank | None) -> bool:
    """Tell whether a definition's tree equals the stub's, docstrings aside, or is only `...`."""
    if found is None:
        return False
    body = _bare(found)
    if isinstance(found, ast.FunctionDef) and body in _NOTHING:
        return True
    stub = _find(ast.parse(blank.stub), blank.name) if blank else None
    return stub is not None and type(stub) is type(found) and body == _bare(stub)


def definition_of(answer: Any) -> ast.FunctionDef | ast.ClassDef | None:
    """Return the syntax tree of a function's or class's definition; None without its text."""
    source, _ = cell_of(answer)
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    name = getattr(inspect.unwrap(answer), "__name__", "")
    found = _find(tree, name)
    return found if isinstance(found, ast.FunctionDef | ast.ClassDef) else None


def cell_of(answer: Any) -> tuple[str, str]:
    """Return (text of the cell or file that defines `answer`, its file name), or ("", "")."""
    file = code_file(answer)
    return ("".join(linecache.getlines(file)), file) if file else ("", "")


def code_file(answer: Any) -> str:
    """Return the file name in the code of a function or of a class's methods, or ''."""
    answer = inspect.unwrap(answer) if callable(answer) else answer
    candidates = [answer, *(vars(answer).values() if inspect.isclass(answer) else ())]
    for candidate in candidates:
        code = getattr(getattr(candidate, "__func__", candidate), "__code__", None)
        if code is not None and getattr(candidate, "__module__", "") == answer.__module__:
            return str(code.co_filename)
    return ""


def describe_line(line: tuple[str, int] | None, cell_file: str, cell: str) -> str:
    """Return "line 3 of your cell: `...`" for a place in a learner's code, '' for none.

    Args:
        line: (file name, line number) or None.
        cell_file: the file name of the answer's cell.
        cell: the text of that cell.
    """
    if line is None:
        return ""
    file, number = line
    if file == cell_file:
        lines, where = cell.splitlines(), "your cell"
    else:
        lines, where = [text.rstrip("\n") for text in linecache.getlines(file)], "an earlier cell"
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"line {number} of {where}" + (f": `{text}`" if text else "")


def _find(tree: ast.Module, name: str) -> ast.stmt | None:
    """Return the last top-level statement that defines or assigns `name`."""
    found: ast.stmt | None = None
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.name == name:
            found = statement
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            found = statement
    return found


def _bare(definition: ast.AST) -> list[str]:
    """Return the dumps of a definition's statements, docstrings (of methods too) left out."""
    body = list(getattr(definition, "body", []))
    if body and ast.get_docstring(definition) is not None:  # type: ignore[arg-type]
        body = body[1:]
    dumped = []
    for node in body:
        inner = isinstance(node, ast.FunctionDef | ast.ClassDef)
        dumped.append(f"{node.name}: {_bare(node)}" if inner else ast.dump(node))  # type: ignore[attr-defined]
    return dumped
