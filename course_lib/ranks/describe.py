"""An exception as plain data: its own class may not exist in the parent."""

from __future__ import annotations

import linecache
import os
import time
import traceback
from typing import Any

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return an exception as plain data.

    Returns:
        type, bases (names of its classes), message, frames (outermost first), time_s on the
        monotonic clock, and cause: the same for `raise ... from cause`, None without one.
    """
    kind = type(error)
    cause = error.__cause__
    return {
        "type": kind.__name__,
        "bases": [base.__name__ for base in kind.__mro__],
        "message": _message(error),
        "frames": describe_frames(_frames_of(error)),
        "time_s": time.monotonic(),
        "cause": None if cause is None else f"{type(cause).__name__}: {_message(cause)}",
    }


def _frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the traceback's frames; a syntax error's own place is the last of them."""
    frames = list(traceback.extract_tb(error.__traceback__))
    if isinstance(error, SyntaxError) and error.filename:
        place = traceback.FrameSummary(
            error.filename, error.lineno or 0, "<cell>", line=(error.text or "").strip()
        )
        frames.append(place)
    return frames


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r}) was called"
    if isinstance(error, SyntaxError):
        return error.msg
    try:
        return str(error)
    except Exception as failure:
        return f"(its text could not be made: {type(failure).__name__})"


def describe_frames(summary: list[traceback.FrameSummary]) -> list[dict[str, Any]]:
    """Return frames as plain data, without those of this package's machinery and of imports."""
    frames = []
    for frame in summary:
        folder = os.path.dirname(os.path.abspath(frame.filename))
        if folder == _OWN_FOLDER or frame.filename.startswith("<frozen"):
            continue
        line = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
        frames.append(
            {"file": frame.filename, "line": frame.lineno, "name": frame.name, "text": line}
        )
    return frames
