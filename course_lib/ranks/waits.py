"""Who waits for whom: tells from the ranks' notes whether some can never go on.

A rank that waits needs others to make the matching call. One that needs a rank which has finished,
or which itself can't go on, can't go on either. A rank that computes may still make any call, so
nobody who waits for it counts as stuck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from course_lib.ranks.operations import RECEIVES, SENDS

Note = dict[str, Any]
Notes = Sequence[Note | None]

_COUNTED_ALIKE = ("all_reduce", "broadcast", "reduce")  # every rank must give the same size


@dataclass(frozen=True)
class Stuck:
    """A rank that can never go on, and why in words.

    Attributes:
        rank: its number.
        operation: what it waits in, e.g. "recv from rank 1 (float32[10])".
        reason: what doesn't come, e.g. "rank 1 has finished".
        started: how much it had started; equal in two looks means that nothing moved.
    """

    rank: int
    operation: str
    reason: str
    started: tuple[Any, ...]


class _Needs(NamedTuple):
    """The ranks whose matching call is missing; hopeless if they made another one instead."""

    ranks: set[int]
    hopeless: bool = False


def find_stuck(notes: Notes, finished: set[int]) -> list[Stuck]:
    """Return the ranks that can never go on, by rank; an empty list if all still may.

    Args:
        notes: each rank's note on the blackboard (see operations.py), None before its first one.
        finished: ranks that have left the function.
    """
    needs: dict[int, _Needs] = {}
    for rank, note in enumerate(notes):
        if rank not in finished and note is not None and note["blocked"] is not None:
            missing = _missing(rank, note, notes)
            if missing.ranks:
                needs[rank] = missing
    stuck = set(needs)
    while True:
        alive = set(range(len(notes))) - finished - stuck
        free = {rank for rank in stuck if _can_be_freed(notes[rank], needs[rank], alive)}
        if not free:
            break
        stuck -= free
    return [_describe(rank, needs[rank].ranks, notes, finished) for rank in sorted(stuck)]


def find_mismatch(notes: Notes) -> str | None:
    """Return in words the first pair of calls that should have met but don't fit, if there is one.

    Compiled code may abort on such calls; then this is the cause behind the signal.
    """
    for rank, note in enumerate(notes):
        for key, calls in (note or {"history": {}})["history"].items():
            for number, name, what in calls:
                for other, their_key in _partners(rank, key, len(notes)):
                    met = _met(notes[other], their_key, number)
                    if met is not None and _differs((name, what), met):
                        mine = f"rank {rank} called {name}{_in_brackets(what)}"
                        return f"{mine}, rank {other} called {met[0]}{_in_brackets(met[1])}"
    return None


def _partners(rank: int, key: str, size: int) -> list[tuple[int, str]]:
    """List (rank, key) of the calls that have to fit a rank's calls on `key`."""
    if key.startswith("group"):
        return [(other, key) for other in range(rank + 1, size)]
    if key.startswith("send"):
        target = key.split(" ")[1].partition(">")[2]
        return [(int(target), key.replace("send", "recv", 1))] if int(target) < size else []
    return []


def _can_be_freed(note: Note | None, needs: _Needs, alive: set[int]) -> bool:
    assert note is not None
    blocked = note["blocked"]
    if blocked["name"] in RECEIVES and blocked["peer"] is None:
        return bool(needs.ranks & alive)  # from anyone: one is enough
    return not needs.hopeless and needs.ranks <= alive


def _missing(rank: int, note: Note, notes: Notes) -> _Needs:
    """Return the ranks whose matching call has not been made (none: the operation will end)."""
    blocked = note["blocked"]
    if blocked["key"].startswith("group"):
        return _missing_in_collective(rank, blocked, notes)
    kind, ends, lane = blocked["key"].split(" ", 2)
    source, _, target = ends.partition(">")
    if kind == "send":
        calls = _started(notes, int(target), f"recv {ends} {lane}", f"recv *>{target} {lane}")
        return _Needs(set() if calls >= blocked["number"] else {int(target)})
    if source != "*":
        calls = _started(notes, int(source), f"send {ends} {lane}")
        return _Needs(set() if calls >= blocked["number"] else {int(source)})
    others = set(range(len(notes))) - {rank}
    sent = sum(_started(notes, other, f"send {other}>{rank} {lane}") for other in others)
    taken = sum(
        number
        for key, number in note["started"].items()
        if key.startswith("recv") and key.endswith(f">{rank} {lane}")
    )
    return _Needs(set() if sent >= taken else others)


