"""The rules of a chapter that a machine can hold: size, checks, roles, exercises, stored outputs.

Each finding is one sentence that names the cell and what to do. `course build` refuses a chapter
with findings, `course build --check` and the tests list them.
"""

import ast
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from course_lib.errors import UserError
from course_lib.teach.blanks import chapter_blanks, exercise_cells
from course_lib.teach.chapters import ROLES, Chapter, role, tags
from course_lib.teach.execute import PICTURES, WIDGET_VIEW
from course_lib.teach.measures import called_name, code_cells, code_lines, measure, parse_code
from course_lib.teach.mirrors import mirror_findings

CELLS = (35, 60)
EXERCISES = (3, 5)
MEDIAN_LINES = 8
MAX_LINES = 25
MAX_COLUMNS = 88
CHECK_SHARE = 1 / 5
SLIDE_CODE_LINES = 12
SHOWING = {"print", "display", "show", "check", "hint", "solution"}
SHOWN_MODULES = ("course_lib.teach.widgets", "course_lib.teach.exercises")
IMAGE_LINK = re.compile(
    r"!\[[^\]]*\]\((?!attachment:|data:)([^)]+)\)|<img [^>]*src=[\"'](?!data:)([^\"']+)"
)
OBJECT_REPR = re.compile(r"\bat 0x[0-9a-fA-F]+|^<(?!Figure size )[^>]*>$")
MACHINE_PATH = re.compile(r"(?:^|[\s'\"(])/(?:home|root|tmp|Users|work)/")


def lint_chapter(chapter: Chapter) -> list[str]:
    """Return what breaks the rules in a chapter's cells; empty is right."""
    try:
        exercises = list(_exercise_findings(chapter))
        return [
            *_measure_findings(chapter),
            *(f for cell in chapter.notebook.cells for f in _role_findings(cell)),
            *(f for cell in chapter.notebook.cells for f in _markdown_findings(cell)),
            *(
                f
                for cell in code_cells(chapter)
                for f in _code_findings(cell, _shown_names(chapter))
            ),
            *exercises,
            *mirror_findings(chapter),
        ]
    except UserError as error:
        return [str(error)]
    except SyntaxError as error:
        return [f"A cell is no valid Python: {error.msg}: {(error.text or '').strip()!r}."]


def _measure_findings(chapter: Chapter) -> Iterator[str]:
    m = measure(chapter)
    if not CELLS[0] <= m.cells <= CELLS[1]:
        yield f"It has {m.cells} cells (speaker notes aside); keep to {CELLS[0]} to {CELLS[1]}."
    if not EXERCISES[0] <= m.exercises <= EXERCISES[1]:
        yield f"It has {m.exercises} exercises; keep to {EXERCISES[0]} to {EXERCISES[1]}."
    if m.code_lines_median > MEDIAN_LINES:
        yield f"Its median code cell has {m.code_lines_median} lines; at most {MEDIAN_LINES}."
    if m.check_share < CHECK_SHARE:
        yield (
            f"Only {m.checked_cells} of {m.code_cells} code cells check something; "
            "add an assert or a check to every fifth."
        )
    titles = [c for c in chapter.notebook.cells if re.search(r"^# ", _prose(c), re.MULTILINE)]
    if len(titles) != 1 or titles[0] is not chapter.notebook.cells[0]:
        yield "The first cell, and no other, carries the title (# …)."


def _prose(cell: NotebookNode) -> str:
    """Return a markdown cell's text without its fenced code, else nothing."""
    if cell.cell_type != "markdown":
        return ""
    return re.sub(r"^```.*?^```", "", cell.source, flags=re.MULTILINE | re.DOTALL)


def _role_findings(cell: NotebookNode) -> Iterator[str]:
    if role(cell) not in ROLES:
        yield (
            f"Cell {cell.id} has the slide role {role(cell)!r}; give it one of {', '.join(ROLES)} "
            '(slideshow={"slide_type": "…"}).'
        )
    if role(cell) == "notes" and cell.cell_type != "markdown":
        yield f"Cell {cell.id} is a speaker note but holds code; write it as markdown."
    shown = role(cell) not in ("skip", "notes", None) and "hide-input" not in tags(cell)
    if cell.cell_type == "code" and shown and len(code_lines(cell)) > SLIDE_CODE_LINES:
        yield (
            f"Cell {cell.id} puts {len(code_lines(cell))} lines of code on a slide; at most "
            f"{SLIDE_CODE_LINES}: shorten it, tag it hide-input, or give it the role skip."
        )


