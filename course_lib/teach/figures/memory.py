"""A picture of bytes: one bar for each thing that is kept."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from course_lib.teach.figures.style import (
    BLACK,
    BLUE,
    LIGHT,
    ORANGE,
    course_style,
    new_axes,
)

UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))


def bytes_kept(
    sizes: Mapping[str, int], *, stressed: str = "", title: str = "", xlabel: str = "kept"
) -> Axes:
    """Draw one bar for each size, in the unit that suits the largest.

    Args:
        sizes: name -> bytes.
        stressed: the name whose bar has another colour and a hatch; empty for none.
        title: the finding.
        xlabel: what is measured; the unit is added.
    """
    largest = max(sizes.values())
    unit, factor = next(((u, f) for u, f in UNITS if largest >= f), UNITS[-1])
    names = list(sizes)
    values = [sizes[name] / factor for name in names]
    with course_style():
        _, axes = new_axes(8.0, 0.36 * len(names) + 1.3)
        bars = axes.barh(names, values, color=BLUE)
        for name, bar in zip(names, bars, strict=True):
            if name == stressed:
                bar.set(facecolor=ORANGE, hatch="//", edgecolor="black")
        axes.bar_label(bars, fmt="%.3g", padding=4, fontsize=11, color=BLACK)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.16 * max(values))
        axes.set(xlabel=f"{xlabel} ({unit})", title=title)
        axes.grid(axis="x", color=LIGHT)
    return axes
