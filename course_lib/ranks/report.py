"""Failures in words: first cause first, with rank and cell line; consequences in a line each."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from typing import Any

from course_lib.ranks.supervise import RankOutcome

# What an innocent rank raises when another one has gone.
_CONSEQUENCES = re.compile(
    r"closed by peer|Connection reset|Broken pipe|Connection refused|Socket closed|"
    r"failed to recv|Failed to recv|recvValue failed|sendBytes failed|Timed out waiting|"
    r"wait timeout|NCCL.*(abort|remote process)|heartbeat",
    re.IGNORECASE,
)
_MAX_FRAMES = 6
_MAX_MESSAGE_LINES = 20


class RankError(RuntimeError):
    """One or more ranks failed; the text says which, where and why.

    Attributes:
        rank: the rank that failed first (None when all simply ran out of time).
        failures: one line for each rank that failed, by rank.
    """

    def __init__(self, text: str, rank: int | None, failures: dict[int, str]) -> None:
        super().__init__(text)
        self.rank = rank
        self.failures = failures

    def _render_traceback_(self) -> list[str]:
        """Show the text alone in a notebook: the parent's own frames say nothing."""
        return [f"{type(self).__name__}: {self}"]


class RankTimeoutError(RankError, TimeoutError):
    """The ranks did not end within the time limit."""


def is_consequence(rank: RankOutcome) -> bool:
    """Tell whether a rank failed only because another one had gone."""
    if rank.error is None:
        return False
    bases = set(rank.error["bases"])
    network = bases & {"DistError", "ConnectionError"} or "RuntimeError" in bases
    return bool(network and _CONSEQUENCES.search(rank.error["message"]))


def first_cause(ranks: Sequence[RankOutcome]) -> RankOutcome | None:
    """Return the rank that failed first by itself, None if none failed."""
    failed = [rank for rank in ranks if rank.failed]
    if not failed:
        return None
    first = min(failed, key=lambda rank: (is_consequence(rank), rank.ended_at_s or 0.0))
    alike = [rank for rank in failed if _kind_and_line(rank) == _kind_and_line(first)]
    return alike[0]  # ranks that fail alike do so in any order: the lowest one speaks for them


def _kind_and_line(rank: RankOutcome) -> tuple[Any, ...]:
    """Return what makes two failures alike: the kind, and the line of code."""
    if rank.error is None:
        return ("died", rank.exit_code)
    last = rank.error["frames"][-1:]
    return (rank.error["type"], *((frame["file"], frame["line"]) for frame in last))


def failure_line(rank: RankOutcome) -> str:
    """Return one line: what happened to this rank."""
    if rank.error is not None:
        message = rank.error["message"].strip()
        kind = rank.error["type"]
        return f"{kind}: {message}" if message else kind
    return death_line(rank.exit_code)


def death_line(exit_code: int | None) -> str:
    """Say how a process ended that said nothing."""
    if exit_code is None:
        return "it stopped without a word"
    if exit_code >= 0:
        return f"the process ended by itself with exit status {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    hints = {
        "SIGKILL": " (often the system ran out of memory: fewer ranks or a smaller batch)",
        "SIGSEGV": " (a crash in compiled code)",
        "SIGBUS": " (often /dev/shm is full)",
        "SIGABRT": " (compiled code gave up; its last words are in the output)",
    }
    return f"killed by {name}{hints.get(name, '')}"


def cell_name(file_name: str) -> str | None:
    """Return "Cell In[3]" for a notebook cell's file name, None for any other."""
    names = _cells_of_this_kernel()
    if file_name in names:
        return f"Cell In[{names[file_name]}]"
    if file_name.startswith("<ipython-input-"):
        return f"Cell In[{file_name.split('-')[2]}]"
    return None


def _cells_of_this_kernel() -> dict[str, Any]:
    import sys

    if "IPython" not in sys.modules:
        return {}
    shell = sys.modules["IPython"].get_ipython()
    if shell is None:
        return {}
    return dict(getattr(shell.compile, "_filename_map", {}))


