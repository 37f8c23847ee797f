"""Pictures of the loss of one token: how it rises as the truth gets less likely."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.axes import Axes

from course_lib.teach.figures.style import BLUE, GREY, LIGHT, ORANGE, SKY, course_style, new_axes

LEAST_PERCENT = 1.0


def surprise_curve(percent: float, *, vocab_size: int = 13, title: str | None = None) -> Axes:
    """Draw -ln p over p, and mark one probability.

    Args:
        percent: the probability of the right answer, from 1 to 100 (%).
        vocab_size: V; the loss of a model without an opinion is marked at 1 / V.
        title: the finding; None states the marked point.

    Raises:
        ValueError: if percent is outside 1 to 100.
    """
    if not LEAST_PERCENT <= percent <= 100:
        raise ValueError(f"percent is {percent}: use a number from 1 to 100")
    loss = -math.log(percent / 100) + 0.0  # + 0.0: no minus in front of a zero
    with course_style():
        _, axes = new_axes(7.5, 3.4)
        steps = [LEAST_PERCENT + index / 4 for index in range(397)]
        axes.plot(steps, [-math.log(step / 100) for step in steps], color=BLUE)
        axes.axhline(math.log(vocab_size), color=GREY, linestyle=":")
        axes.text(
            100, math.log(vocab_size) + 0.08, f"no opinion: ln {vocab_size}", ha="right", color=GREY
        )
        axes.plot([percent], [loss], "o", color=ORANGE, markersize=12, zorder=5, mec="black")
        axes.annotate(
            f"{loss:.3f}",
            (percent, loss),
            xytext=(0, 13),
            textcoords="offset points",
            ha="center",
            fontsize=12,
            fontweight="bold",
        )
        if title is None:
            title = f"The right answer at {percent:g} %: the loss is {loss:.3f}"
        axes.set(
            xlabel="probability of the right answer (%)",
            ylabel="loss of this token (nats)",
            ylim=(-0.2, 5.2),
            title=title,
        )
        axes.grid(color=LIGHT)
    return axes


def loss_and_goal(models: Mapping[str, tuple[float, float]], *, title: str = "") -> Axes:
    """Draw the mean loss of some models beside the share of problems they get wholly right.

    Args:
        models: name -> (mean loss in nats per token, exact match from 0 to 1).
        title: the finding.

    Returns:
        The left Axes, which carries the title.
    """
    with course_style():
        _, panels = new_axes(8.0, 3.0, rows=1, columns=2)
        names = list(models)
        losses = panels[0].bar(names, [loss for loss, _ in models.values()], color=SKY, width=0.5)
        panels[0].bar_label(losses, fmt="%.2f", padding=2)
        panels[0].set(ylabel="mean loss (nats per token)", title=title)
        panels[0].margins(y=0.15)
        shares = [100 * share for _, share in models.values()]
        right = panels[1].bar(names, shares, color=ORANGE, hatch="//", width=0.5)
        panels[1].bar_label(right, fmt="%.0f %%", padding=2)
        panels[1].set(ylabel="all digits right (%)", ylim=(0, 118))
    return panels[0]