def _started(notes: Notes, rank: int, *keys: str) -> int:
    note = notes[rank] if 0 <= rank < len(notes) else None
    return 0 if note is None else sum(note["started"].get(key, 0) for key in keys)


def _missing_in_collective(rank: int, blocked: Note, notes: Notes) -> _Needs:
    missing: set[int] = set()
    misfits: set[int] = set()
    for other in blocked["members"] or range(len(notes)):
        if other == rank:
            continue
        if _started(notes, other, blocked["key"]) < blocked["number"]:
            missing.add(other)
            continue
        met = _met(notes[other], blocked["key"], blocked["number"])
        if met is not None and _differs((blocked["name"], blocked["what"]), met):
            misfits.add(other)
    return _Needs(missing | misfits, hopeless=bool(misfits))


def _met(note: Note | None, key: str, number: int) -> tuple[str, str] | None:
    """Return (name, what) of a rank's call with this number on a channel or in a group."""
    for its_number, name, what in (note or {"history": {}})["history"].get(key, []):
        if its_number == number:
            return name, what
    return None


def _differs(mine: tuple[str, str], theirs: tuple[str, str]) -> bool:
    """Tell whether two calls (name, what) of one number can't belong together."""
    if mine[0] in SENDS:
        return theirs[0] not in RECEIVES or _size(mine[1]) != _size(theirs[1])
    if mine[0] != theirs[0]:
        return True
    return mine[0].split(" ")[0] in _COUNTED_ALIKE and _size(mine[1]) != _size(theirs[1])


def _size(what: str) -> tuple[str, int]:
    """Return dtype and number of elements of e.g. "float32[2, 5]"."""
    dtype, _, shape = what.partition("[")
    return dtype, math.prod(int(size) for size in shape.rstrip("]").split(", ") if size)


def _describe(rank: int, needs: set[int], notes: Notes, finished: set[int]) -> Stuck:
    note = notes[rank]
    assert note is not None
    blocked = note["blocked"]
    reasons = [_reason(blocked, other, notes, finished) for other in sorted(needs)]
    started = (tuple(sorted(note["started"].items())), blocked["key"], blocked["number"])
    return Stuck(rank, operation_text(blocked), "; ".join(dict.fromkeys(reasons)), started)


def _reason(blocked: Note, other: int, notes: Notes, finished: set[int]) -> str:
    """Say what another rank does instead of the call that is waited for."""
    note = notes[other]
    met = _met(note, blocked["key"], blocked["number"])
    if met is not None and blocked["key"].startswith("group"):
        call = f"{met[0]}{_in_brackets(met[1])}"
        return f"rank {other} called {call} as its number {blocked['number']}"
    if other in finished:
        return f"rank {other} has finished"
    if note is not None and note["blocked"] is not None:
        return f"rank {other} waits in {operation_text(note['blocked'])}"
    return f"rank {other} has not made the matching call"


def operation_text(blocked: Note) -> str:
    """Return an operation in words: "send to rank 1 (float32[10])", "all_reduce number 3 (...)"."""
    name, peer = blocked["name"], blocked["peer"]
    if name in SENDS:
        text = f"{name} to rank {peer}"
    elif name in RECEIVES:
        text = f"{name} from {'any rank' if peer is None else f'rank {peer}'}"
    else:
        text = f"{name} number {blocked['number']}"
    if blocked["members"]:
        text += f" among ranks {', '.join(str(rank) for rank in blocked['members'])}"
    return text + _in_brackets(blocked["what"])


def _in_brackets(what: str) -> str:
    return f" ({what})" if what else ""
