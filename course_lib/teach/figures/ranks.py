"""Pictures of what ranks hold before and after they talk to each other."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from course_lib.teach.figures.style import (
    BLACK,
    GREY,
    RANK_COLOURS,
    course_style,
    new_axes,
    text_on,
)


def before_after(
    before: Sequence[object], after: Sequence[object], operation: str, *, title: str = ""
) -> Axes:
    """Draw one box per rank with what it held before an operation, and what it holds after it.

    Args:
        before: one value per rank, shown with `str`.
        after: one value per rank, shown with `str`.
        operation: the name over the arrow between the two columns.
        title: the finding.

    Raises:
        ValueError: if the two do not tell of the same number of ranks.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} ranks before, {len(after)} after: give one value per rank")
    ranks = len(before)
    with course_style():
        _, axes = new_axes(8.0, 0.62 * ranks + 0.9)
        for rank in range(ranks):
            y = ranks - 1 - rank
            axes.text(-0.15, y, f"rank {rank}", ha="right", va="center", fontsize=12)
            for x, value in ((0.0, before[rank]), (3.4, after[rank])):
                _box(axes, x, y, str(value), RANK_COLOURS[rank % len(RANK_COLOURS)])
        arrow = {"arrowstyle": "-|>", "linewidth": 2.5, "color": GREY, "mutation_scale": 22}
        middle = (ranks - 1) / 2
        axes.annotate("", (3.25, middle), xytext=(1.75, middle), arrowprops=arrow)
        axes.text(2.5, middle + 0.18, operation, ha="center", va="bottom", fontsize=12)
        axes.text(0.8, ranks - 0.4, "before", ha="center", color=BLACK, fontsize=12)
        axes.text(4.2, ranks - 0.4, "after", ha="center", color=BLACK, fontsize=12)
        axes.set(xlim=(-1.0, 5.2), ylim=(-0.6, ranks - 0.1), title=title)
        axes.axis("off")
    return axes


def _box(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    style = "round,pad=0.02,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x, y - 0.34), 1.6, 0.68, boxstyle=style, fc=colour, ec="none"))
    axes.text(
        x + 0.8,
        y,
        text,
        ha="center",
        va="center",
        fontsize=14,
        color=text_on(colour),
        fontweight="bold",
    )
