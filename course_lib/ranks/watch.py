"""Every operation between ranks, written down before it starts: who waits for whom, and how much.

`install` puts a thin wrapper around torch.distributed's functions in a rank. Each call is numbered,
written to the blackboard (for the parent, if all wait for ever) and given to `course_lib.trace`
(for counts and timelines). Work objects are wrapped too: a `wait()` is a place to be stuck in.

Links that don't use torch.distributed (shared memory) write theirs by `Operation` themselves.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

from course_lib import trace
from course_lib.ranks.blackboard import Blackboard

# Which argument holds the tensor; what it is called when it is given by name.
_COLLECTIVES = {
    "all_reduce": "tensor",
    "broadcast": "tensor",
    "reduce": "tensor",
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "all_gather_single": "input",
    "gather": "tensor",
    "scatter": "tensor",
    "reduce_scatter": "output",
    "reduce_scatter_tensor": "input",
    "reduce_scatter_single": "input",
    "all_to_all": "input_tensor_list",
    "all_to_all_single": "input",
    "barrier": "",
    "monitored_barrier": "",
    "all_gather_object": "",
    "broadcast_object_list": "",
    "gather_object": "",
    "scatter_object_list": "",
}
SENDS = ("send", "isend")
RECEIVES = ("recv", "irecv")


class _State:
    """What this rank has started so far."""

    def __init__(self) -> None:
        self.board: Blackboard | None = None
        self.rank = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything: a new process group counts from 1."""
        self.started: dict[str, int] = {}  # channel ("send 0>1 #0") or group -> calls so far
        self.history: dict[str, list[Any]] = {}  # the last of each channel: [number, name, what]
        self.blocked: dict[str, Any] | None = None


_state = _State()
_local = threading.local()  # the depth of wrapped calls inside wrapped calls
_MAX_HISTORY = 8


class Operation:
    """One operation of this rank, from its start to its end; use as a context while it blocks.

    Args:
        name: "send", "all_reduce", ...
        what: shape and dtype in words, e.g. "float32[10]".
        size_bytes: bytes of the tensor.
        peer: the other rank of a send or receive; None for a collective or any sender.
        group: names the group, "" for all ranks.
        members: the ranks of the group; None for all.
        tag: as given to the call; only equal tags meet.
        is_collective: whether every member has to call it.
    """

    def __init__(
        self,
        name: str,
        what: str,
        size_bytes: int,
        peer: int | None = None,
        group: str = "",
        members: list[int] | None = None,
        tag: int = 0,
        is_collective: bool = False,
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
        self.note = {
            "name": name,
            "what": what,
            "peer": peer,
            "key": key,
            "number": number,
            "members": members,
            "group": group,
        }
        history = _state.history.setdefault(key, [])
        history.append([number, name, what])
        del history[:-_MAX_HISTORY]

    def __enter__(self) -> Operation:
        """Say that this rank waits here from now on."""
        _state.blocked = self.note
        _publish()
        return self

    def __exit__(self, *details: object) -> None:
        """Say that this rank goes on."""
        _state.blocked = None
        _publish()

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


def _publish() -> None:
    if _state.board is not None:
        _state.board.write(
            _state.rank,
            {
                "started": _state.started,
                "history": _state.history,
                "blocked": _state.blocked,
            },
        )


def describe(tensor: Any) -> tuple[str, int]:
    """Return a tensor's (or a list of tensors') dtype and shape in words, and its bytes."""
    if isinstance(tensor, (list, tuple)) and tensor:
        what, _ = describe(tensor[0])
        sizes = [describe(one)[1] for one in tensor]
        return (f"{len(tensor)} x {what}" if what else ""), sum(sizes)
    if not hasattr(tensor, "dtype") or not hasattr(tensor, "element_size"):
        return "", 0
    shape = ", ".join(str(size) for size in tensor.shape)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}[{shape}]", tensor.numel() * tensor.element_size()


def install(board: Blackboard | None, rank: int) -> None:
    """Watch torch.distributed in this rank from now on; what was counted before is forgotten."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    _state.board, _state.rank = board, rank
    _state.reset()
    _publish()
    for name in (*_COLLECTIVES, *SENDS, *RECEIVES):
        original = getattr(distributed_c10d, name, None)
        if original is None or hasattr(original, "_course_watched"):
            continue  # this torch doesn't have it, or it is watched already
        wrapped = _watch(name, original)
        wrapped._course_watched = True  # type: ignore[attr-defined]
        setattr(distributed_c10d, name, wrapped)
        setattr(dist, name, wrapped)


def _watch(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if getattr(_local, "inside", False):
            return original(*args, **kwargs)
        _local.inside = True
        try:
            operation = _begin(name, signature, args, kwargs)
            with operation or _Nothing():
                result = original(*args, **kwargs)
            if operation is None:
                return result
            if hasattr(result, "wait"):
                return watched_work(result, operation)
            operation.end()
            return result
        finally:
            _local.inside = False

    return watched


class _Nothing:
    """Stands in for an operation that can't be described (its call is about to raise)."""

    def __enter__(self) -> None: ...

    def __exit__(self, *details: object) -> None: ...


def _begin(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Operation | None:
    """Number and describe a call; None where its arguments are wrong, as the call will say."""
    import torch.distributed as dist

    try:
        given = signature.bind(*args, **kwargs).arguments
        group = given.get("group")
        members = dist.get_process_group_ranks(group) if group is not None else None
        label = "" if group is None else "-".join(str(rank) for rank in members or [])
        if members == list(range(dist.get_world_size())):
            label, members = "", None
        if name in _COLLECTIVES:
            what, size_bytes = describe(given.get(_COLLECTIVES[name]))
            return Operation(name, what, size_bytes, None, label, members, is_collective=True)
        what, size_bytes = describe(given.get("tensor"))
        word = "dst" if name in SENDS else "src"
        peer = given.get(word)
        if peer is None and given.get(f"group_{word}") is not None:
            inner = given[f"group_{word}"]
            peer = inner if group is None else dist.get_global_rank(group, inner)
        return Operation(name, what, size_bytes, peer, label, members, given.get("tag", 0))
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None


def watched_work(work: Any, operation: Operation) -> Any:
    """Return the Work object in a wrapper whose `wait` is written down."""
    return _work_class()(work, operation)


@functools.cache
def _work_class() -> type:
    """Make the wrapper's class: a real `dist.Work`, so that isinstance and type checks hold."""
    import torch.distributed as dist

    class WatchedWork(dist.Work):  # type: ignore[misc]
        """A Work that says where it waits."""

        def __init__(self, work: Any, operation: Operation) -> None:
            super().__init__()
            self.work = work
            self.operation = operation

        def wait(self, *args: Any, **kwargs: Any) -> Any:
            with self.operation:
                result = self.work.wait(*args, **kwargs)
            self.operation.end()
            return result

        def is_completed(self) -> bool:
            done = bool(self.work.is_completed())
            if done:
                self.operation.end()
            return done

        def synchronize(self) -> None:
            with self.operation:
                self.work.synchronize()
            self.operation.end()

    for name in dir(dist.Work):
        if not name.startswith("__") and name not in vars(WatchedWork):
            setattr(WatchedWork, name, _forward(name))
    return WatchedWork


def _forward(name: str) -> Callable[..., Any]:
    def forwarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.work, name)(*args, **kwargs)

    forwarded.__name__ = name
    return forwarded
