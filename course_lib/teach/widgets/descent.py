"""Choose an optimizer, its rate and its momentum, and see where it walks on a small surface."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets as widgets
import torch
from matplotlib.axes import Axes
from torch import Tensor
from torch.optim import Optimizer

from course_lib.teach.figures.surfaces import paths_on_surface
from course_lib.teach.widgets.base import PictureWidget
from course_lib.update.optimizers import SGD, Adam
from course_lib.update.paths import descend

RATES = (0.001, 0.005, 0.01, 0.018, 0.0199, 0.021, 0.03, 0.05, 0.1, 0.3, 1.0)
MOMENTA = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)


def descent_explorer(
    loss: Callable[[Tensor], Tensor],
    start: Sequence[float],
    *,
    optimizer: str = "SGD",
    rate: float = 0.018,
    momentum: float = 0.0,
    steps: int = 80,
) -> PictureWidget:
    """Return a menu of optimizers and two sliders above the path that they decide.

    Args:
        loss: a surface of two parameters.
        start: where every path begins.
        optimizer: "SGD" or "Adam", chosen first.
        rate: one of RATES, chosen first.
        momentum: one of MOMENTA, chosen first; for Adam it is beta1.
        steps: how many updates.

    Raises:
        ValueError: if a first choice is none of the menu's.
    """
    chosen = (("optimizer", optimizer, ("SGD", "Adam")), ("rate", rate, RATES),
              ("momentum", momentum, MOMENTA))  # fmt: skip
    for name, value, valid in chosen:
        if value not in valid:
            raise ValueError(f"{name} is {value}: use one of {', '.join(map(str, valid))}")

    def draw(optimizer: str, rate: float, momentum: float) -> Axes:
        def make(params: list[Tensor]) -> Optimizer:
            if optimizer == "SGD":
                return SGD(params, lr=rate, momentum=momentum)
            return Adam(params, lr=rate, betas=(momentum, 0.999))

        path = descend(loss, start, make, steps)
        return paths_on_surface(
            loss, {optimizer: path}, title=_verdict(loss, path, optimizer, rate)
        )

    style, layout = {"description_width": "initial"}, widgets.Layout(width="260px")
    return PictureWidget(
        draw,
        {
            "optimizer": widgets.Dropdown(
                options=["SGD", "Adam"], value=optimizer, description="optimizer",
                style=style, layout=widgets.Layout(width="180px"),
            ),
            "rate": widgets.SelectionSlider(
                options=[(f"{each:g}", each) for each in RATES], value=rate,
                description="learning rate", continuous_update=False, style=style, layout=layout,
            ),
            "momentum": widgets.SelectionSlider(
                options=[(f"{each:g}", each) for each in MOMENTA], value=momentum,
                description="momentum", continuous_update=False, style=style, layout=layout,
            ),
        },
        alt="A menu of optimizers, sliders for rate and momentum, and the path on the surface.",
    )  # fmt: skip


def _verdict(loss: Callable[[Tensor], Tensor], path: Tensor, optimizer: str, rate: float) -> str:
    first, last = loss(path[0]).item(), loss(path[-1]).item()
    steps = len(path) - 1
    if not torch.isfinite(path[-1]).all() or last > first:
        return f"{optimizer}, rate {rate:g}: it diverges"
    return f"{optimizer}, rate {rate:g}: loss {first:.1f} → {last:.2g} in {steps} steps"
