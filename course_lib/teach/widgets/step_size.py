"""A slider over the learning rate: what one step of that size does to the loss."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets

from course_lib.teach.figures.gradients import step_size
from course_lib.teach.widgets.base import PictureWidget


def step_size_explorer(
    rates: Sequence[float], losses: Sequence[float], start: int
) -> PictureWidget:
    """Return a slider that marks one learning rate on the curve of losses after a step.

    Args:
        rates: learning rates tried, ascending.
        losses: the loss after one step of each rate (nats per token).
        start: the index that is marked first.

    Raises:
        ValueError: if the two differ in length, or start is not an index of them.
    """
    rates, losses = [float(rate) for rate in rates], [float(loss) for loss in losses]
    if len(rates) != len(losses) or not 0 <= start < len(rates):
        raise ValueError(
            f"{len(rates)} rates, {len(losses)} losses and start {start} don't fit together: "
            "give one loss per rate and an index of both"
        )
    slider = widgets.SelectionSlider(
        options=[(f"{rate:g}", index) for index, rate in enumerate(rates)],
        value=start,
        description="learning rate",
        continuous_update=False,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="420px"),
    )
    return PictureWidget(
        lambda chosen: step_size(rates, losses, chosen),
        {"chosen": slider},
        alt="A slider over the learning rate, and the loss after one step of that size.",
    )
