"""The same three layers by torch's fused kernels: one pass over the data where the readable ones
take several.

They keep nothing for a backward pass by hand (autograd keeps its own). Forward stage.

B batch, T tokens, D width, H heads, K head width, F hidden width.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from course_lib.forward.weights import LinearWeights, NormWeights


def linear(
    x: Float[Tensor, "... I"], weights: LinearWeights
) -> tuple[Float[Tensor, "... O"], None]:
    """Return layers.linear's output from F.linear."""
    return F.linear(x, weights.weight, weights.bias), None


def layer_norm(
    x: Float[Tensor, "... D"], weights: NormWeights, eps: float = 1e-5
) -> tuple[Float[Tensor, "... D"], None]:
    """Return layers.layer_norm's output from F.layer_norm."""
    return F.layer_norm(x, x.shape[-1:], weights.weight, weights.bias, eps), None


def gelu(x: Float[Tensor, "... F"]) -> tuple[Float[Tensor, "... F"], None]:
    """Return layers.gelu's output from F.gelu."""
    return F.gelu(x), None


def causal_attention(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T K"],
) -> tuple[Float[Tensor, "B H T K"], None]:
    """Return layers.causal_attention's output from F.scaled_dot_product_attention."""
    return F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True), None
