"""Where an optimizer walks on a surface small enough to look at: the paths behind the pictures.

The same optimizers as in training, on a loss of two parameters instead of a hundred thousand.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

Surface = Callable[[Float[Tensor, "... 2"]], Float[Tensor, "..."]]
MakeOptimizer = Callable[[list[Tensor]], Optimizer]


def valley(point: Float[Tensor, "... 2"]) -> Float[Tensor, "..."]:
    """Return (x^2 + 100 y^2) / 2: flat along x (curvature 1), steep across (curvature 100)."""
    x, y = point.unbind(-1)
    return (x**2 + 100 * y**2) / 2


def descend(
    loss: Surface, start: Sequence[float], make_optimizer: MakeOptimizer, steps: int = 80
) -> Float[Tensor, "steps+1 2"]:
    """Return the points that an optimizer visits, the start first.

    Args:
        loss: the surface, a function of a point.
        start: where to begin, two numbers.
        make_optimizer: given the list of parameters, returns the optimizer.
        steps: how many updates.
    """
    point = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = make_optimizer([point])
    path = [point.detach().clone()]
    for _ in range(steps):
        optimizer.zero_grad()
        loss(point).backward()
        optimizer.step()
        path.append(point.detach().clone())
    return torch.stack(path)
