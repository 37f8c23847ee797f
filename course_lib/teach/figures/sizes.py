"""Pictures of how large numbers get on their way through a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from course_lib.teach.figures.style import (
    LIGHT,
    RANK_COLOURS,
    RANK_MARKERS,
    course_style,
    new_axes,
)


def size_by_layer(sizes: Mapping[str, Sequence[float]], *, title: str = "") -> Axes:
    """Draw the typical size of an activation after each layer, one line for each start.

    Args:
        sizes: name of the start -> standard deviation after 0, 1, 2, … layers.
        title: the finding.
    """
    with course_style():
        _, axes = new_axes(8.0, 3.5)
        for index, (name, values) in enumerate(sizes.items()):
            axes.plot(
                range(len(values)),
                values,
                marker=RANK_MARKERS[index],
                color=RANK_COLOURS[index],
                label=name,
            )
        axes.set_yscale("log")
        axes.set(
            xlabel="layers passed", ylabel="size of a number\n(standard deviation)", title=title
        )
        axes.grid(color=LIGHT)
        axes.legend(
            title="weights drawn with deviation", loc="center left", bbox_to_anchor=(1, 0.5)
        )
    return axes
