"""Let `loss.backward()` run the blocks' backward passes of this folder instead of autograd's.

Backward stage. Autograd sees each block as one node: it hands over d_y, and gets d_x and the
gradients of the weights. One node has less to keep and to pass over than the hundred that its sums
and products would make, so a step is faster; and hooks on parameters still fire block by block.

B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.backward.blocks import block_backward
from course_lib.forward.blocks import BlockSaved, block
from course_lib.forward.model import Transformer
from course_lib.forward.weights import BlockWeights, named


def use_backward_by_hand(model: Transformer) -> Transformer:
    """Make the blocks of a readable model use their backward passes by hand; return the model.

    Args:
        model: with readable kernels, in float32 or float64 (under autocast the dtypes of what was
            saved and of d_y differ); changed in place, its parameters stay as they are.

    Raises:
        ValueError: the model has fused kernels, whose blocks save nothing.
    """
    if model.config.kernels != "readable":
        raise ValueError(
            f"kernels is {model.config.kernels!r}, which saves nothing for a backward pass: "
            f"use 'readable'."
        )
    model.run_block = _block_by_hand
    return model


def _block_by_hand(
    x: Float[Tensor, "B T D"],
    weights: BlockWeights,
    heads: int,
    kernels: str,
    dropout_probability: float,
    training: bool,
) -> tuple[Float[Tensor, "B T D"], BlockSaved | None]:
    flat = [tensor for _, tensor in named(weights)]
    return _Block.apply(x, weights, (heads, kernels, dropout_probability, training), *flat), None


class _Block(torch.autograd.Function):
    """A block as one node. The weights come twice: nested for us, flat for autograd to see."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weights: BlockWeights, settings: tuple, *flat: Tensor
    ) -> Tensor:
        y, ctx.saved = block(x, weights, *settings)
        return y

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.saved is None:
            raise RuntimeError("this backward pass ran before, and what it needs was let go.")
        d_x, d_weights = block_backward(ctx.saved, d_y)
        ctx.saved = None
        return d_x, None, None, *(gradient for _, gradient in named(d_weights))
