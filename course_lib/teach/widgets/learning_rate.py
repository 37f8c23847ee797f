"""A slider over the learning rate: the loss on the way, step after step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ipywidgets as widgets

from course_lib.teach.figures.gradients import descent
from course_lib.teach.widgets.base import PictureWidget


def learning_rate_explorer(ways: Mapping[float, Sequence[float]], start: float) -> PictureWidget:
    """Return a slider that picks one learning rate and shows its losses before those of the others.

    Args:
        ways: learning rate -> the loss before each of a few updates (nats per token).
        start: the rate that is shown first.

    Raises:
        ValueError: if start is not one of the rates.
    """
    rates = sorted(ways)
    if start not in rates:
        raise ValueError(f"start is {start}: use one of {', '.join(f'{rate:g}' for rate in rates)}")
    slider = widgets.SelectionSlider(
        options=[(f"{rate:g}", rate) for rate in rates],
        value=start,
        description="learning rate",
        continuous_update=False,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="420px"),
    )
    return PictureWidget(
        lambda rate: descent(ways, rate),
        {"rate": slider},
        alt="A slider over the learning rate, and the loss after each of a few steps with it.",
    )
