"""A chapter that shows an idea in full, and the package that later chapters import, are one code.

A cell tagged `mirrors:course_lib.sync.collectives.ring_all_reduce` defines that function or class
again for the reader. The two are compared by their syntax trees, docstrings aside, so that neither
drifts from the other. Nothing is imported for it.
"""

import ast
import copy
from pathlib import Path

from course_lib.paths import PACKAGE
from course_lib.teach.chapters import Chapter, tags
from course_lib.teach.measures import parse_code

MARK = "mirrors:"
MAX_LINES = 25


def mirror_findings(chapter: Chapter) -> list[str]:
    """Return how the chapter's mirrored cells differ from the package; empty is right."""
    findings = []
    for cell in chapter.notebook.cells:
        for tag in tags(cell):
            if tag.startswith(MARK):
                difference = _difference(parse_code(cell), tag.removeprefix(MARK))
                if difference:
                    findings.append(f"Cell {cell.id} ({tag}): {difference}")
    return findings


def _difference(cell: ast.Module, target: str) -> str:
    module, _, name = target.rpartition(".")
    path = module_path(module)
    if path is None:
        return f"there is no module {module!r}."
    theirs = definition(ast.parse(path.read_text(encoding="utf-8")), name)
    mine = definition(cell, name)
    if theirs is None:
        return f"{module} defines no {name!r}."
    if mine is None:
        return f"the cell defines no {name!r}."
    length = (mine.end_lineno or 0) - mine.lineno + 1
    if length > MAX_LINES:
        return f"{name} has {length} lines; at most {MAX_LINES} may be mirrored."
    if ast.dump(without_docstrings(mine)) != ast.dump(without_docstrings(theirs)):
        return f"{name} differs from {target}; make the two equal."
    return ""


def module_path(module: str) -> Path | None:
    """Return the file of a module of course_lib, or None."""
    parts = module.split(".")
    if parts[0] != PACKAGE.name:
        return None
    base = PACKAGE.joinpath(*parts[1:])
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def definition(tree: ast.Module, name: str) -> ast.FunctionDef | ast.ClassDef | None:
    """Return the top-level function or class of that name, or None."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
    return None


def without_docstrings(node: ast.AST) -> ast.AST:
    """Return a copy of the tree without the docstrings of its functions and classes."""
    tree = copy.deepcopy(node)
    for inner in ast.walk(tree):
        if (
            isinstance(inner, ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(inner) is not None
        ):
            inner.body = inner.body[1:] or [ast.Pass()]
    return tree
