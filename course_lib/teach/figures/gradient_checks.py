"""Pictures of how far two gradients are apart: by the size of the nudge, and by parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from course_lib.teach.figures.style import (
    BLUE,
    GREY,
    LIGHT,
    VERMILION,
    course_style,
    new_axes,
)

COLOURS = (BLUE, VERMILION)
MARKERS = ("o", "s")


def nudge_errors(
    sizes: Sequence[float], errors: Mapping[str, Sequence[float]], *, title: str = ""
) -> Axes:
    """Draw the relative error of a nudged slope against the size of the nudge, both logarithmic.

    Args:
        sizes: the nudges.
        errors: name of a dtype -> the relative error at each size.
        title: the finding.
    """
    with course_style():
        _, axes = new_axes(8.0, 3.6)
        for (name, values), colour, marker in zip(errors.items(), COLOURS, MARKERS, strict=False):
            shown = [max(value, 1e-16) for value in values]
            axes.loglog(sizes, shown, f"{marker}-", color=colour, label=name)
        axes.set(xlabel="size of the nudge", ylabel="relative error", title=title)
        axes.grid(color=LIGHT)
        axes.legend(loc="lower right")
    return axes


def errors_by_parameter(
    errors: Mapping[str, Mapping[str, float]],
    limits: Mapping[str, float],
    *,
    title: str = "",
) -> Axes:
    """Draw one dot per parameter and dtype on a logarithmic axis, and the limit of each dtype.

    Args:
        errors: dtype -> {parameter name: relative error}; the same names for each.
        limits: dtype -> the largest error allowed.
        title: the finding.
    """
    names = list(next(iter(errors.values())))
    with course_style():
        _, axes = new_axes(8.6, 0.135 * len(names) + 1.3)
        for (dtype, values), colour, marker in zip(errors.items(), COLOURS, MARKERS, strict=False):
            shown = [max(values[name], 1e-17) for name in names]
            axes.semilogx(shown, range(len(names)), marker, color=colour, ms=6, label=dtype)
            axes.axvline(limits[dtype], color=colour, linestyle="--", linewidth=1.6)
            axes.annotate(
                f"limit {limits[dtype]:g}", (limits[dtype], -1), color=colour, fontsize=10,
                xytext=(-4, 0), textcoords="offset points", ha="right", va="center",
            )  # fmt: skip
        axes.set_yticks(range(len(names)), names, fontsize=7.5)
        axes.set_ylim(len(names) - 0.4, -1.9)
        axes.tick_params(axis="y", length=0, colors=GREY)
        axes.set(xlabel="relative error against autograd", title=title)
        axes.grid(axis="x", color=LIGHT)
        axes.legend(loc="center", bbox_to_anchor=(0.33, 0.5), fontsize=11)
    return axes
