"""The backward pass of each layer by hand, in the order of forward/layers.py.

Backward stage. Each takes what its layer saved and d_y, the gradient of the loss by the layer's
output, and returns the gradients by its inputs and weights (in the weights' own tuples). Neither
saved nor d_y is changed; steps in place (with _) work on numbers of our own, which spares memory
traffic. Rule for all of them: what was broadcast forward is summed backward. Rumelhart, Hinton,
Williams 1986.

B batch, T tokens (T a query's place, S a key's), D width, H heads, K head width, F hidden width, V
vocabulary, I and O a linear layer's inputs and outputs. `...` stands for any leading dimensions.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.forward.layers import (
    CausalAttentionSaved,
    DropoutSaved,
    EmbeddingSaved,
    GeluSaved,
    LayerNormSaved,
    LinearSaved,
    softmax,
)
from course_lib.forward.weights import LinearWeights, NormWeights


def embedding_backward(saved: EmbeddingSaved, d_y: Float[Tensor, "... D"]) -> Float[Tensor, "V D"]:
    """Add d_y to the row that was looked up: a token that came twice gets the sum of both."""
    width = d_y.shape[-1]
    d_weight = d_y.new_zeros(saved.rows, width)
    return d_weight.index_add(0, saved.tokens.reshape(-1), d_y.reshape(-1, width))


def linear_backward(
    saved: LinearSaved, d_y: Float[Tensor, "... O"]
) -> tuple[Float[Tensor, "... I"], LinearWeights]:
    """Return d_x = d_y W, d_W = d_y^T x and d_b = sum of d_y.

    The last two are summed over all leading dimensions, since W and b served each row.
    """
    x, weights = saved
    d_y_rows, x_rows = d_y.reshape(-1, d_y.shape[-1]), x.reshape(-1, x.shape[-1])
    d_bias = None if weights.bias is None else d_y_rows.sum(dim=0)
    return d_y @ weights.weight, LinearWeights(d_y_rows.T @ x_rows, d_bias)


def layer_norm_backward(
    saved: LayerNormSaved, d_y: Float[Tensor, "... D"]
) -> tuple[Float[Tensor, "... D"], NormWeights]:
    """Return d_x = (d_n - mean d_n - n mean(d_n n)) / std, where n is the normalised x and d_n =
    d_y w.

    The two means are the ways through the mean and through the variance: shifting or stretching x
        changes
    nothing, so d_x has no part in those two directions.
    """
    normalised, inverse_std, weights = saved
    d_normalised = d_y * weights.weight
    shift = d_normalised.mean(dim=-1, keepdim=True)
    stretch = (d_normalised * normalised).mean(dim=-1, keepdim=True)
    d_x = d_normalised.sub_(shift).addcmul_(normalised, stretch, value=-1).mul_(inverse_std)
    leading = tuple(range(d_y.ndim - 1))
    d_weight, d_bias = d_y * normalised, d_y
    if leading:
        d_weight, d_bias = d_weight.sum(dim=leading), d_bias.sum(dim=leading)
    return d_x, NormWeights(d_weight, d_bias)


def gelu_backward(saved: GeluSaved, d_y: Float[Tensor, "... F"]) -> Float[Tensor, "... F"]:
    """Return d_y (P + x p), with the normal distribution P and its density p at x.

    The product rule on x P(x): the derivative of P is p.
    """
    x, probability = saved
    bell = x.square().mul_(-0.5).exp_()  # the density times sqrt(2 pi)
    slope = torch.addcmul(probability, x, bell, value=1 / math.sqrt(2 * math.pi), out=bell)
    return slope.mul_(d_y)


def softmax_backward(
    y: Float[Tensor, "... N"], d_y: Float[Tensor, "... N"]
) -> Float[Tensor, "... N"]:
    """Return y (d_y - sum of y d_y), from softmax's output y.

    The shares always add up to 1, so d_x adds up to 0.
    """
    return (d_y - (y * d_y).sum(dim=-1, keepdim=True)).mul_(y)


def causal_attention_backward(
    saved: CausalAttentionSaved, d_y_BHTK: Float[Tensor, "B H T K"]
) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T K"], Float[Tensor, "B H T K"]]:
    """Return d_q, d_k and d_v, through the product with v, softmax and the scaled scores.

    Where the mask forbade a look, the pattern is 0 and so is the gradient.
    """
    q_BHTK, k_BHTK, v_BHTK, pattern_BHTS = saved
    d_v_BHTK = pattern_BHTS.transpose(-2, -1) @ d_y_BHTK
    d_pattern_BHTS = d_y_BHTK @ v_BHTK.transpose(-2, -1)
    d_scores_BHTS = softmax_backward(pattern_BHTS, d_pattern_BHTS)
    scale = 1 / math.sqrt(q_BHTK.shape[-1])
    d_q_BHTK = (d_scores_BHTS @ k_BHTK).mul_(scale)
    d_k_BHTK = (d_scores_BHTS.transpose(-2, -1) @ q_BHTK).mul_(scale)
    return d_q_BHTK, d_k_BHTK, d_v_BHTK


def split_heads_backward(d_y_BHTK: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T D"]:
    """Put the heads' gradients side by side: moving numbers moves their gradients back."""
    return d_y_BHTK.transpose(1, 2).flatten(-2)


def join_heads_backward(d_y: Float[Tensor, "B T D"], heads: int) -> Float[Tensor, "B H T K"]:
    """Cut the gradient into the heads' parts."""
    return d_y.unflatten(-1, (heads, -1)).transpose(1, 2)


def dropout_backward(saved: DropoutSaved, d_y: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return d_y, times the same factor: 0 where the output was dropped."""
    return d_y if saved.factor is None else d_y * saved.factor


def cross_entropy_backward(
    logits: Float[Tensor, "... V"],
    targets: Int[Tensor, "..."],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "... V"]:
    """Return (p - y) / count: what the model believed less what was right, 0 where the mask is
    False.

    The gradient of loss.cross_entropy, the mean over the tokens that count.
    """
    d_logits = softmax(logits)
    answers = targets.unsqueeze(-1)
    d_logits = d_logits.scatter_add(-1, answers, torch.full_like(answers, -1, dtype=logits.dtype))
    if mask is None:
        return d_logits / max(targets.numel(), 1)
    return d_logits.masked_fill(~mask.unsqueeze(-1), 0.0) / max(int(mask.sum()), 1)
