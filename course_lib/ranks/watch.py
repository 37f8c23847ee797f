"""A thin wrapper around torch.distributed's functions in a rank, which writes down each call.

Work objects are wrapped too: a `wait()` is a place to be stuck in. What torch calls from its
compiled code (DDP's own all_reduces) doesn't pass through here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from course_lib.ranks.blackboard import Blackboard
from course_lib.ranks.operations import RECEIVES, SENDS, Operation, describe, start_afresh

# Which argument holds the tensor that the bytes are counted of.
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
_local = threading.local()  # whether this thread is inside a watched call already


def install(board: Blackboard | None, rank: int) -> None:
    """Watch torch.distributed in this rank from now on; what was counted before is forgotten."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    start_afresh(board, rank)
    for name in (*_COLLECTIVES, *SENDS, *RECEIVES):
        original = getattr(distributed_c10d, name, None)
        if original is None or hasattr(original, "_course_watched"):
            continue  # this torch doesn't have it, or it is watched already
        wrapped = _watch(name, original)
        wrapped._course_watched = True  # type: ignore[attr-defined]
        setattr(distributed_c10d, name, wrapped)
        setattr(dist, name, wrapped)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Let calls of the block go by: whoever makes them writes them down itself."""
    before = getattr(_local, "inside", False)
    _local.inside = True
    try:
        yield
    finally:
        _local.inside = before


def _watch(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    names = list(inspect.signature(original).parameters)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if getattr(_local, "inside", False):
            return original(*args, **kwargs)
        _local.inside = True
        try:
            operation = _begin(name, dict(zip(names, args, strict=False)) | kwargs)
            if operation is None:
                return original(*args, **kwargs)
            with operation:
                result = original(*args, **kwargs)
            if hasattr(result, "wait"):
                return watched_work(result, operation)
            operation.end()
            return result
        finally:
            _local.inside = False

    return watched


def _begin(name: str, given: dict[str, Any]) -> Operation | None:
    """Number and describe a call; None where its arguments are wrong, as the call will say."""
    try:
        label, members = _group_of(given.get("group"))
        if name in _COLLECTIVES:
            what, size_bytes = describe(given.get(_COLLECTIVES[name]))
            root = _root(given)
            return Operation(
                name, what, size_bytes, None, label, members, is_collective=True, root=root
            )
        what, size_bytes = describe(given["tensor"])
        peer = _peer(given, "dst" if name in SENDS else "src")
        return Operation(name, what, size_bytes, peer, label, members, given.get("tag", 0))
    except (KeyError, TypeError, ValueError, RuntimeError):
        return None


def _group_of(group: Any) -> tuple[str, list[int] | None]:
    """Return a group's label and members: ("", None) for all ranks."""
    import torch.distributed as dist

    if group is None or group is dist.group.WORLD:
        return "", None
    members = dist.get_process_group_ranks(group)
    return "-".join(str(rank) for rank in members), members


def _peer(given: dict[str, Any], word: str) -> int | None:
    """Return the other rank's number in the world; None for a receive from anyone."""
    import torch.distributed as dist

    if given.get(word) is not None:
        return int(given[word])
    inner, group = given.get(f"group_{word}"), given.get("group")
    if inner is None:
        return None
    return int(inner if group is None else dist.get_global_rank(group, inner))


def _root(given: dict[str, Any]) -> str:
    """Name the root of a collective that has one: ranks that name different ones never meet."""
    if given.get("src") is not None:
        return f" from rank {given['src']}"
    if given.get("dst") is not None:
        return f" to rank {given['dst']}"
    return ""


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
