"""Exercises' cells: one source holds the solution and the stub; two editions come out of it.

    def my_update(weight, gradient, rate):
        ### BEGIN SOLUTION
        ### STUB: new_weight = ...
        new_weight = weight - rate * gradient
        ### END SOLUTION
        return new_weight

The solved edition drops the `### STUB:` lines; the student edition keeps only what follows them.
The two outer marks are nbgrader's, so that an institution can add it.
"""

import ast
import re
from pathlib import Path

from nbformat import NotebookNode

from course_lib.errors import UserError
from course_lib.teach.chapters import Chapter

BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
STUB_LINE = re.compile(r"^(\s*)### STUB:(?: (.*))?$")
ANSWER_PREFIX = "my_"
DEFAULT_STUB = "..."


def has_blank(source: str) -> bool:
    """Tell whether the cell holds a solution."""
    return BEGIN in source


def regions(source: str) -> list[tuple[int, int]]:
    """Return (line of BEGIN, line of END) for each solution in the cell, counted from 0.

    Raises:
        UserError: if the marks don't pair up, or a stub line stands outside them.
    """
    found, begin = [], None
    for number, line in enumerate(source.split("\n")):
        if BEGIN in line:
            if begin is not None:
                raise UserError(f"A second {BEGIN!r} comes before the first one's {END!r}.")
            begin = number
        elif END in line:
            if begin is None:
                raise UserError(f"{END!r} comes without a {BEGIN!r} before it.")
            found.append((begin, number))
            begin = None
        elif begin is None and STUB_LINE.match(line):
            raise UserError(f"{line.strip()!r} stands outside {BEGIN!r} and {END!r}.")
    if begin is not None:
        raise UserError(f"{BEGIN!r} has no {END!r} after it.")
    return found


def solved_source(source: str) -> str:
    """Return the cell as the solved notebook shows it: stub lines dropped, marks kept."""
    return "\n".join(line for line in source.split("\n") if not STUB_LINE.match(line))


def unmarked_solution(source: str) -> str:
    """Return the solved cell without the marks: what `solution("00.1")` shows."""
    lines = solved_source(source).split("\n")
    return "\n".join(line for line in lines if BEGIN not in line and END not in line)


def stub_source(source: str) -> str:
    """Return the cell as learners get it: each solution gives way to its stub (`...` if none)."""
    lines, out, last = source.split("\n"), [], 0
    for begin, end in regions(source):
        out += lines[last:begin]
        stub = [stub for line in lines[begin + 1 : end] if (stub := _stub_of(line)) is not None]
        indent = re.match(r"\s*", lines[begin])
        out += stub or [(indent[0] if indent else "") + DEFAULT_STUB]
        last = end + 1
    return "\n".join(out + lines[last:])


def _stub_of(line: str) -> str | None:
    match = STUB_LINE.match(line)
    return None if match is None else (match[1] + (match[2] or "")).rstrip()


def restore_stubs(solved: str, original: str) -> str:
    """Put the stub lines of `original` back into an edited solved cell, solution by solution.

    Raises:
        UserError: if the number of solutions has changed, so that no one can tell which is whose.
    """
    lines, old_lines = solved.split("\n"), original.split("\n")
    new, old = regions(solved), regions(original)
    if len(new) != len(old):
        raise UserError(
            f"The cell has {len(new)} solutions and its chapter {len(old)}; "
            f"keep each {BEGIN!r} and {END!r}, or edit the chapter itself."
        )
    for (begin, _), (old_begin, old_end) in reversed(list(zip(new, old, strict=True))):
        stubs = [line for line in old_lines[old_begin + 1 : old_end] if STUB_LINE.match(line)]
        lines[begin + 1 : begin + 1] = stubs
    return "\n".join(lines)


def answer_name(cell: NotebookNode) -> str:
    """Return the name that the exercise asks for: the first `my_…` that the cell defines.

    Raises:
        UserError: if it defines none.
    """
    for node in ast.parse(solved_source(cell.source)).body:
        for name in _names_bound(node):
            if name.startswith(ANSWER_PREFIX):
                return name
    raise UserError(f"The exercise in cell {cell.id} defines no function or variable named my_….")


def _names_bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [t.id for t in targets if isinstance(t, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def exercise_cells(chapter: Chapter) -> dict[str, NotebookNode]:
    """Return the chapter's exercise cells by exercise id.

    Raises:
        UserError: if an id is used twice or is not of this chapter, or a cell holds a solution
            without an `exercise` in its header, or an exercise without a solution.
    """
    found: dict[str, NotebookNode] = {}
    for cell in chapter.notebook.cells:
        exercise = cell.metadata.get("exercise")
        if exercise is None and not (cell.cell_type == "code" and has_blank(cell.source)):
            continue
        where = f"{chapter.path.name}: cell {cell.id}"
        if exercise is None:
            raise UserError(f'{where} holds a solution but no exercise="…" in its header.')
        if not re.fullmatch(rf"{chapter.number}\.\d+", str(exercise)):
            raise UserError(
                f"{where} has the exercise id {exercise!r}; say {chapter.number}.1, .2, …"
            )
        if exercise in found:
            raise UserError(f"{where} repeats the exercise id {exercise!r}.")
        if not has_blank(cell.source):
            raise UserError(f"{where} is exercise {exercise} but has no {BEGIN!r}.")
        found[exercise] = cell
    return found


def chapter_blanks(chapter: Chapter) -> dict[str, dict[str, str]]:
    """Return {exercise id: {"name", "stub", "solution"}} of one chapter, sources of whole cells."""
    blanks = {}
    for exercise, cell in exercise_cells(chapter).items():
        try:
            blanks[exercise] = {
                "name": answer_name(cell),
                "stub": stub_source(cell.source),
                "solution": unmarked_solution(cell.source),
            }
        except (UserError, SyntaxError) as error:
            raise UserError(f"{chapter.path.name}: exercise {exercise}: {error}") from error
    return blanks


def read_blanks(path: Path) -> str:
    """Return the text of blanks.json, empty where there is none yet."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""