def _markdown_findings(cell: NotebookNode) -> Iterator[str]:
    if cell.cell_type != "markdown":
        return
    if not cell.source.strip():
        yield f"Cell {cell.id} is empty; remove it."
    for match in IMAGE_LINK.finditer(_prose(cell)):
        yield (
            f"Cell {cell.id} links to the picture {match[1] or match[2]!r}, which is lost in other "
            "editions; draw it with a figure, or embed it."
        )


def _code_findings(cell: NotebookNode, shown_names: set[str]) -> Iterator[str]:
    lines = code_lines(cell)
    if not lines:
        yield f"Cell {cell.id} is empty; remove it."
        return
    if len(lines) > MAX_LINES:
        yield f"Cell {cell.id} has {len(lines)} lines; at most {MAX_LINES}: split it."
    for line in cell.source.split("\n"):
        if len(line) > MAX_COLUMNS:
            yield f"Cell {cell.id} has a line of {len(line)} characters; at most {MAX_COLUMNS}."
    if lines[-1].rstrip().endswith(";"):
        yield f"Cell {cell.id} ends with ';', which hides nothing from nbval; write _ = … instead."
    elif not _last_line_is_meant(parse_code(cell), shown_names):
        yield (
            f"Cell {cell.id} ends with a bare expression, whose repr is stored; print it, "
            "assign it, or write _ = …."
        )


def _last_line_is_meant(tree: ast.Module, shown_names: set[str]) -> bool:
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return True
    return isinstance(last.value, ast.Call) and called_name(last.value) in SHOWING | shown_names


def _shown_names(chapter: Chapter) -> set[str]:
    """Return what the chapter imports from widgets and exercises: those draw themselves."""
    names = set()
    for cell in code_cells(chapter):
        for node in ast.walk(parse_code(cell)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SHOWN_MODULES):
                names |= {alias.asname or alias.name for alias in node.names}
    return names


def _exercise_findings(chapter: Chapter) -> Iterator[str]:
    cells = exercise_cells(chapter)
    blanks = chapter_blanks(chapter)
    code = code_cells(chapter)
    for exercise, cell in cells.items():
        after = code[code.index(cell) + 1 :][:1]
        if not after or not _calls_check(after[0], exercise, blanks[exercise]["name"]):
            yield (
                f'The code cell after exercise {exercise} must call check("{exercise}", '
                f"{blanks[exercise]['name']})."
            )


def _calls_check(cell: NotebookNode, exercise: str, name: str) -> bool:
    for node in ast.walk(parse_code(cell)):
        match node:
            case ast.Call(args=[ast.Constant(value=first), ast.Name(id=second), *_]):
                if called_name(node) == "check" and (first, second) == (exercise, name):
                    return True
    return False


def lint_outputs(notebook: NotebookNode) -> list[str]:
    """Return what breaks the rules in an executed notebook's stored outputs; empty is right."""
    findings = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        if cell.execution_count is None:
            findings.append(f"Cell {cell.id} was never executed; run course build.")
        for output in cell.outputs:
            findings += [f"Cell {cell.id} {text}" for text in _output_findings(cell, output)]
    return findings


def _output_findings(cell: NotebookNode, output: NotebookNode) -> Iterator[str]:
    data = output.get("data", {})
    if output.output_type == "error" and "raises-exception" not in tags(cell):
        yield f"stores an error ({output.ename}); mend it, or tag the cell raises-exception."
    if output.output_type == "stream" and output.name == "stderr":
        yield f"writes to stderr: {output.text.strip()[:80]!r}."
    if WIDGET_VIEW in data and not any(kind in data for kind in PICTURES):
        yield "shows a widget without a static picture; slides and pages need one."
    text = output.get("text", "") or data.get("text/plain", "")
    match = OBJECT_REPR.search(text.strip())
    if match and not any(kind in data for kind in PICTURES):
        yield f"stores an object's repr ({match[0][:60]}); print what matters of it."
    if MACHINE_PATH.search(text):
        yield f"stores a path of this machine ({text.strip()[:60]!r})."
