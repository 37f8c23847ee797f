"""Mechanical mistakes: does a check see a dropped statement, a shifted index, a flipped sign?

A solution is changed in one place at a time. A check that accepts many such mutants is too weak.
Source: DeMillo, Lipton and Sayward 1978, "Hints on Test Data Selection".
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Change = Callable[[ast.AST], None]

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """A solution with one mechanical mistake.

    Args:
        label: what was changed, "line 3: + became -".
        source: the whole cell.
    """

    label: str
    source: str


def mutants(source: str) -> list[Mutant]:
    """Return every mutant of a solved cell, equal texts once, the cell itself left out.

    Args:
        source: the cell; imports, annotations and docstrings are not changed.
    """
    tree = ast.parse(source)
    _drop_texts(tree)
    original = ast.unparse(tree)
    found: dict[str, Mutant] = {}
    for index, node in enumerate(_nodes(tree)):
        for line, what, change in _changes(node):
            copied = copy.deepcopy(tree)
            change(_nodes(copied)[index])
            text = ast.unparse(ast.fix_missing_locations(copied))
            if text != original and text not in found:
                found[text] = Mutant(f"line {line}: {what}", text)
    return list(found.values())


def _drop_texts(tree: ast.Module) -> None:
    """Take out annotations and docstrings, in which a change is no mistake."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        elif isinstance(node, ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        elif isinstance(node, ast.arg):
            node.annotation = None


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes in a fixed order, without those below an import or a guard."""
    found: list[ast.AST] = []
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.Import | ast.ImportFrom) or _is_guard(node)):
            found += [node, *_nodes(node)]
    return found


def _is_guard(node: ast.AST) -> bool:
    """Tell whether a node only refuses bad input: zip's `strict=`."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _changes(node: ast.AST) -> Iterator[tuple[int, str, Change]]:
    """Yield (line, what is changed, how) for one node."""
    if not isinstance(node, ast.Module | ast.ClassDef):
        yield from _dropped_statements(node)
    for what, change in _changes_of_expression(node):
        yield getattr(node, "lineno", 0), what, change


def _changes_of_expression(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in _SWAPS:
        yield _swapped_operator(type(node.op))
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        yield _swapped_comparison(type(node.ops[0]))
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "condition negated", _negate
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield "sign or `not` dropped", _plus
    if isinstance(node, ast.Constant):
        yield from _changed_constants(node)
    if isinstance(node, ast.Call):
        for position, keyword in enumerate(node.keywords):
            if keyword.arg != "strict":
                yield f"argument {keyword.arg} dropped", _without("keywords", position)
    if isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load):
        for position in range(len(node.elts) - 1):
            yield f"elements {position} and {position + 1} swapped", _swap_elements(position)


def _dropped_statements(node: ast.AST) -> Iterator[tuple[int, str, Change]]:
    for name in ("body", "orelse"):
        statements = getattr(node, name, None)
        for position, statement in enumerate(statements if isinstance(statements, list) else []):
            if isinstance(statement, ast.stmt) and not isinstance(
                statement, ast.Import | ast.ImportFrom | ast.Pass
            ):
                text = ast.unparse(statement).splitlines()[0]
                yield statement.lineno, f"`{text}` dropped", _pass(name, position)


def _changed_constants(node: ast.Constant) -> Iterator[tuple[str, Change]]:
    value = node.value
    if isinstance(value, bool):
        yield f"{value} became {not value}", _set(not value)
    elif isinstance(value, int):
        for other in (value + 1, value - 1):
            yield f"{value} became {other}", _set(other)
    elif isinstance(value, float):
        for changed in (value * 2 + 1, -value):
            yield f"{value} became {changed}", _set(changed)


def _swapped_operator(old: type[ast.AST]) -> tuple[str, Change]:
    def change(node: ast.AST) -> None:
        node.op = _SWAPS[old]()  # type: ignore[attr-defined]

    return f"{old.__name__} became {_SWAPS[old].__name__}", change


def _swapped_comparison(old: type[ast.AST]) -> tuple[str, Change]:
    def change(node: ast.AST) -> None:
        node.ops[0] = _SWAPS[old]()  # type: ignore[attr-defined]

    return f"{old.__name__} became {_SWAPS[old].__name__}", change


def _negate(node: ast.AST) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)  # type: ignore[attr-defined]


def _plus(node: ast.AST) -> None:
    if isinstance(node.op, ast.Not):  # type: ignore[attr-defined]
        node.operand = ast.UnaryOp(ast.Not(), node.operand)  # type: ignore[attr-defined]
    else:
        node.op = ast.UAdd()  # type: ignore[attr-defined]


def _set(value: float) -> Change:
    def change(node: ast.AST) -> None:
        node.value = value  # type: ignore[attr-defined]

    return change


def _pass(name: str, position: int) -> Change:
    def change(node: ast.AST) -> None:
        getattr(node, name)[position] = ast.Pass()

    return change


def _without(name: str, position: int) -> Change:
    def change(node: ast.AST) -> None:
        del getattr(node, name)[position]

    return change


def _swap_elements(position: int) -> Change:
    def change(node: ast.AST) -> None:
        elements = node.elts  # type: ignore[attr-defined]
        elements[position : position + 2] = reversed(elements[position : position + 2])

    return change
