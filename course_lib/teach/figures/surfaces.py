"""Pictures of a loss of two parameters, and of the paths that optimizers take on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from matplotlib.axes import Axes
from torch import Tensor

from course_lib.teach.figures.style import (
    BLACK,
    GREY,
    RANK_COLOURS,
    RANK_MARKERS,
    course_style,
    new_axes,
)

XLIM, YLIM = (-5.0, 3.0), (-0.62, 0.62)


def paths_on_surface(
    loss: Callable[[Tensor], Tensor], paths: Mapping[str, Tensor], *, title: str = ""
) -> Axes:
    """Draw a surface's contour lines, and each path with its end marked.

    What leaves the picture is cut at its edge.

    Args:
        loss: the surface; takes points [..., 2], returns [...].
        paths: name -> points [steps + 1, 2], the start first.
        title: the finding.
    """
    x, y = torch.linspace(*XLIM, 161), torch.linspace(*YLIM, 81)
    heights = loss(torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1))
    far = 10 * max(abs(edge) for edge in XLIM)  # a point far outside only needs its direction
    with course_style():
        _, axes = new_axes(8.0, 3.5)
        axes.contour(x, y, heights, levels=[0.05, 0.3, 1, 2.5, 5, 9, 14, 20], colors=GREY,
                     linewidths=0.8, alpha=0.7)  # fmt: skip
        for index, (name, path) in enumerate(paths.items()):
            seen = path.nan_to_num(nan=far, posinf=far, neginf=-far).clamp(-far, far)
            axes.plot(
                seen[:, 0],
                seen[:, 1],
                RANK_MARKERS[index] + "-",
                color=RANK_COLOURS[index],
                linewidth=1.3,
                markersize=4,
                label=name,
            )
        axes.plot([0], [0], "+", color=BLACK, markersize=14, markeredgewidth=2.5)
        axes.annotate("lowest", (0, 0), xytext=(8, -16), textcoords="offset points")
        axes.set(xlim=XLIM, ylim=YLIM, xlabel="parameter x", ylabel="parameter y", title=title)
        if len(paths) > 1:
            axes.legend(loc="upper right", frameon=True, framealpha=0.9, edgecolor="none")
    return axes
