"""A picture of what the backward pass costs, in forward passes."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from course_lib.teach.figures.style import (
    BLACK,
    BLUE,
    LIGHT,
    VERMILION,
    course_style,
    new_axes,
)


def backward_over_forward(
    ratios: Mapping[str, float], expected: float = 2.0, *, title: str = ""
) -> Axes:
    """Draw one bar for each model: the backward pass's seconds over those of the forward pass.

    Args:
        ratios: name of the model -> ratio, without a unit.
        expected: where the matrix products alone would be.
        title: the finding.
    """
    with course_style():
        _, axes = new_axes(8.0, 0.5 * len(ratios) + 1.5)
        bars = axes.barh(list(ratios), list(ratios.values()), color=BLUE, height=0.6)
        axes.bar_label(bars, fmt="%.2f", padding=4, fontsize=11, color=BLACK)
        axes.axvline(expected, color=VERMILION, linestyle="--", label="matrix products alone")
        axes.invert_yaxis()
        axes.set_xlim(0, 1.3 * max(expected, *ratios.values()))
        axes.set(xlabel="backward / forward, in seconds on this machine", title=title)
        axes.grid(axis="x", color=LIGHT)
        axes.figure.legend(loc="outside lower right")
    return axes
