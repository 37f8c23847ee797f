"""What an answer needs of the cells before it, without running them.

A chapter's cells train models and start ranks; an answer needs only names. So of the cells before
it this keeps imports, functions, classes and constants, and of those the ones it uses.
"""

import ast
from collections.abc import Iterable, Sequence


def prelude_for(source: str, earlier_cells: Sequence[str]) -> str:
    """Return the statements of earlier cells that define what `source` uses, in order.

    Args:
        source: the exercise's cell.
        earlier_cells: the code cells before it; magics, `%%` cells and broken cells are left out.
    """
    statements = [statement for cell in earlier_cells for statement in _definitions(cell)]
    try:
        wanted = _names_read(ast.parse(source))
    except SyntaxError:
        wanted = set()
    kept: set[int] = set()
    grew = True
    while grew:  # a function may use one that is defined below it
        grew = False
        for index, statement in enumerate(statements):
            bound = _names_bound(statement)
            if index not in kept and ("*" in bound or bound & wanted):
                kept.add(index)
                wanted |= _names_read(statement)
                grew = True
    return "\n".join(ast.unparse(statements[index]) for index in sorted(kept))


def _definitions(cell: str) -> Iterable[ast.stmt]:
    lines = cell.splitlines()
    if any(line.startswith("%%") for line in lines):
        return []
    plain = "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))
    try:
        statements = ast.parse(plain).body
    except SyntaxError:
        return []
    return [statement for statement in statements if _only_defines(statement)]


def _only_defines(statement: ast.stmt) -> bool:
    definitions = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    if isinstance(statement, definitions):
        return True
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return False
    # A call may train a model for a minute; a constant can't.
    return not any(isinstance(node, ast.Call | ast.Await) for node in ast.walk(statement.value))


def _names_read(tree: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _names_bound(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Import(names=names):
            return {(alias.asname or alias.name).split(".")[0] for alias in names}
        case ast.ImportFrom(names=names):
            return {alias.asname or alias.name for alias in names}
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
