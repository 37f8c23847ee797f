"""The curves of a finished run, from its metrics file: what `course train` leaves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from course_lib.teach.figures.style import BLUE, LIGHT, VERMILION, course_style, new_axes
from course_lib.teach.figures.training import loss_and_score

Metrics = Sequence[Mapping[str, Any]]


def run_curves(metrics: Metrics) -> Axes:
    """Draw the loss of each step, with the exact match below it or the validation loss on it.

    Args:
        metrics: the lines of a metrics file as plain data.

    Returns:
        The Axes that carry the title.
    """
    losses = {line["step"]: line["loss"] for line in metrics if line["event"] == "step"}
    tried = [line for line in metrics if line["event"] == "evaluation"]
    scores = {line["step"]: line["exact_match"] for line in tried}
    if scores and None not in scores.values():
        last = list(scores.values())[-1]
        title = f"{100 * last:.1f} % of the held-out problems right after {max(scores)} steps"
        return loss_and_score(list(losses.values()), scores, title=title)
    return loss_curve(losses, {line["step"]: line["validation_loss"] for line in tried})


def loss_curve(
    losses: Mapping[int, float], validation: Mapping[int, float], *, ax: Axes | None = None
) -> Axes:
    """Draw the training loss of each step, and the validation loss where it was measured.

    Args:
        losses: steps done -> loss of that step (nats per token).
        validation: steps done -> validation loss (nats per token).
        ax: where to draw; None makes a figure.

    Returns:
        The Axes.
    """
    with course_style():
        ax = new_axes(8.0, 4.0)[1] if ax is None else ax
        ax.plot(list(losses), list(losses.values()), color=BLUE, linewidth=1.0, label="training")
        title = "The loss of each step"
        if validation:
            steps, values = list(validation), list(validation.values())
            ax.plot(steps, values, "o-", color=VERMILION, label="validation")
            title = f"Validation loss {values[-1]:.3f} after {steps[-1]} steps"
        ax.set(xlabel="steps of training", ylabel="loss (nats per token)", title=title)
        ax.grid(color=LIGHT)
        ax.legend()
    return ax


def save_run_curves(metrics: Metrics, path: Path) -> None:
    """Draw a run's curves into a picture file and close the figure."""
    figure = run_curves(metrics).get_figure()
    assert figure is not None
    figure.savefig(path, dpi=150)  # type: ignore[union-attr]
    plt.close("all")
