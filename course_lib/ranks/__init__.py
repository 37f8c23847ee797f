"""Many processes: real torch.distributed ranks from a notebook cell, a script or a test.

    from course_lib.ranks import launch
    launch(fn, *args, world_size=4, timeout_s=60.0)   # -> [result of rank 0, 1, ...]

Names load when they are first used (PEP 562): a rank must not wait for what it doesn't need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.ranks.launching import Outcome, launch, run_ranks
    from course_lib.ranks.report import RankDeadlockError, RankError, RankTimeoutError

_HOMES = {
    "launch": "launching",
    "run_ranks": "launching",
    "Outcome": "launching",
    "RankDeadlockError": "report",
    "RankError": "report",
    "RankTimeoutError": "report",
}

__all__ = ["Outcome", "RankDeadlockError", "RankError", "RankTimeoutError", "launch", "run_ranks"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
