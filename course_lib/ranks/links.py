"""send, recv, isend, irecv and exchange between two ranks: the only way collectives move data.

The same collective runs over TCP or NCCL (the process group, the default), over shared memory, or
over a link that is slowed down to a given latency and rate, and is counted the same way:

    with links.over(Throttled(latency_s=1e-3, bandwidth_bytes_per_s=1e8)):
        ring_all_reduce(tensor)

All ranks choose the same link, at the same place of the program. Ranks are numbered as in the
world. Every call is written down for the who-waits report and given to `course_lib.trace`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from course_lib.ranks.operations import Operation, describe
from course_lib.ranks.watch import unwatched


class Transfer(Protocol):
    """A send or receive that has been started."""

    def wait(self) -> Any:
        """Return when the tensor may be used again (with NCCL: by work queued after it)."""

    def is_completed(self) -> bool:
        """Tell whether `wait` would return at once."""


class Link(Protocol):
    """A way from each rank to each other one; messages of a pair arrive in order."""

    name: str

    def isend(self, tensor: Tensor, dst: int) -> Transfer:
        """Start to send a contiguous tensor; it must not change before the transfer ends."""

    def irecv(self, tensor: Tensor, src: int) -> Transfer:
        """Start to receive into a contiguous tensor of the size that is sent."""


class GroupLink:
    """The process group's own transport: gloo over TCP, or NCCL for tensors on GPUs."""

    name = ""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group

    def isend(self, tensor: Tensor, dst: int) -> Transfer:
        """See Link."""
        with unwatched():
            return dist.isend(tensor, dst, group=self.group)  # type: ignore[return-value]

    def irecv(self, tensor: Tensor, src: int) -> Transfer:
        """See Link."""
        with unwatched():
            return dist.irecv(tensor, src, group=self.group)  # type: ignore[return-value]


class Throttled:
    """Another link, slowed down as if each rank had one network card of a given speed.

    A message leaves when those before it have left (size / bandwidth each) and arrives `latency_s`
    later. The receiver is told the moment of arrival and waits for it, so that sending overlaps
    with computing as on a real network. The wait ends up to about 0.1 ms late.

    Args:
        latency_s: from the last byte's departure to its arrival, in seconds.
        bandwidth_bytes_per_s: of each rank's card; what comes in is not slowed down.
        link: what carries the bytes; None means the process group.

    Raises:
        ValueError: latency_s is negative or bandwidth_bytes_per_s is not positive.
    """

    def __init__(
        self, latency_s: float, bandwidth_bytes_per_s: float, link: Link | None = None
    ) -> None:
        if not latency_s >= 0:
            raise ValueError(f"latency_s is {latency_s!r}: give 0 or more seconds.")
        if not bandwidth_bytes_per_s > 0:
            raise ValueError(
                f"bandwidth_bytes_per_s is {bandwidth_bytes_per_s!r}: give a positive number."
            )
        self.latency_s = latency_s
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self.link = link or GroupLink()
        self.name = f"throttled {self.link.name}"
        self._free_at_s = 0.0

    def isend(self, tensor: Tensor, dst: int) -> Transfer:
        """See Link."""
        size_bytes = tensor.numel() * tensor.element_size()
        start_s = max(time.monotonic(), self._free_at_s)
        self._free_at_s = start_s + size_bytes / self.bandwidth_bytes_per_s
        arrival = torch.tensor([self._free_at_s + self.latency_s], dtype=torch.float64)
        parts = [self.link.isend(arrival, dst), self.link.isend(tensor, dst)]
        # In float64: seconds since the start of the machine don't fit into a float32.
        free_at = torch.tensor([self._free_at_s], dtype=torch.float64)
        return _Slowed(parts, free_at, tensor, [arrival])

    def irecv(self, tensor: Tensor, src: int) -> Transfer:
        """See Link."""
        arrival = torch.empty(1, dtype=torch.float64)
        parts = [self.link.irecv(arrival, src), self.link.irecv(tensor, src)]
        return _Slowed(parts, arrival, tensor, [])


