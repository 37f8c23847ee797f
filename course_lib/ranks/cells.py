"""Cells that run inside standing ranks: their variables stay from one cell to the next."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Mapping
from typing import Any

from course_lib.ranks import runtime


def _namespace() -> dict[str, Any]:
    """Return the variables of this rank's cells: those of its `__main__`, as in a notebook."""
    module = sys.modules.get("__main__")
    if not getattr(module, "_course_cells", False):
        module = types.ModuleType("__main__")
        module._course_cells = True  # type: ignore[attr-defined]
        sys.modules["__main__"] = module
    assert module is not None
    return vars(module)


def prepare() -> None:
    """Put the names that every cell finds into the rank's variables."""
    import torch
    import torch.distributed as dist

    _namespace().update(
        rank=runtime.rank(),
        world_size=runtime.world_size(),
        device=runtime.device(),
        torch=torch,
        dist=dist,
    )


def run(source: str, file_name: str) -> None:
    """Run a cell; print the value of a last expression, as a notebook shows it.

    Args:
        source: the cell's text.
        file_name: the name under which its lines are known.
    """
    tree = ast.parse(source, file_name)
    shown: ast.Expression | None = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        last = tree.body.pop()
        assert isinstance(last, ast.Expr)
        shown = ast.Expression(last.value)
    namespace = _namespace()
    exec(compile(tree, file_name, "exec"), namespace)
    if shown is not None:
        value = eval(compile(shown, file_name, "eval"), namespace)
        if value is not None:
            namespace["_"] = value
            print(repr(value))


def push(values: Mapping[str, Any]) -> None:
    """Set variables in this rank."""
    _namespace().update(values)


def pull(name: str) -> Any:
    """Return a variable of this rank.

    Raises:
        NameError: there is no such variable here.
    """
    namespace = _namespace()
    if name not in namespace:
        raise NameError(f"rank {runtime.rank()} has no variable {name!r}")
    return namespace[name]


def status() -> dict[str, Any]:
    """Return what this rank knows about itself, with the reasons."""
    import os

    import torch

    from course_lib.ranks import placement

    threads = placement.choose_threads(
        runtime.local_world_size(), placement.usable_cpus(), os.environ
    )
    names = [
        name
        for name in _namespace()
        if not name.startswith("_")
        and name not in ("rank", "world_size", "device", "torch", "dist")
    ]
    return {
        "pid": os.getpid(),
        "backend": runtime.backend_choice(),
        "device": str(runtime.device()),
        "threads": placement.Choice(str(torch.get_num_threads()), threads.reason),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME", ""),
        "port": os.environ.get("MASTER_PORT", ""),
        "seed": torch.initial_seed(),
        "names": sorted(names),
    }
