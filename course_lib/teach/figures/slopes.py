"""A picture of a function and of its slope below it, on one axis of inputs."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from torch import Tensor

from course_lib.teach.figures.style import (
    BLUE,
    GREY,
    LIGHT,
    VERMILION,
    course_style,
    new_axes,
)

COLOURS, LINES = (BLUE, VERMILION), ("-", "--")


def functions_and_slopes(
    x: Tensor, functions: Mapping[str, tuple[Tensor, Tensor]], *, title: str = ""
) -> Axes:
    """Draw functions at the left and their slopes at the right.

    Args:
        x: the inputs, one dimension, ascending.
        functions: name -> (values, slopes), each as long as x; two at the most.
        title: the finding.
    """
    with course_style():
        _, (left, right) = new_axes(8.8, 3.4, columns=2)
        for (name, (values, slopes)), colour, line in zip(
            functions.items(), COLOURS, LINES, strict=False
        ):
            left.plot(x.tolist(), values.tolist(), line, color=colour, label=name)
            right.plot(x.tolist(), slopes.tolist(), line, color=colour, label=name)
        for axes, label in ((left, "output y"), (right, "slope dy/dx")):
            axes.axhline(0, color=GREY, linewidth=1)
            axes.axvline(0, color=GREY, linewidth=1)
            axes.set(xlabel="input x", ylabel=label)
            axes.grid(color=LIGHT)
        left.legend(loc="upper left")
        left.set_title(title)
    return left
