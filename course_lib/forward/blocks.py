"""Attention, MLP and a whole block: layers put together, by readable or by fused kernels.

Forward stage. Each returns its output and what its backward pass needs, as the layers do. The
block is pre-norm: x + attention(norm(x)), then x + mlp(norm(x)); what was there is kept and
    something is added
(Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture").

B batch, T tokens, D width, H heads, K head width, F hidden width.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.forward import fused, layers
from course_lib.forward.layers import (
    CausalAttentionSaved,
    DropoutSaved,
    GeluSaved,
    LayerNormSaved,
    LinearSaved,
    dropout,
    join_heads,
    split_heads,
)
from course_lib.forward.weights import AttentionWeights, BlockWeights, LinearWeights, MlpWeights

KERNEL_MODULES: dict[str, ModuleType] = {"readable": layers, "fused": fused}


class AttentionSaved(NamedTuple):
    """What the backward pass of multi-head attention needs."""

    projections: LinearSaved
    core: CausalAttentionSaved
    output: LinearSaved


class MlpSaved(NamedTuple):
    """What the backward pass of an MLP needs."""

    up: LinearSaved
    gelu: GeluSaved
    down: LinearSaved


class BlockSaved(NamedTuple):
    """What the backward pass of a block needs."""

    norm1: LayerNormSaved
    attention: AttentionSaved
    dropout1: DropoutSaved
    norm2: LayerNormSaved
    mlp: MlpSaved
    dropout2: DropoutSaved


def stack_projections(weights: AttentionWeights) -> LinearWeights:
    """Stack the query, key and value projections: one product of 3 D rows is faster than three.

    The key, which has no bias, gets zeros.
    """
    stacked = (weights.query, weights.key, weights.value)
    no_bias = weights.key.weight.new_zeros(weights.key.weight.shape[0])
    biases = [no_bias if part.bias is None else part.bias for part in stacked]
    return LinearWeights(torch.cat([part.weight for part in stacked]), torch.cat(biases))


def attention(
    x: Float[Tensor, "B T D"], weights: AttentionWeights, heads: int, kernels: str = "readable"
) -> tuple[Float[Tensor, "B T D"], AttentionSaved]:
    """Let each token gather from those before it, in H heads side by side.

    Project to queries, keys and values, attend in each head, join the heads, project back.
    """
    use = KERNEL_MODULES[kernels]
    projected, saved_projections = use.linear(x, stack_projections(weights))
    q_BHTK, k_BHTK, v_BHTK = (split_heads(part, heads) for part in projected.chunk(3, dim=-1))
    gathered_BHTK, saved_core = use.causal_attention(q_BHTK, k_BHTK, v_BHTK)
    y, saved_output = use.linear(join_heads(gathered_BHTK), weights.output)
    return y, AttentionSaved(saved_projections, saved_core, saved_output)


def mlp(
    x: Float[Tensor, "B T D"], weights: MlpWeights, kernels: str = "readable"
) -> tuple[Float[Tensor, "B T D"], MlpSaved]:
    """Work on each token by itself: up to the hidden width, GELU, down again."""
    use = KERNEL_MODULES[kernels]
    hidden, saved_up = use.linear(x, weights.up)
    active, saved_gelu = use.gelu(hidden)
    y, saved_down = use.linear(active, weights.down)
    return y, MlpSaved(saved_up, saved_gelu, saved_down)


def block(
    x: Float[Tensor, "B T D"],
    weights: BlockWeights,
    heads: int,
    kernels: str = "readable",
    dropout_probability: float = 0.0,
    training: bool = False,
) -> tuple[Float[Tensor, "B T D"], BlockSaved]:
    """Return x + attention(norm(x)), then the same with the MLP."""
    use = KERNEL_MODULES[kernels]
    normed, saved_norm1 = use.layer_norm(x, weights.norm1)
    change, saved_attention = attention(normed, weights.attention, heads, kernels)
    change, saved_dropout1 = dropout(change, dropout_probability, training)
    x = x + change
    normed, saved_norm2 = use.layer_norm(x, weights.norm2)
    change, saved_mlp = mlp(normed, weights.mlp, kernels)
    change, saved_dropout2 = dropout(change, dropout_probability, training)
    saved = BlockSaved(
        saved_norm1, saved_attention, saved_dropout1, saved_norm2, saved_mlp, saved_dropout2
    )
    return x + change, saved
