"""Short tracebacks: the learner's own lines, with the number of the notebook's cell."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

_MAX_FRAMES = 6
_numbers_of_ranks_cells: dict[str, int] = {}  # file name of a %%ranks cell -> its In[number]


def new_cell_file() -> str:
    """Name the source of a cell that is about to run in standing ranks; each gets its own name."""
    name = f"<ranks cell {len(_numbers_of_ranks_cells) + 1}>"
    current = _current_kernel_cell()
    _numbers_of_ranks_cells[name] = 0 if current is None else _cells_of_this_kernel()[current]
    return name


def _cells_of_this_kernel() -> dict[str, int]:
    """Return the file names that IPython gave to cells, with their In[numbers]."""
    if "IPython" not in sys.modules:
        return {}
    shell = sys.modules["IPython"].get_ipython()
    if shell is None:
        return {}
    return getattr(shell.compile, "_filename_map", {})


def _current_kernel_cell() -> str | None:
    """Return the file name of the cell that is being executed; None outside of one."""
    known = _cells_of_this_kernel()
    found = None
    frame = sys._getframe() if known else None
    while frame is not None:
        if frame.f_code.co_filename in known:
            found = frame.f_code.co_filename  # the outermost: a helper's cell is not the one
        frame = frame.f_back
    return found


def _cell_name(file_name: str, numbered: bool) -> str | None:
    """Return "Cell In[3]", or without numbers "this cell" or "an earlier cell"; None if it is none.

    The number is for the reader. It is left out of an error's value: a test runs the same cells
    without counting them.
    """
    cells = _cells_of_this_kernel()
    if file_name in _numbers_of_ranks_cells:
        number = _numbers_of_ranks_cells[file_name]
        is_current = file_name == next(reversed(_numbers_of_ranks_cells))
    elif file_name in cells:
        number = cells[file_name]
        is_current = file_name == _current_kernel_cell()
    else:
        return None
    if numbered and number:
        return f"Cell In[{number}]"
    return "this cell" if is_current else "an earlier cell"


def traceback_lines(frames: Sequence[dict[str, Any]], numbered: bool) -> list[str]:
    """Return a short traceback: the learner's frames, then where it ended if that was elsewhere.

    Args:
        frames: as describe_frames returns them, outermost first.
        numbered: whether cells are named by their In[number].
    """
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
        place = _cell_name(frame["file"], numbered) or _short_path(frame["file"])
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
