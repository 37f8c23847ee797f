"""Pictures that hold measured times against what the machine allows: bars, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from course_lib.teach.figures.style import (
    BLACK,
    BLUE,
    GREY,
    LIGHT,
    STAGE_COLOURS,
    VERMILION,
    course_style,
    new_axes,
)


def times_against_bounds(
    times_s: Mapping[str, float], bounds_s: Mapping[str, float], *, title: str = ""
) -> Axes:
    """Draw a bar for each measured time, and a mark at the least time that the memory allows.

    Args:
        times_s: name -> measured seconds.
        bounds_s: name -> seconds that its bytes take at the memory's bandwidth.
        title: the finding.

    Raises:
        ValueError: if the two don't have the same names.
    """
    if list(times_s) != list(bounds_s):
        raise ValueError(
            f"times for {', '.join(times_s)} and bounds for {', '.join(bounds_s)}: "
            "give both for the same names in the same order"
        )
    with course_style():
        _, axes = new_axes(8.0, 3.4)
        values = [1e3 * time_s for time_s in times_s.values()]
        bounds = [1e3 * bound_s for bound_s in bounds_s.values()]
        axes.barh(list(times_s), values, color=BLUE, height=0.55)
        for index, bound in enumerate(bounds):
            axes.plot([bound] * 2, [index - 0.4, index + 0.4], color=VERMILION, linewidth=4)
            axes.annotate(
                f"{values[index]:.1f} ms",
                (max(values[index], bound), index),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
            )
        axes.plot([], [], color=VERMILION, linewidth=4, label="its bytes ÷ memory bandwidth")
        axes.invert_yaxis()
        axes.set_xlim(0, 1.25 * max(*values, *bounds))
        axes.set(xlabel="milliseconds for one update, on this machine", title=title)
        axes.grid(axis="x", color=LIGHT)
        axes.legend(loc="lower right")
    return axes


def roofline(
    peak_flops_per_s: float,
    bytes_per_s: float,
    stages: Mapping[str, tuple[float, float]],
    *,
    title: str = "",
) -> Axes:
    """Draw the roof min(peak, intensity x bandwidth), and each stage below it.

    Args:
        peak_flops_per_s: the flat part: the best matrix product.
        bytes_per_s: the slope of the left part: the memory's bandwidth.
        stages: name -> (FLOPs for each byte, FLOPs a second reached).
        title: the finding.

    Source: Williams, Waterman, Patterson 2009.
    """
    balance = peak_flops_per_s / bytes_per_s
    left = min(0.02, *(point[0] / 4 for point in stages.values()))
    right = max(4 * balance, *(2 * point[0] for point in stages.values()))
    with course_style():
        _, axes = new_axes(8.0, 4.0)
        roof = [left * bytes_per_s / 1e9, peak_flops_per_s / 1e9, peak_flops_per_s / 1e9]
        axes.plot([left, balance, right], roof, color=BLACK)
        axes.axvline(balance, color=GREY, linestyle=":", linewidth=1.2)
        for index, (name, (intensity, rate)) in enumerate(stages.items()):
            colour = STAGE_COLOURS.get(name, GREY)
            axes.plot([intensity], [rate / 1e9], "o", color=colour, markersize=12)
            side = -1 if index < len(stages) / 2 else 1  # so that neighbours don't meet
            axes.annotate(
                name,
                (intensity, rate / 1e9),
                xytext=(11 * side, -4),
                textcoords="offset points",
                ha="left" if side > 0 else "right",
            )
        axes.annotate("memory-bound", (balance, 1), xycoords=("data", "axes fraction"),
                      xytext=(-8, -14), textcoords="offset points", ha="right")  # fmt: skip
        axes.annotate("compute-bound", (balance, 1), xycoords=("data", "axes fraction"),
                      xytext=(8, -14), textcoords="offset points")  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="FLOPs for each byte moved", title=title)
        axes.set_ylabel("reached (GFLOP/s)")
        lowest = min(rate for _, rate in stages.values()) / 1e9
        axes.set_ylim(min(lowest / 5, roof[0]), 4 * peak_flops_per_s / 1e9)
        axes.grid(color=LIGHT)
    return axes
