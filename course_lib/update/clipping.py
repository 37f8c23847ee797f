"""Clipping by the global norm: one bad batch must not throw the parameters far away.

It stands after the sync (the norm is that of the averaged gradient, the same on every rank) and
before the update (afterwards it would change nothing).

Source: Pascanu et al. 2013, algorithm 1.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def clip_grad_norm(params: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients by min(1, max_norm / norm), where norm = sqrt(sum of all g^2).

    Args:
        params: parameters; the gradients of those that have one are changed in place.
        max_norm: the largest norm to leave as it is, above 0; infinity only measures.

    Returns:
        The norm before clipping.

    Raises:
        ValueError: if max_norm is not above 0.
        FloatingPointError: if the norm is NaN or infinite; the gradients are left as they are.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm is {max_norm}: give a number above 0")
    grads = [param.grad for param in params if param.grad is not None]
    if not grads:
        return 0.0
    norms = torch._foreach_norm(grads)
    norm = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms])).item()
    if not math.isfinite(norm):
        raise FloatingPointError(
            f"the gradients' norm is {norm}: the training has diverged; "
            "lower the learning rate, or look for the first batch that gives it"
        )
    if norm > max_norm:
        torch._foreach_mul_(grads, max_norm / norm)
    return norm
