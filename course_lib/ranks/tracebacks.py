"""Short tracebacks: the learner's own lines, with the number of the notebook's cell."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

_MAX_FRAMES = 6
CELL_FILE = re.compile(r"^<ranks cell (\d+)>$")


def cell_file(number: int) -> str:
    """Name the source of a cell that runs in standing ranks."""
    return f"<ranks cell {number}>"


def cell_name(file_name: str) -> str | None:
    """Return "Cell In[3]" for a notebook cell's file name, None for any other."""
    match = CELL_FILE.match(file_name)
    if match:
        return f"Cell In[{match[1]}]"
    names = _cells_of_this_kernel()
    if file_name in names:
        return f"Cell In[{names[file_name]}]"
    return None


def _cells_of_this_kernel() -> dict[str, Any]:
    if "IPython" not in sys.modules:
        return {}
    shell = sys.modules["IPython"].get_ipython()
    if shell is None:
        return {}
    return dict(getattr(shell.compile, "_filename_map", {}))


def traceback_lines(frames: Sequence[dict[str, Any]]) -> list[str]:
    """Return a short traceback: the learner's frames, then where it ended if that was elsewhere."""
    mine = [frame for frame in frames if _is_learners(frame["file"])]
    chosen: list[dict[str, Any] | None] = [*(mine or list(frames)[-2:])]
    if mine and frames[-1] is not mine[-1] and not _is_machinery(frames[-1]["file"]):
        chosen.append(frames[-1])
    left_out = len(chosen) - _MAX_FRAMES
    if left_out > 0:
        chosen = [*chosen[:3], None, *chosen[-3:]]
    lines = []
    for frame in chosen:
        if frame is None:
            lines.append(f"  … {left_out} more calls …")
            continue
        place = cell_name(frame["file"]) or _short_path(frame["file"])
        name = "" if frame["name"] in ("<module>", "<cell>") else f", in {frame['name']}"
        lines.append(f"  {place}, line {frame['line']}{name}")
        if frame["text"]:
            lines.append(f"    {frame['text']}")
    return lines


def _is_learners(file_name: str) -> bool:
    return not re.search(r"site-packages|dist-packages|[/\\]lib[/\\]python3", file_name)


def _is_machinery(file_name: str) -> bool:
    """Tell whether a place inside torch says nothing that the operation's name doesn't."""
    return bool(re.search(r"torch[/\\]distributed|torch[/\\]autograd[/\\]graph", file_name))


def _short_path(file_name: str) -> str:
    folder = os.getcwd() + os.sep
    for mark in ("site-packages", "dist-packages"):
        if mark in file_name:
            return file_name.split(mark + os.sep, 1)[-1]
    return file_name.removeprefix(folder)
