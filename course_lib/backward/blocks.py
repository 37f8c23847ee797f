"""The backward pass of attention, MLP and a whole block by hand, in the order of forward/blocks.py.

Backward stage. Each walks its forward pass from the end to the start. Where a value was used twice
(the stream goes on and into a layer), its gradient is the sum of both ways.

B batch, T tokens, D width.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.backward.layers import (
    causal_attention_backward,
    dropout_backward,
    gelu_backward,
    join_heads_backward,
    layer_norm_backward,
    linear_backward,
    split_heads_backward,
)
from course_lib.forward.blocks import AttentionSaved, BlockSaved, MlpSaved
from course_lib.forward.weights import AttentionWeights, BlockWeights, LinearWeights, MlpWeights


def unstack_projections(stacked: LinearWeights) -> list[LinearWeights]:
    """Take apart what blocks.stack_projections stacked: query, key and value."""
    assert stacked.bias is not None
    pairs = zip(stacked.weight.chunk(3), stacked.bias.chunk(3), strict=True)
    return [LinearWeights(weight, bias) for weight, bias in pairs]


def attention_backward(
    saved: AttentionSaved, d_y: Float[Tensor, "B T D"]
) -> tuple[Float[Tensor, "B T D"], AttentionWeights]:
    """Return d_x and the weights' gradients.

    The product with the stacked matrices sums d_x over the ways through query, key and value.
    """
    heads = saved.core.q_BHTK.shape[1]
    d_joined, d_output = linear_backward(saved.output, d_y)
    d_q_BHTK, d_k_BHTK, d_v_BHTK = causal_attention_backward(
        saved.core, join_heads_backward(d_joined, heads)
    )
    d_parts = [split_heads_backward(part) for part in (d_q_BHTK, d_k_BHTK, d_v_BHTK)]
    d_x, d_stacked = linear_backward(saved.projections, torch.cat(d_parts, dim=-1))
    d_query, d_key, d_value = unstack_projections(d_stacked)
    return d_x, AttentionWeights(d_query, d_key._replace(bias=None), d_value, d_output)


def mlp_backward(
    saved: MlpSaved, d_y: Float[Tensor, "B T D"]
) -> tuple[Float[Tensor, "B T D"], MlpWeights]:
    """Return d_x and the weights' gradients."""
    d_active, d_down = linear_backward(saved.down, d_y)
    d_hidden = gelu_backward(saved.gelu, d_active)
    d_x, d_up = linear_backward(saved.up, d_hidden)
    return d_x, MlpWeights(d_up, d_down)


def block_backward(
    saved: BlockSaved, d_y: Float[Tensor, "B T D"]
) -> tuple[Float[Tensor, "B T D"], BlockWeights]:
    """Return d_x and the weights' gradients of x + attention(norm(x)), then the same with the
    MLP."""
    d_change = dropout_backward(saved.dropout2, d_y)
    d_normed, d_mlp = mlp_backward(saved.mlp, d_change)
    d_through, d_norm2 = layer_norm_backward(saved.norm2, d_normed)
    d_y = d_y + d_through
    d_change = dropout_backward(saved.dropout1, d_y)
    d_normed, d_attention = attention_backward(saved.attention, d_change)
    d_through, d_norm1 = layer_norm_backward(saved.norm1, d_normed)
    return d_y + d_through, BlockWeights(d_norm1, d_attention, d_norm2, d_mlp)
