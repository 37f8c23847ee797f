"""Pictures of a whole run: the loss of every step above, the exam's score below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from course_lib.teach.figures.style import BLUE, GREEN, LIGHT, course_style, new_axes


def loss_and_score(
    losses: Sequence[float], scores: Mapping[int, float], *, title: str = ""
) -> Axes:
    """Draw the loss of each step, and under it the share of exam problems answered right.

    Args:
        losses: one loss per step (nats per token), the first is step 1.
        scores: steps done -> share of held-out problems right in every digit, 0 to 1.
        title: the finding.

    Returns:
        The upper Axes, which carries the title.
    """
    with course_style():
        _, panels = new_axes(8.0, 4.6, rows=2, columns=1, sharex=True)
        upper, lower = panels
        upper.plot(range(1, len(losses) + 1), losses, color=BLUE, linewidth=1.2)
        upper.set(ylabel="loss\n(nats per token)", ylim=(0, None), title=title)
        percent = [100 * share for share in scores.values()]
        lower.plot(list(scores), percent, "o-", color=GREEN, markersize=5)
        lower.axhline(99, color=GREEN, linestyle=":", linewidth=1.5)
        lower.text(0, 95, "99 %", va="top", color=GREEN, fontsize=11)
        lower.set(ylabel="exam, all digits\nright (%)", ylim=(-4, 106), xlabel="steps of training")
        for axes in panels:
            axes.grid(color=LIGHT)
    return upper