class _Slowed:
    """A transfer that ends at a given moment, or later if the bytes come later."""

    def __init__(
        self, parts: list[Transfer], until_s: Tensor, tensor: Tensor, alive: list[Tensor]
    ) -> None:
        self._parts = parts
        self._until_s = until_s  # filled in by the first part where this is a receive
        self._tensor = tensor
        self._alive = alive  # what is being sent must not be freed

    def wait(self) -> None:
        for part in self._parts:
            part.wait()
        if self._tensor.is_cuda:
            torch.cuda.current_stream().synchronize()
        left_s = self._until_s.item() - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)

    def is_completed(self) -> bool:
        arrived = all(part.is_completed() for part in self._parts)
        return arrived and time.monotonic() >= self._until_s.item()


_default = GroupLink()
_link: Link = _default


@contextlib.contextmanager
def over(link: Link) -> Iterator[None]:
    """Let every send and receive of the block use `link`, on this rank (do so on all)."""
    global _link
    before, _link = _link, link
    try:
        yield
    finally:
        _link = before


def _for(group: dist.ProcessGroup | None) -> Link:
    return GroupLink(group) if group is not None and _link is _default else _link


class LinkWork:
    """A started transfer of this module: `wait()` for it before you touch the tensor."""

    def __init__(self, transfer: Transfer, operation: Operation) -> None:
        self._transfer = transfer
        self._operation = operation

    def wait(self) -> None:
        """Return when the transfer has ended; where it stands is known to the parent."""
        with self._operation:
            self._transfer.wait()
        self._operation.end()

    def is_completed(self) -> bool:
        """Tell whether `wait` would return at once."""
        done = bool(self._transfer.is_completed())
        if done:
            self._operation.end()
        return done


def isend(tensor: Tensor, dst: int, group: dist.ProcessGroup | None = None) -> LinkWork:
    """Start to send a contiguous tensor to rank `dst`; sends its bytes once.

    Raises:
        ValueError: the tensor is not contiguous, or dst is this rank or none.
    """
    _check(tensor, dst, "send to")
    link = _for(group)
    operation = _operation("isend", tensor, dst, link)
    return LinkWork(link.isend(tensor, dst), operation)


def irecv(tensor: Tensor, src: int, group: dist.ProcessGroup | None = None) -> LinkWork:
    """Start to receive from rank `src` into a contiguous tensor; see `isend`."""
    _check(tensor, src, "receive from")
    link = _for(group)
    operation = _operation("irecv", tensor, src, link)
    return LinkWork(link.irecv(tensor, src), operation)


def send(tensor: Tensor, dst: int, group: dist.ProcessGroup | None = None) -> None:
    """Send a contiguous tensor to rank `dst`; on gloo this waits until the other side receives."""
    _check(tensor, dst, "send to")
    link = _for(group)
    operation = _operation("send", tensor, dst, link)
    with operation:
        link.isend(tensor, dst).wait()
    operation.end()


def recv(tensor: Tensor, src: int, group: dist.ProcessGroup | None = None) -> None:
    """Receive from rank `src` into a contiguous tensor."""
    _check(tensor, src, "receive from")
    link = _for(group)
    operation = _operation("recv", tensor, src, link)
    with operation:
        link.irecv(tensor, src).wait()
    operation.end()


def exchange(
    outgoing: Tensor,
    dst: int,
    incoming: Tensor,
    src: int,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Send to `dst` and receive from `src` at the same time: what a ring does at each step.

    On NCCL the two are one batch: a send before a receive on one pair would wait for ever.
    """
    link = _for(group)
    if isinstance(link, GroupLink) and outgoing.is_cuda:
        operations = [
            dist.P2POp(dist.isend, outgoing, dst, link.group),
            dist.P2POp(dist.irecv, incoming, src, link.group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return
    sending = isend(outgoing, dst, group)
    receiving = irecv(incoming, src, group)
    receiving.wait()
    sending.wait()


def _operation(name: str, tensor: Tensor, peer: int, link: Link) -> Operation:
    what, size_bytes = describe(tensor)
    group = getattr(link, "group", None)
    members = dist.get_process_group_ranks(group) if group is not None else None
    label = "" if members is None else "-".join(str(rank) for rank in members)
    return Operation(name, what, size_bytes, peer, label, members, tag=link.name or 0)


def _check(tensor: Tensor, peer: int, verb: str) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if not 0 <= peer < world_size or peer == rank:
        raise ValueError(
            f"rank {rank} can't {verb} rank {peer}: the others are among 0 to {world_size - 1}."
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} is not "
            "contiguous: take .contiguous(), or a chunk of the flat tensor."
        )
