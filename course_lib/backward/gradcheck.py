"""Is a gradient right? Finite differences, and a measure of error that no zero can slip through.

Backward stage. A finite difference asks the loss itself, so it is independent of autograd and of
our formulas.

N elements of a tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

# Central differences err by epsilon^2 from the curve and by 1e-16 / epsilon from rounding:
# together least near the cube root of 1e-16 (float64).
EPSILON = 1e-5
SMALLEST_SHARE = 1e-6


@torch.no_grad()
def numerical_gradient(
    loss: Callable[[], Tensor], tensor: Float[Tensor, "..."], epsilon: float = EPSILON
) -> Float[Tensor, "..."]:
    """Return (loss(x + e) - loss(x - e)) / 2 e for each element x of a tensor: 2 N calls of loss.

    Args:
        loss: takes nothing and returns a scalar that depends on the tensor.
        tensor: float64; nudged in place, one element at a time, and put back exactly.
        epsilon: e, the size of the nudge.

    Raises:
        ValueError: the tensor is not float64. In float32 the rounding drowns the difference.
    """
    _need_float64(tensor)
    gradient = torch.zeros_like(tensor)
    for place in itertools.product(*map(range, tensor.shape)):
        start = tensor[place].item()
        tensor[place] = start + epsilon
        above = loss().item()
        tensor[place] = start - epsilon
        below = loss().item()
        tensor[place] = start
        gradient[place] = (above - below) / (2 * epsilon)
    return gradient


@torch.no_grad()
def directional_difference(
    loss: Callable[[], Tensor],
    tensors: Mapping[str, Tensor],
    direction: Mapping[str, Tensor],
    epsilon: float = EPSILON,
) -> float:
    """Return the loss's slope along a direction through all tensors at once: two calls of loss.

    It must equal the sum of gradient times direction, so two calls test all gradients together; a
    random direction misses an error only by chance.

    Args:
        loss: takes nothing and returns a scalar that depends on the tensors.
        tensors: float64; moved in place and put back exactly.
        direction: the same names and shapes.
        epsilon: how far to move both ways.

    Raises:
        ValueError: a tensor is not float64, or the names differ.
    """
    if tensors.keys() != direction.keys():
        raise ValueError(f"the names differ: {sorted(tensors.keys() ^ direction.keys())}.")
    starts = {name: tensor.clone() for name, tensor in tensors.items()}
    values = []
    for sign in (1, -1):
        for name, tensor in tensors.items():
            _need_float64(tensor)
            tensor.copy_(starts[name] + sign * epsilon * direction[name])
        values.append(loss().item())
    for name, tensor in tensors.items():
        tensor.copy_(starts[name])
    return (values[0] - values[1]) / (2 * epsilon)


def relative_errors(
    ours: Mapping[str, Tensor], reference: Mapping[str, Tensor]
) -> dict[str, float]:
    """Return |a - b| / max(|b|, 1e-6 |all b|) for each name, in norms over all elements.

    Zeros in the place of a gradient have the error 1. The share of all gradients in the
    denominator keeps a true zero (such as a key bias would have) from dividing rounding noise by
    rounding noise. Computed in float64.

    Raises:
        ValueError: a name is missing or too many, or a shape differs (broadcasting would hide
            that).
    """
    if ours.keys() != reference.keys():
        raise ValueError(f"the names differ: {sorted(ours.keys() ^ reference.keys())}.")
    whole = torch.cat([gradient.detach().double().reshape(-1) for gradient in reference.values()])
    floor = SMALLEST_SHARE * whole.norm().item()
    errors = {}
    for name, b in reference.items():
        a = ours[name]
        if a.shape != b.shape:
            raise ValueError(f"{name} has the shape {tuple(a.shape)}, not {tuple(b.shape)}.")
        a, b = a.detach().double(), b.detach().double()
        difference = (a - b).norm().item()
        denominator = max(b.norm().item(), floor)
        errors[name] = difference / denominator if denominator else float(difference > 0)
    return errors


def _need_float64(tensor: Tensor) -> None:
    if tensor.dtype != torch.float64:
        raise ValueError(f"finite differences need float64, but the tensor is {tensor.dtype}.")
