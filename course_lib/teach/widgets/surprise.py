"""A slider over the probability of the right answer: what loss does it give?"""

from __future__ import annotations

import ipywidgets as widgets

from course_lib.teach.figures.surprise import surprise_curve
from course_lib.teach.widgets.base import PictureWidget


def surprise_explorer(percent: int = 70) -> PictureWidget:
    """Return a slider from 1 to 100 % that marks the loss -ln p on its curve.

    Args:
        percent: where the slider starts.

    Raises:
        ValueError: if percent is outside 1 to 100.
    """
    if not 1 <= percent <= 100:
        raise ValueError(f"percent is {percent}: use a number from 1 to 100")
    slider = widgets.IntSlider(
        value=percent,
        min=1,
        max=100,
        description="right answer (%)",
        continuous_update=False,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="420px"),
    )
    return PictureWidget(
        lambda percent: surprise_curve(percent),
        {"percent": slider},
        alt="A slider over the probability of the right answer, and the loss that it gives.",
    )
