"""One batch of rows: what goes into the model, what should come out, and what counts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Batch(NamedTuple):
    """Rows of tokens with their answers.

    inputs: the tokens that the model reads.
    targets: at each position the token that comes next.
    mask: True where the answer counts in the loss.
    """

    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]

    def rows(self, chosen: slice | Tensor) -> Batch:
        """Return some of the rows (views where the choice is a slice)."""
        return Batch(*(tensor[chosen] for tensor in self))

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device."""
        return Batch(*(tensor.to(device) for tensor in self))
