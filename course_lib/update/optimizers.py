"""SGD, Adam and AdamW from scratch: the stage that turns gradients into changed parameters.

The rules are two short functions on one flat vector of N numbers, `sgd_direction` and
`adam_direction`; the classes put them behind `torch.optim.Optimizer`'s interface. What they share,
`apply_direction` (which takes the step) and the flat buffers, stands in `flat.py`.

Letters: N elements (all parameters of one group, end to end).

Sources: Polyak 1964 (momentum); Kingma and Ba 2015, algorithm 1 (Adam); Loshchilov and Hutter
2019, algorithm 2 (AdamW).
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.update.flat import FlatOptimizer, FlatRun


def sgd_direction(
    grad: Float[Tensor, "N"], momentum_buffer: Float[Tensor, "N"] | None, momentum: float
) -> Float[Tensor, "N"]:
    """Return SGD's direction: the gradient, or with momentum b <- momentum * b + g, and b.

    Args:
        grad: the gradient, any float dtype; not changed.
        momentum_buffer: b, the running sum, zeros before the first step; changed in place.
        momentum: how much of b is kept, in [0, 1).

    Returns:
        The direction to walk against, the caller's to read only.

    Source: Polyak 1964; Sutskever et al. 2013, section 2.
    """
    if momentum_buffer is None:
        return grad
    return momentum_buffer.mul_(momentum).add_(grad)


def adam_direction(
    grad: Float[Tensor, "N"],
    exp_avg: Float[Tensor, "N"],
    exp_avg_sq: Float[Tensor, "N"],
    step: int,
    betas: tuple[float, float],
    eps: float,
) -> Float[Tensor, "N"]:
    """Return Adam's direction m^ / (sqrt(v^) + eps), about +-1 whatever the gradient's size.

    m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,  m^ = m / (1 - b1^t),  v^ = v / (1 - b2^t).

    Args:
        grad: the gradient g; its memory is used again for the result.
        exp_avg: m, zeros before the first step; changed in place.
        exp_avg_sq: v, zeros before the first step; changed in place.
        step: t, counted from 1.
        betas: (b1, b2), each in [0, 1).
        eps: keeps the division finite where v is 0.

    Returns:
        The direction to walk against.

    Source: Kingma and Ba 2015, algorithm 1.
    """
    beta1, beta2 = betas
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    # m and v start at zero and are too small at first: these two factors undo just that.
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    denominator = torch.sqrt(exp_avg_sq, out=grad).div_(math.sqrt(correction2)).add_(eps)
    return torch.div(exp_avg, denominator, out=grad).div_(correction1)


class SGD(FlatOptimizer):
    """Stochastic gradient descent: p <- p - lr * (g + weight_decay * p), or with momentum.

    Args:
        params: parameters, or groups of them as in torch.optim.
        lr: the learning rate, at least 0.
        momentum: in [0, 1); 0 keeps no state.
        weight_decay: L2, added to the gradient.

    Raises:
        ValueError: if a number is out of its range.

    Equal to torch.optim.SGD (no dampening, no Nesterov).
    """

    def __init__(
        self, params: Iterable[Any], lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        _check_at_least_zero(lr=lr, weight_decay=weight_decay)
        _check_share(momentum=momentum)
        super().__init__(
            params,
            {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "decoupled": False},
        )

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _direction(self, group: dict[str, Any], run: FlatRun, step: int) -> Tensor:
        return sgd_direction(run.grad, run.state.get("momentum_buffer"), group["momentum"])


class Adam(FlatOptimizer):
    """Adam: a step of about lr for every parameter, whatever the size of its gradient.

    Args:
        params: parameters, or groups of them as in torch.optim.
        lr: the learning rate, at least 0.
        betas: how long the two running means remember, each in [0, 1).
        eps: keeps the division finite.
        weight_decay: L2, added to the gradient; so Adam rescales it too, unlike AdamW.

    Raises:
        ValueError: if a number is out of its range.

    Source: Kingma and Ba 2015, algorithm 1. Equal to torch.optim.Adam.
    """

    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        _check_at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay)
        _check_share(beta1=betas[0], beta2=betas[1])
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults | {"decoupled": self.decoupled})

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def _direction(self, group: dict[str, Any], run: FlatRun, step: int) -> Tensor:
        m, v = run.state["exp_avg"], run.state["exp_avg_sq"]
        return adam_direction(run.grad, m, v, step, group["betas"], group["eps"])


class AdamW(Adam):
    """Adam whose weight decay acts on the parameter itself: p <- (1 - lr * decay) * p - lr * step.

    Args:
        params: parameters, or groups of them as in torch.optim.
        lr: the learning rate, at least 0.
        betas: how long the two running means remember, each in [0, 1).
        eps: keeps the division finite.
        weight_decay: the share, times lr, by which each parameter shrinks in a step.

    Raises:
        ValueError: if a number is out of its range.

    Source: Loshchilov and Hutter 2019, algorithm 2. Equal to torch.optim.AdamW.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


def _check_at_least_zero(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}: give a number of at least 0")


def _check_share(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}: give a number from 0 up to, but below, 1")
