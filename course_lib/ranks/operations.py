"""Every operation between ranks, numbered and written down before it starts.

The note goes to the blackboard (for the parent, if all wait for ever); what ended goes to
`course_lib.trace` (for counts and timelines).
"""

from __future__ import annotations

import time
from typing import Any

from course_lib import trace
from course_lib.ranks.blackboard import Blackboard

SENDS = ("send", "isend")
RECEIVES = ("recv", "irecv")
_MAX_HISTORY = 8


class _State:
    """What this rank has started so far."""

    def __init__(self) -> None:
        self.board: Blackboard | None = None
        self.rank = 0
        self.started: dict[str, int] = {}  # channel ("send 0>1 #0") or group -> calls so far
        self.history: dict[str, list[Any]] = {}  # the last of each channel: [number, name, what]


_state = _State()


def start_afresh(board: Blackboard | None, rank: int) -> None:
    """Count from 1 again, as every member of a new group does, and write to `board`."""
    _state.__init__()  # type: ignore[misc]
    _state.board, _state.rank = board, rank
    _publish(None)


class Operation:
    """One operation of this rank, from its start to its end; a context while it blocks.

    Args:
        name: "send", "all_reduce", ...
        what: shape and dtype in words, e.g. "float32[10]".
        size_bytes: bytes of the tensor.
        peer: the other rank of a send or receive; None for a collective or any sender.
        group: names the group, "" for all ranks.
        members: the ranks of the group; None for all.
        tag: as given to the call; only equal tags meet.
        is_collective: whether every member has to call it.
        root: " from rank 0" or " to rank 0" for a collective that has a root.
    """

    def __init__(
        self,
        name: str,
        what: str,
        size_bytes: int,
        peer: int | None = None,
        group: str = "",
        members: list[int] | None = None,
        tag: int | str = 0,
        is_collective: bool = False,
        root: str = "",
    ) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self.peer = peer
        self.start_s = time.monotonic()
        self._ended = False
        if is_collective:
            key = f"group {group}"
        else:
            key = channel_key(name, _state.rank, peer, f"{group}#{tag}")
        number = _state.started.get(key, 0) + 1
        _state.started[key] = number
        history = _state.history.setdefault(key, [])
        history.append([number, name + root, what])
        del history[:-_MAX_HISTORY]
        self._note = {
            "name": name + root,
            "what": what,
            "peer": peer,
            "key": key,
            "number": number,
            "members": members,
        }

    def __enter__(self) -> Operation:
        """Say that this rank waits here from now on."""
        _publish(self._note)
        return self

    def __exit__(self, *details: object) -> None:
        """Say that this rank goes on."""
        if _state.board is not None:
            _state.board.go_on(_state.rank)

    def end(self) -> None:
        """Record it as done, once."""
        if not self._ended:
            self._ended = True
            trace.communication(self.name, self.start_s, self.size_bytes, self.peer)


def channel_key(name: str, rank: int, peer: int | None, lane: str = "#0") -> str:
    """Name one end of the one-way channel that a send or receive uses, e.g. "send 0>1 #0"."""
    if name in SENDS:
        return f"send {rank}>{peer} {lane}"
    return f"recv {'*' if peer is None else peer}>{rank} {lane}"


def _publish(blocked: dict[str, Any] | None) -> None:
    if _state.board is not None:
        note = {"started": _state.started, "history": _state.history, "blocked": blocked}
        _state.board.write(_state.rank, note)


def describe(tensor: Any) -> tuple[str, int]:
    """Return a tensor's (or a list of tensors') dtype and shape in words, and its bytes."""
    if isinstance(tensor, (list, tuple)) and tensor:
        what, _ = describe(tensor[0])
        sizes = [describe(one)[1] for one in tensor]
        return (f"{len(tensor)} x {what}" if what else ""), sum(sizes)
    try:
        what = f"{tensor.dtype}{list(tensor.shape)}".removeprefix("torch.")
        return what, tensor.numel() * tensor.element_size()
    except AttributeError:
        return "", 0  # not a tensor: the call itself will say so
