"""A slider over the number of micro-batches: what it saves, and what it doesn't."""

from __future__ import annotations

from collections.abc import Mapping

import ipywidgets as widgets

from course_lib.teach.figures.step_memory import memory_of_step
from course_lib.teach.widgets.base import PictureWidget


def accumulation_explorer(
    fixed_bytes: Mapping[str, float], activation_bytes: float, rows: int, start: int = 4
) -> PictureWidget:
    """Return a slider over the parts of a batch above the memory that a step takes.

    Args:
        fixed_bytes: name -> bytes that don't depend on the batch.
        activation_bytes: kept for the backward pass of the whole batch.
        rows: rows of the whole batch; a part has rows / parts of them.
        start: the number of parts shown first; must divide rows.

    Raises:
        ValueError: start is not a number of parts that divides the rows.
    """
    options = [parts for parts in range(1, rows + 1) if rows % parts == 0]
    if start not in options:
        raise ValueError(f"start is {start}: {rows} rows go into {', '.join(map(str, options))}")
    slider = widgets.SelectionSlider(
        options=options,
        value=start,
        description="micro-batches",
        continuous_update=False,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="420px"),
    )
    return PictureWidget(
        lambda parts: memory_of_step(
            fixed_bytes,
            activation_bytes,
            parts,
            title=f"{parts} forward and backward passes of {rows // parts} rows, one update",
        ),
        {"parts": slider},
        alt="A slider over the number of micro-batches, and the memory that one step takes.",
    )
