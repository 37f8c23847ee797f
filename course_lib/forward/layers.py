"""The layers of a Transformer by hand: each returns its output and what its backward pass needs.

Forward stage. Nothing here but sums, products, exp, erf and the like: torch's own layer_norm, gelu
and attention are in forward/fused.py, and tests hold the two together. Vaswani et al. 2017,
"Attention Is All You Need".

B batch, T tokens (T a query's place, S a key's), D width, H heads, K head width, F hidden width, V
vocabulary, I and O a linear layer's inputs and outputs. `...` stands for any leading dimensions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.forward.weights import LinearWeights, NormWeights


class EmbeddingSaved(NamedTuple):
    """What the backward pass of an embedding needs."""

    tokens: Int[Tensor, "..."]
    rows: int


class LinearSaved(NamedTuple):
    """What the backward pass of a linear layer needs."""

    x: Float[Tensor, "... I"]
    weights: LinearWeights


class LayerNormSaved(NamedTuple):
    """What the backward pass of a layer norm needs."""

    normalised: Float[Tensor, "... D"]
    inverse_std: Float[Tensor, "... 1"]
    weights: NormWeights


class GeluSaved(NamedTuple):
    """What the backward pass of a GELU needs."""

    x: Float[Tensor, "... F"]
    probability: Float[Tensor, "... F"]


class CausalAttentionSaved(NamedTuple):
    """What the backward pass of causal attention needs."""

    q_BHTK: Float[Tensor, "B H T K"]
    k_BHTK: Float[Tensor, "B H T K"]
    v_BHTK: Float[Tensor, "B H T K"]
    pattern_BHTS: Float[Tensor, "B H T S"]


class DropoutSaved(NamedTuple):
    """What the backward pass of a dropout needs.

    factor: 0 where x was dropped, 1 / (1 - p) elsewhere; None where dropout was off.
    """

    factor: Float[Tensor, "..."] | None


def embedding(
    tokens: Int[Tensor, "..."], weight: Float[Tensor, "V D"]
) -> tuple[Float[Tensor, "... D"], EmbeddingSaved]:
    """Look up a row of weight for each token."""
    # Not weight[tokens]: autograd's backward for that adds from several threads in any order, so
    # two equal runs would not end with the same bits, and it takes 15 times as long.
    rows = weight.index_select(0, tokens.reshape(-1))
    return rows.view(*tokens.shape, -1), EmbeddingSaved(tokens, weight.shape[0])


def linear(
    x: Float[Tensor, "... I"], weights: LinearWeights
) -> tuple[Float[Tensor, "... O"], LinearSaved]:
    """Return x W^T + b (or without b, where it is None)."""
    weight, bias = weights
    if bias is None:
        return x @ weight.T, LinearSaved(x, weights)
    rows = x.reshape(-1, x.shape[-1])
    y = torch.addmm(bias, rows, weight.T)  # b + rows W^T in one pass over y
    return y.reshape(*x.shape[:-1], -1), LinearSaved(x, weights)


def layer_norm(
    x: Float[Tensor, "... D"], weights: NormWeights, eps: float = 1e-5
) -> tuple[Float[Tensor, "... D"], LayerNormSaved]:
    """Return (x - mean) / sqrt(variance + eps) w + b, mean and variance over each token's vector.

    The variance divides by D, not by D - 1. Ba, Kiros, Hinton 2016, "Layer Normalization".
    """
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    inverse_std = (variance + eps).rsqrt()
    normalised = centred * inverse_std
    y = torch.addcmul(weights.bias, normalised, weights.weight)  # b + n w in one pass
    return y, LayerNormSaved(normalised, inverse_std, weights)


def gelu(x: Float[Tensor, "... F"]) -> tuple[Float[Tensor, "... F"], GeluSaved]:
    """Return x P(Z <= x) for a standard normal Z: the exact GELU by erf, torch's default.

    Hendrycks, Gimpel 2016, "Gaussian Error Linear Units".
    """
    # In place (with _) on numbers of our own: it spares memory traffic, and changes no input.
    probability = torch.erf(x * math.sqrt(0.5)).add_(1).mul_(0.5)
    return x * probability, GeluSaved(x, probability)


def softmax(x: Float[Tensor, "... N"]) -> Float[Tensor, "... N"]:
    """Return exp(x) / sum exp(x): scores become shares that add up to 1.

    The largest score is taken off first, so that exp can't overflow; the result is the same.
    """
    largest = x.detach().amax(dim=-1, keepdim=True)  # no gradient: a shift changes nothing
    exponential = (x - largest).exp_()
    return exponential / exponential.sum(dim=-1, keepdim=True)


def causal_mask(tokens: int, device: torch.device | None = None) -> Bool[Tensor, "T S"]:
    """Return True where a token must not look: at those after it."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu(diagonal=1)


def causal_attention(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T K"],
) -> tuple[Float[Tensor, "B H T K"], CausalAttentionSaved]:
    """Return softmax(q k^T / sqrt(K), later tokens forbidden) v.

    The scale keeps the scores' deviation at 1: a sum over K products of size 1 has the deviation
    sqrt(K).
    """
    tokens, head_width = q_BHTK.shape[-2:]
    q_BHTK, k_BHTK, v_BHTK = (part.contiguous() for part in (q_BHTK, k_BHTK, v_BHTK))
    scores_BHTS = (q_BHTK / math.sqrt(head_width)) @ k_BHTK.transpose(-2, -1)
    scores_BHTS.masked_fill_(causal_mask(tokens, q_BHTK.device), -math.inf)
    pattern_BHTS = softmax(scores_BHTS)
    return pattern_BHTS @ v_BHTK, CausalAttentionSaved(q_BHTK, k_BHTK, v_BHTK, pattern_BHTS)


def split_heads(x: Float[Tensor, "B T D"], heads: int) -> Float[Tensor, "B H T K"]:
    """Cut each token's vector into H parts of K = D / H: the heads work side by side."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x_BHTK: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T D"]:
    """Put the heads' parts together again, the inverse of split_heads."""
    return x_BHTK.transpose(1, 2).flatten(-2)


def dropout(
    x: Float[Tensor, "..."], probability: float, training: bool
) -> tuple[Float[Tensor, "..."], DropoutSaved]:
    """While training, set a share of x to 0 and scale up the rest so that the mean stays.

    Draws from torch's global generator. Does nothing in evaluation. Srivastava et al. 2014,
    "Dropout".
    """
    if not training or probability == 0:
        return x, DropoutSaved(None)
    keep = torch.rand_like(x) >= probability
    factor = keep.to(x.dtype) / (1 - probability)
    return x * factor, DropoutSaved(factor)
