"""Pictures of the ways that two parameters can go: the loss as a map, and its slope in each way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from torch import Tensor

from course_lib.teach.figures.style import (
    BLACK,
    BLUE,
    GREY,
    LIGHT,
    ORANGE,
    VERMILION,
    course_style,
    new_axes,
)


def slope_in_direction(
    grid: Tensor,
    extent: tuple[float, float, float, float],
    here: tuple[float, float],
    gradient: tuple[float, float],
    measured: Sequence[tuple[float, float]],
    degrees: float,
    *,
    labels: tuple[str, str] = ("w", "b"),
    title: str | None = None,
) -> Axes:
    """Draw the loss as a map with one direction on it, and the slope in every direction.

    Args:
        grid: the loss at each point of the map, rows from the lower edge up (nats or squares).
        extent: left, right, lower and upper edge of the map.
        here: where the two parameters stand.
        gradient: the gradient there.
        measured: (direction in degrees, slope found by a nudge in that direction).
        degrees: the direction to mark, counter-clockwise from the first parameter's axis.
        labels: the parameters' names.
        title: the finding; None lets the marked direction speak.
    """
    angle = math.radians(degrees)
    way = (math.cos(angle), math.sin(angle))
    slope = gradient[0] * way[0] + gradient[1] * way[1]
    with course_style():
        _, (left, right) = new_axes(9.0, 3.7, columns=2, width_ratios=[1, 1.15])
        _map(left, grid, extent, here, gradient, way, labels)
        _slopes(right, gradient, measured, degrees, slope)
        if title is None:
            verdict = "rises" if slope > 1e-9 else "falls" if slope < -1e-9 else "stays"
            title = f"Towards {degrees:g}° the loss {verdict}: slope {slope:+.2f}"
        left.set_title(title)
    return left


def _map(
    axes: Axes,
    grid: Tensor,
    extent: tuple[float, float, float, float],
    here: tuple[float, float],
    gradient: tuple[float, float],
    way: tuple[float, float],
    labels: tuple[str, str],
) -> None:
    axes.contourf(grid.numpy(), levels=14, cmap="cividis", extent=extent, alpha=0.75)
    axes.contour(grid.numpy(), levels=14, colors="white", linewidths=0.6, extent=extent)
    size = 0.28 * min(extent[1] - extent[0], extent[3] - extent[2])
    norm = math.hypot(*gradient)
    uphill = (gradient[0] / norm, gradient[1] / norm)
    for (x, y), colour, name in ((uphill, ORANGE, "gradient"), (way, VERMILION, "your way")):
        axes.annotate(
            "",
            (here[0] + size * x, here[1] + size * y),
            here,
            arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 3, "mutation_scale": 20},
        )
        axes.plot([], [], color=colour, lw=3, label=name)
    axes.plot(*here, "o", color=BLACK, markersize=9, zorder=5)
    axes.set(xlabel=f"parameter {labels[0]}", ylabel=f"parameter {labels[1]}")
    axes.set_aspect("equal")
    axes.legend(loc="lower left", frameon=True, framealpha=0.9, fontsize=10)


def _slopes(
    axes: Axes,
    gradient: tuple[float, float],
    measured: Sequence[tuple[float, float]],
    degrees: float,
    slope: float,
) -> None:
    every = range(0, 361, 3)
    curve = [
        gradient[0] * math.cos(math.radians(a)) + gradient[1] * math.sin(math.radians(a))
        for a in every
    ]
    axes.axhline(0, color=GREY, linewidth=1)
    axes.plot(list(every), curve, color=BLUE, label="gradient · direction")
    axes.plot(*zip(*measured, strict=True), "o", color=BLACK, ms=5, label="nudged, measured")
    axes.plot([degrees], [slope], "D", color=VERMILION, markersize=11, zorder=5, label="your way")
    top = max(map(abs, curve))
    axes.set_ylim(-1.25 * top, 1.75 * top)
    axes.set_xticks(range(0, 361, 90))
    axes.set(xlabel="direction (degrees)", ylabel="slope of the loss")
    axes.grid(color=LIGHT)
    axes.legend(loc="upper center", ncols=2, fontsize=10)
