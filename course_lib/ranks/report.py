"""Failures in words: first cause first, with rank and cell line; consequences in a line each."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

from course_lib.ranks.supervise import RankOutcome
from course_lib.ranks.tracebacks import traceback_lines
from course_lib.ranks.waits import Stuck

# What an innocent rank raises when another one has gone.
_CONSEQUENCES = re.compile(
    r"closed by peer|Connection reset|Broken pipe|Connection refused|Socket closed|"
    r"failed to recv|Failed to recv|recvValue failed|sendBytes failed|Timed out waiting|"
    r"wait timeout|NCCL.*(abort|remote process)|heartbeat",
    re.IGNORECASE,
)
_MAX_MESSAGE_LINES = 20


class RankError(RuntimeError):
    """One or more ranks failed; the text says which, where and why.

    Attributes:
        rank: the rank that failed first; None when they ran out of time.
        failures: one line for each rank that failed, by rank.
        numbered_text: the text with the notebook's numbers of cells, as a notebook shows it.
    """

    def __init__(
        self, text: str, rank: int | None, failures: dict[int, str], numbered_text: str = ""
    ) -> None:
        super().__init__(text)
        self.rank = rank
        self.failures = failures
        self.numbered_text = numbered_text or text

    def with_note(self, note: str) -> RankError:
        """Return the same error with one more line."""
        return type(self)(
            f"{self}\n{note}", self.rank, self.failures, f"{self.numbered_text}\n{note}"
        )

    def _render_traceback_(self) -> list[str]:
        """Show the text alone in a notebook: the parent's own frames say nothing."""
        return [f"{type(self).__name__}: {self.numbered_text}"]


class RankDeadlockError(RankError):
    """Ranks wait for each other, or for one that has finished, and can never go on."""


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


def explain_failure(ranks: Sequence[RankOutcome], mismatch: str | None = None) -> RankError:
    """Return the error that tells what failed: first cause, its lines, then the others.

    Args:
        ranks: how each rank ended.
        mismatch: calls that should have met but don't fit, in words, if any were found.
    """
    cause = first_cause(ranks)
    assert cause is not None
    failures = {rank.rank: failure_line(rank) for rank in ranks if rank.failed}
    text = f"rank {cause.rank} failed: {_cut(failure_line(cause))}"
    # A misfit is the news where only the network or compiled code complained.
    is_network = cause.error is None or is_consequence(cause) or _is_from_gloo(cause)
    if mismatch and is_network:
        text = f"the calls don't fit: {mismatch}\n{text}"

    def lines(numbered: bool) -> list[str]:
        told = [text]
        if cause.error is not None:
            told += traceback_lines(cause.error["frames"], numbered)
            if cause.error["cause"]:
                told.append(f"  caused by {_cut(cause.error['cause'])}")
        return told + other_lines(ranks, cause)

    return _in_both_ways(RankError, lines, cause.rank, failures)


def _in_both_ways(
    kind: type[RankError],
    lines: Callable[[bool], list[str]],
    rank: int | None,
    failures: dict[int, str],
) -> RankError:
    """Make an error from its lines, without and with the numbers of the notebook's cells."""
    return kind("\n".join(lines(False)), rank, failures, "\n".join(lines(True)))


def _is_from_gloo(rank: RankOutcome) -> bool:
    return rank.error is not None and "gloo" in rank.error["message"].lower()


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
        elif rank.packed_result is not None:
            fate = "had finished"
        else:
            fate = "was stopped"
        fates.setdefault(fate, []).append(rank.rank)
    return [f"{name_ranks(numbers)}: {fate}" for fate, numbers in fates.items()]


def explain_stuck(ranks: Sequence[RankOutcome], stuck: Sequence[Stuck]) -> RankError:
    """Return the error for ranks that can never go on: who waits where, and for whom."""
    numbers = [one.rank for one in stuck]
    verb = "waits" if len(numbers) == 1 else "wait"
    of = {rank.rank: rank for rank in ranks}

    def lines(numbered: bool) -> list[str]:
        told = [f"{name_ranks(numbers)} {verb} for ever"]
        places = [traceback_lines(of[one.rank].where, numbered) for one in stuck]
        for one, place, following in zip(stuck, places, [*places[1:], None], strict=True):
            told.append(f"rank {one.rank} waits in {one.operation}: {one.reason}")
            if place != following:  # ranks that wait at one place: the place stands after the last
                told += place
        return told

    failures = {one.rank: f"waits in {one.operation}: {one.reason}" for one in stuck}
    return _in_both_ways(RankDeadlockError, lines, numbers[0], failures)


def explain_timeout(
    ranks: Sequence[RankOutcome], timeout_s: float, waits: dict[int, str]
) -> RankError:
    """Return the error for a job that ran out of time: where each rank was.

    Args:
        ranks: how each rank ended.
        timeout_s: the limit, in seconds.
        waits: the operation that a rank waited in, in words, by rank.
    """
    done = [rank.rank for rank in ranks if rank.packed_result is not None]

    def lines(numbered: bool) -> list[str]:
        told = [f"the ranks did not end within {timeout_s:g} s"]
        for rank in ranks:
            if rank.rank not in done:
                told += _where_it_was(rank, waits.get(rank.rank), numbered)
        if done:
            told.append(f"{name_ranks(done)} had finished")
        return told

    failures = {rank.rank: "timed out" for rank in ranks if rank.rank not in done}
    return _in_both_ways(RankTimeoutError, lines, None, failures)


def _where_it_was(rank: RankOutcome, waiting_in: str | None, numbered: bool) -> list[str]:
    """Say where a rank was when the time was over."""
    state = "running" if waiting_in is None else f"waiting in {waiting_in}"
    told = [f"rank {rank.rank} was still {state}"]
    if rank.where:
        return told + traceback_lines(rank.where, numbered)
    if not rank.ready:
        return [*told, "  (it was still joining the others)"]
    return [*told, "  (it did not answer: compiled code that never lets go)"]


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
