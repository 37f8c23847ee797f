"""Pictures of a model's answer: how likely it holds each next token to be."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from course_lib.teach.figures.style import BLUE, LIGHT, ORANGE, SKY, course_style, new_axes


def probability_bars(
    probabilities: Sequence[float],
    labels: Sequence[str],
    *,
    truth: str | None = None,
    title: str = "",
    xlabel: str = "next token",
) -> Axes:
    """Draw one bar per possible answer, its height the probability in percent.

    Args:
        probabilities: V numbers from 0 to 1 that sum to 1.
        labels: V names, one under each bar.
        truth: the label of the right answer; its bar is hatched and named in the legend.
        title: the finding.
        xlabel: what the bars stand for.

    Raises:
        ValueError: if there is not one label for each probability.
    """
    percent = [100 * float(p) for p in probabilities]
    if len(percent) != len(labels):
        raise ValueError(f"{len(percent)} probabilities need as many labels, not {len(labels)}")
    with course_style():
        _, axes = new_axes(8.0, 3.2)
        for index, (label, value) in enumerate(zip(labels, percent, strict=True)):
            right = label == truth
            bar = axes.bar(
                index,
                value,
                width=0.72,
                color=ORANGE if right else SKY,
                edgecolor="black" if right else BLUE,
                hatch="//" if right else None,
                label="the right answer" if right else None,
            )
            axes.bar_label(bar, fmt="%.0f %%", padding=2, fontsize=10)
        axes.set_xticks(range(len(labels)), labels, fontfamily="monospace", fontsize=13)
        axes.set_ylim(0, max(max(percent) * 1.2, 12))
        axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 100])
        axes.set(xlabel=xlabel, ylabel="probability (%)", title=title)
        axes.grid(axis="y", color=LIGHT)
        if truth is not None:
            axes.legend(loc="upper right")
    return axes
