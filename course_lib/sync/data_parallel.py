"""Data parallelism: every rank holds a replica and reads its own rows; the gradients become one.

`train_step` knows only the interface `GradientSync`, so that one path serves 1 and P ranks:

    scale = sync.loss_scale(count)   # before backward; count: positions in this rank's loss
    (loss * scale).backward()        # loss: the mean over those positions
    sync.finish()                    # after backward: .grad is equal on every rank, to the bit

Afterwards every gradient is that of the mean over everything that all ranks counted together. The
mean of the ranks' means would be another number where ranks count unequally: [1, 2, 3] and [10, 20]
have the mean 7.2, their means 2 and 15 the mean 8.5.

Here stand NoSync (one rank) and Flat (one all_reduce of all gradients in one flat buffer).

Letters: P ranks, N elements (all gradients, end to end).

Source: Li et al. 2020, "PyTorch Distributed", section 3.
"""

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn


class GradientSync(Protocol):
    """What a training step asks of any way to synchronise gradients."""

    def loss_scale(self, count: int) -> float:
        """Return the factor for this rank's mean loss over `count` positions, before backward."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a block in which gradients pile up on this rank, and `finish` sends nothing."""

    def finish(self) -> None:
        """Make `.grad` of every parameter the same on all ranks, after backward."""

    def mean(self, total: float, count: float) -> float:
        """Return sum of all ranks' totals / sum of all ranks' counts, for the log."""


class NoSync:
    """One rank: its gradients are already those of the whole batch."""

    def loss_scale(self, count: int) -> float:
        """Return 1: the mean over this rank's positions is the mean over all."""
        return 1.0

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a block that changes nothing."""
        return nullcontext()

    def finish(self) -> None:
        """Leave the gradients as they are."""

    def mean(self, total: float, count: float) -> float:
        """Return total / count (0 counted gives NaN)."""
        return total / count if count else float("nan")


class Flat:
    """P ranks: all gradients in one flat buffer, one all_reduce for each update.

    At construction every parameter and buffer of `module` becomes rank 0's, so that the replicas
    start equal whatever the ranks' seeds were. Frozen parameters are left out of the sync, tied
    ones go once. A parameter that no rank used keeps its gradient None; one that only some ranks
    used counts as zero on the others.

    Args:
        module: this rank's replica; its parameters are changed in place.
        group: the process group; None means all ranks.

    Cost of `finish`: one all_reduce of N + parameters + 1 elements; on a ring that is 2 (P - 1)
    steps and 2 (P - 1) / P times the buffer sent by each rank.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.params = [param for param in module.parameters() if param.requires_grad]
        self._count: int | None = None  # None: loss_scale has not been called for this update
        self._paused = False
        if not self.params:
            raise ValueError("the module has no parameter that requires a gradient")
        # Wide enough for every gradient, and for a count that bfloat16 would round.
        self._dtype = torch.float32
        for param in self.params:
            self._dtype = torch.promote_types(self._dtype, param.dtype)
        self._broadcast(module)

    def loss_scale(self, count: int) -> float:
        """Return the count itself: the mean loss becomes a sum, and `finish` divides once.

        Args:
            count: positions over which this rank's mean loss is taken; 0 where it had no rows.

        Returns:
            The factor for the mean loss. Without any call before `finish`, every rank weighs 1.

        Raises:
            ValueError: if count is negative.
        """
        if count < 0:
            raise ValueError(f"count is {count}: a rank counts 0 positions or more")
        self._count = (self._count or 0) + count
        return float(count)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients of several backward passes pile up: inside, `finish` sends nothing."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    @torch.no_grad()
    def finish(self) -> None:
        """Turn each gradient into sum over ranks / sum of counts: `dW{partial over ranks}` -> `dW`.

        Raises:
            ValueError: if no rank counted anything.
        """
        if self._paused:
            return
        weight = 1 if self._count is None else self._count
        self._count = None
        flat = self._pack(weight)
        dist.all_reduce(flat, op=dist.ReduceOp.SUM, group=self.group)
        self._unpack(flat)

    def mean(self, total: float, count: float) -> float:
        """Return sum of totals / sum of counts over all ranks (in float64, for the log)."""
        both = torch.tensor([total, count], dtype=torch.float64, device=self.params[0].device)
        dist.all_reduce(both, op=dist.ReduceOp.SUM, group=self.group)
        total_of_all, count_of_all = both.tolist()
        return total_of_all / count_of_all if count_of_all else float("nan")

    def _pack(self, weight: int) -> Tensor:
        """Lay all gradients end to end, then which of them exist here, then this rank's weight."""
        parts = [
            torch.zeros_like(param) if param.grad is None else param.grad for param in self.params
        ]
        used = [float(param.grad is not None) for param in self.params]
        tail = torch.tensor([*used, weight], dtype=self._dtype, device=parts[0].device)
        return torch.cat([*(part.reshape(-1).to(self._dtype) for part in parts), tail])

    def _unpack(self, flat: Tensor) -> None:
        sizes = [param.numel() for param in self.params]
        *grads, used, weight = flat.split([*sizes, len(sizes), 1])
        if not weight.item() > 0:
            raise ValueError("no rank counted a position in the loss: look at the batch's mask")
        flat.div_(weight.clone())
        for param, grad, times in zip(self.params, grads, used.tolist(), strict=True):
            if times and param.grad is None:
                param.grad = grad.view_as(param).to(param.dtype, copy=True)
            elif times:
                param.grad.copy_(grad.view_as(param))  # type: ignore[union-attr]

    @torch.no_grad()
    def _broadcast(self, module: nn.Module) -> None:
        source = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()  # a transposed parameter is copied there and back
            dist.broadcast(whole, src=source, group=self.group)
            if whole.data_ptr() != tensor.data_ptr():
                tensor.copy_(whole)


def differing_replicas(
    module: nn.Module, group: dist.ProcessGroup | None = None
) -> dict[int, list[str]]:
    """Compare all ranks' replicas with rank 0's, to the bit; a collective call.

    Args:
        module: this rank's replica; not changed.
        group: the process group; None means all ranks.

    Returns:
        For each rank that differs, the names of its parameters and buffers that do; {} if all are
        equal, or if there is only one rank. The same on every rank.

    Cost: one all_gather of 8 bytes for each parameter, so that a check after each step is cheap.
    """
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return {}
    named = [*module.named_parameters(), *module.named_buffers()]
    device = named[0][1].device
    mine = torch.tensor([_digest(tensor) for _, tensor in named], device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, mine, group=group)
    differing = {}
    for rank, theirs in enumerate(everyone):
        unequal = (theirs != everyone[0]).tolist()
        names = [name for (name, _), bad in zip(named, unequal, strict=True) if bad]
        if names:
            differing[rank] = names
    return differing


def check_replicas(module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Raise a RuntimeError that names the ranks whose replica is not rank 0's, to the bit."""
    differing = differing_replicas(module, group)
    if differing:
        ranks = "; ".join(
            f"rank {rank} in {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            for rank, names in differing.items()
        )
        raise RuntimeError(
            f"the replicas have drifted apart from rank 0's: {ranks}; "
            "a gradient was not synchronised, or a rank changed its parameters alone"
        )


def _digest(tensor: Tensor) -> int:
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big", signed=True)
