"""A picture of the gradient that starts every backward pass: belief less truth, for each answer."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from torch import Tensor

from course_lib.teach.figures.style import (
    BLUE,
    GREY,
    LIGHT,
    ORANGE,
    SKY,
    VERMILION,
    course_style,
    new_axes,
)


def belief_minus_truth(
    probabilities: Tensor,
    d_logits: Tensor,
    labels: Sequence[str],
    target: int,
    *,
    title: str = "",
) -> Axes:
    """Draw the probabilities at the left, and the gradient by the logits at the right.

    Args:
        probabilities: what the model believes, one for each label.
        d_logits: the gradient of the loss by the logits.
        labels: the possible answers.
        target: the index of the right one.
        title: the finding.
    """
    places = range(len(labels))
    with course_style():
        _, (left, right) = new_axes(9.0, 3.3, columns=2)
        bars = left.bar(places, probabilities.tolist(), color=SKY, edgecolor=BLUE)
        bars[target].set(facecolor=ORANGE, edgecolor="black", hatch="//", label="the right answer")
        left.set(ylabel="probability p", ylim=(0, 1.08))
        left.legend(loc="upper right", fontsize=10)
        signs = [SKY if value > 0 else VERMILION for value in d_logits.tolist()]
        changes = right.bar(places, d_logits.tolist(), color=signs, edgecolor=BLUE)
        right.bar_label(changes, fmt="%+.2f", padding=2, fontsize=10)
        right.axhline(0, color=GREY, linewidth=1)
        right.set(ylabel="gradient by the logit", ylim=(-1.15, 1.15))
        for axes in (left, right):
            axes.set_xticks(places, labels)
            axes.grid(axis="y", color=LIGHT)
        left.set_title(title)
    return left
