"""Pictures of what the pieces of a model cost: their share of the work, and of the time."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from course_lib.teach.figures.style import BLUE, LIGHT, ORANGE, course_style, new_axes


def work_and_time(
    flops: Mapping[str, float], time_s: Mapping[str, float], *, title: str = ""
) -> Axes:
    """Draw each piece's share of all FLOPs beside its share of the seconds.

    Args:
        flops: piece -> FLOPs.
        time_s: piece -> seconds; the same pieces.
        title: the finding.

    Raises:
        ValueError: if the two don't tell of the same pieces.
    """
    if set(flops) != set(time_s):
        raise ValueError(f"FLOPs of {sorted(flops)}, but seconds of {sorted(time_s)}")
    names = list(flops)
    shares = {
        "of the FLOPs": [100 * flops[name] / sum(flops.values()) for name in names],
        "of the seconds, on this machine": [
            100 * time_s[name] / sum(time_s.values()) for name in names
        ],
    }
    with course_style():
        _, axes = new_axes(8.0, 4.2)
        styles = ((-0.2, BLUE, None), (0.2, ORANGE, "//"))
        for (label, values), (offset, colour, hatch) in zip(shares.items(), styles, strict=True):
            places = [index + offset for index in range(len(names))]
            bars = axes.barh(places, values, 0.38, color=colour, hatch=hatch, label=label)
            axes.bar_label(bars, fmt="%.0f %%", padding=3, fontsize=10)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.18 * max(max(values) for values in shares.values()))
        axes.set(xlabel="share of one block's forward pass (%)", title=title)
        axes.grid(axis="x", color=LIGHT)
        axes.figure.legend(loc="outside lower center", ncols=2)
    return axes
