"""Curves over the steps of training, one for each name: losses, rates, sizes of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from course_lib.teach.figures.style import BLACK, LIGHT, RANK_COLOURS, course_style, new_axes

DASHES = ("-", "--", "-.", ":")


def over_steps(
    series: Mapping[str, Sequence[float]],
    *,
    ylabel: str,
    title: str = "",
    reference: tuple[float, str] | None = None,
    log: bool = False,
    first: int = 1,
) -> Axes:
    """Draw each series over its steps, told apart by colour and dashes.

    Args:
        series: name -> one value for each step.
        ylabel: what the values are, with the unit.
        title: the finding.
        reference: a value and its name, drawn as a dotted line across.
        log: a logarithmic axis for the values.
        first: the number of the first step.
    """
    with course_style():
        _, axes = new_axes(8.0, 3.5)
        for index, (name, values) in enumerate(series.items()):
            axes.plot(
                range(first, first + len(values)),
                [float(value) for value in values],
                DASHES[index % len(DASHES)],
                color=RANK_COLOURS[index],
                linewidth=1.8,
                label=name,
            )
        if reference is not None:
            value, name = reference
            axes.axhline(value, color=BLACK, linestyle=":", linewidth=1.5, label=name)
        axes.set(xlabel="step", ylabel=ylabel, title=title)
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.grid(color=LIGHT)
        axes.legend(loc="best")
    return axes
