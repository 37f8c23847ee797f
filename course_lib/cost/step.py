"""The work of a training step, stage by stage: FLOPs and bytes, counted while it runs.

    work = StageWork()
    train_step(model, data, 0, optimizer, sync, config, work.stage)
    work.flops["forward"], work.size_bytes["forward"]

FLOPs are those of the matrix products (2 for a multiplication with its addition) and one for each
number that any other operation writes. Bytes are what every operation reads and writes, as if
each went to memory: the caches save some of it, so they are an upper bound of the true traffic.

N parameters, D tokens (here, as in the literature on scaling), in 6 N D.
Source of 6 N D: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

FORWARD_FLOPS, BACKWARD_FLOPS = 2, 4  # for each parameter and token


def step_flops(parameters: int, tokens: int) -> int:
    """Return 6 N D: 2 N D for the forward pass and 4 N D for the backward pass of D tokens.

    Args:
        parameters: N, those that a token is multiplied with; an embedding is looked up, and
            doesn't count.
        tokens: D, tokens in the step.
    """
    return (FORWARD_FLOPS + BACKWARD_FLOPS) * parameters * tokens


class WorkCounter(TorchDispatchMode):
    """Counts FLOPs and bytes of every operation in its block.

    flops: of matrix products 2 x m x k x n, of others one for each number written.
    size_bytes: read and written by operations that touch data; views cost nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.size_bytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch._dynamo: over a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count it."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not _is_free(func):
            read, written = _tensors((args, kwargs)), _tensors(out) or _tensors(args)
            self.size_bytes += sum(_bytes_of(tensor) for tensor in (*read, *written))
            known = flop_registry.get(func.overloadpacket)
            numbers = sum(tensor.numel() for tensor in written)
            self.flops += known(*args, **kwargs, out_val=out) if known else numbers
        return out


class StageWork:
    """Counts the work of each stage: `train_step(..., work.stage)`."""

    def __init__(self) -> None:
        self.flops: dict[str, int] = defaultdict(int)
        self.size_bytes: dict[str, int] = defaultdict(int)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the work of a block to `flops[name]` and `size_bytes[name]`."""
        with WorkCounter() as counter:
            yield
        self.flops[name] += counter.flops
        self.size_bytes[name] += counter.size_bytes


def _is_free(func: Any) -> bool:
    """Tell whether an operation only looks at the same memory in another way, or reserves some."""
    if func.namespace != "aten":
        return True
    name = func.overloadpacket.__name__
    returns = func._schema.returns
    is_view = bool(returns) and all(
        value.alias_info is not None and not value.alias_info.is_write for value in returns
    )
    return is_view or name in ("detach", "empty", "empty_like", "empty_strided", "_unsafe_view")


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _bytes_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