def traceback_lines(frames: Sequence[dict[str, Any]]) -> list[str]:
    """Return a short traceback: the learner's frames, or the last ones where there are none."""
    mine = [frame for frame in frames if _is_learners(frame["file"])]
    chosen = mine or list(frames)[-2:]
    if mine and frames[-1] is not mine[-1]:
        chosen = [*mine, frames[-1]]
    left_out = len(chosen) - _MAX_FRAMES
    if left_out > 0:
        chosen = [*chosen[:3], None, *chosen[-3:]]  # type: ignore[list-item]
    lines = []
    for frame in chosen:
        if frame is None:
            lines.append(f"  … {left_out} more calls …")
            continue
        place = cell_name(frame["file"]) or _short_path(frame["file"])
        lines.append(f"  {place}, line {frame['line']}, in {frame['name']}")
        if frame["text"]:
            lines.append(f"    {frame['text']}")
    return lines


def _is_learners(file_name: str) -> bool:
    return not re.search(r"site-packages|dist-packages|[/\\]lib[/\\]python3|^<frozen", file_name)


def _short_path(file_name: str) -> str:
    folder = os.getcwd() + os.sep
    if file_name.startswith(folder):
        return file_name[len(folder) :]
    for mark in ("site-packages", "dist-packages"):
        if mark in file_name:
            return file_name.split(mark + os.sep, 1)[-1]
    return file_name


def explain_failure(ranks: Sequence[RankOutcome]) -> RankError:
    """Return the error that tells what failed: first cause, its lines, then the others."""
    cause = first_cause(ranks)
    assert cause is not None
    failures = {rank.rank: failure_line(rank) for rank in ranks if rank.failed}
    lines = [f"rank {cause.rank} failed: {_cut(failure_line(cause))}"]
    if cause.error is not None:
        lines += traceback_lines(cause.error["frames"])
    lines += other_lines(ranks, cause)
    return RankError("\n".join(lines), cause.rank, failures)


def other_lines(ranks: Sequence[RankOutcome], cause: RankOutcome) -> list[str]:
    """Return a line for each kind of fate of the other ranks."""
    fates: dict[str, list[int]] = {}
    for rank in ranks:
        if rank is cause:
            continue
        if rank.failed and is_consequence(rank):
            fate = "lost the connection, a consequence"
        elif rank.failed:
            alike = _kind_and_line(rank) == _kind_and_line(cause)
            fate = "failed in the same way" if alike else f"failed: {failure_line(rank)}"
            fate = fate.splitlines()[0]
        elif rank.reported:
            fate = "had finished"
        else:
            fate = "was stopped"
        fates.setdefault(fate, []).append(rank.rank)
    return [f"{name_ranks(numbers)}: {fate}" for fate, numbers in fates.items()]


def explain_timeout(ranks: Sequence[RankOutcome], timeout_s: float) -> RankTimeoutError:
    """Return the error for a job that ran out of time: where each rank was."""
    lines = [f"the ranks did not end within {timeout_s:g} s"]
    for rank in ranks:
        if rank.reported:
            lines.append(f"rank {rank.rank} had finished")
            continue
        lines.append(f"rank {rank.rank} was still in:")
        if rank.where:
            lines += traceback_lines(rank.where)
        else:
            lines.append("  compiled code that never lets go (it did not answer)")
    failures = {rank.rank: "timed out" for rank in ranks if not rank.reported}
    return RankTimeoutError("\n".join(lines), None, failures)


def name_ranks(numbers: Sequence[int]) -> str:
    """Return "rank 1", "ranks 1 and 3" or "ranks 1, 2 and 3"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    words = [str(number) for number in numbers]
    return f"ranks {', '.join(words[:-1])} and {words[-1]}"


def _cut(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= _MAX_MESSAGE_LINES:
        return text
    return "\n".join([*lines[:_MAX_MESSAGE_LINES], "…"])
