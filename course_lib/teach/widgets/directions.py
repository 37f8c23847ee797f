"""A slider over the direction of a nudge: the slope of the loss that way."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets
from torch import Tensor

from course_lib.teach.figures.directions import slope_in_direction
from course_lib.teach.widgets.base import PictureWidget


def direction_explorer(
    grid: Tensor,
    extent: tuple[float, float, float, float],
    here: tuple[float, float],
    gradient: tuple[float, float],
    measured: Sequence[tuple[float, float]],
    start: int = 150,
) -> PictureWidget:
    """Return a slider that turns a direction on the map of a loss with two parameters.

    Args:
        grid: the loss at each point of the map, rows from the lower edge up.
        extent: left, right, lower and upper edge of the map.
        here: where the two parameters stand.
        gradient: the gradient there.
        measured: (direction in degrees, slope found by a nudge in that direction).
        start: the first direction, in degrees.

    Raises:
        ValueError: if the gradient is zero: then no direction is uphill.
    """
    if not any(gradient):
        raise ValueError("the gradient is zero here: choose a point where the loss has a slope")
    slider = widgets.IntSlider(
        value=start,
        min=0,
        max=360,
        step=5,
        description="direction (degrees)",
        continuous_update=False,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="460px"),
    )
    return PictureWidget(
        lambda degrees: slope_in_direction(grid, extent, here, gradient, measured, degrees),
        {"degrees": slider},
        alt="A slider over directions on the map of a loss, and the slope of the loss that way.",
    )
