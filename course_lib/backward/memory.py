"""What a backward pass must be told: how many bytes a forward pass keeps for it.

Backward stage. By formula for our own layers, and counted: in the tuples that they save, and in
what autograd saves. A tensor that is kept twice (the input of query, key and value) takes its bytes
once; weights are there anyway and don't count.

B batch, T tokens, D width, H heads, F hidden width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from course_lib.forward.weights import LinearWeights, NormWeights


def block_saved_bytes(
    batch: int, tokens: int, width: int, heads: int, hidden: int, element_bytes: int = 4
) -> dict[str, int]:
    """Return the bytes that one block's forward pass keeps, by piece.

    Args:
        batch: B, rows.
        tokens: T, tokens in a row.
        width: D.
        heads: H; only the attention pattern, H T numbers a token, depends on it.
        hidden: F.
        element_bytes: the size of a number, 4 in float32.
    """
    numbers_per_token = {
        "norms": 2 * (width + 1),  # the normalised x, and 1 / std
        "input of q, k, v": width,
        "q, k, v": 3 * width,
        "pattern": heads * tokens,
        "input of output": width,
        "input of up": width,
        "GELU": 2 * hidden,  # its input, and P
        "input of down": hidden,
    }
    return {
        piece: batch * tokens * numbers * element_bytes
        for piece, numbers in numbers_per_token.items()
    }


def saved_bytes(saved: Any) -> int:
    """Return the bytes of the tensors in nested tuples, each once, weights left out."""
    return _bytes_once(_tensors(saved))


@contextmanager
def autograd_saves(weights: Iterable[Tensor] = ()) -> Iterator[list[Tensor]]:
    """Collect the tensors that autograd saves for its backward pass in this block.

    Args:
        weights: tensors that are there anyway, and are left out.

    Yields:
        A list that fills while the block runs; `saved_bytes` counts it.
    """
    known = {weight.untyped_storage().data_ptr() for weight in weights}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in known:
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept


def _tensors(saved: Any) -> Iterator[Tensor]:
    if isinstance(saved, Tensor):
        yield saved
    elif isinstance(saved, tuple | list) and not isinstance(saved, LinearWeights | NormWeights):
        for part in saved:
            yield from _tensors(part)


def _bytes_once(tensors: Iterable[Tensor]) -> int:
    storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())
