"""The companion package of the course "How models really train"."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.ranks import launch

# The names that notebooks use most. They load when first used (PEP 562): a rank that adds two
# numbers must not wait for anything else.
_HOMES = {"launch": "course_lib.ranks"}

__all__ = ["launch", "load_ipython_extension", "unload_ipython_extension"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Register `%%ranks` and `%ranks` in a notebook: `%load_ext course_lib`."""
    importlib.import_module("course_lib.ranks.magic").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Stop the ranks of `%%ranks`: `%unload_ext course_lib`."""
    importlib.import_module("course_lib.ranks.magic").unload(shell)
