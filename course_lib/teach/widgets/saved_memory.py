"""Sliders over a block's sizes: what its forward pass keeps for the backward pass."""

from __future__ import annotations

import ipywidgets as widgets
from matplotlib.axes import Axes

from course_lib.backward.memory import block_saved_bytes
from course_lib.teach.figures.memory import bytes_kept
from course_lib.teach.widgets.base import PictureWidget

TOKENS = (11, 64, 256, 1024, 4096)
WIDTHS = (64, 256, 1024)


def saved_memory_explorer(batch: int = 8, heads: int = 8) -> PictureWidget:
    """Return sliders over tokens and width, and the bytes that one block keeps, by piece.

    Args:
        batch: rows.
        heads: attention heads; the hidden width is 4 x the width.
    """

    def draw(tokens: int, width: int) -> Axes:
        sizes = block_saved_bytes(batch, tokens, width, heads, 4 * width)
        share = 100 * sizes["pattern"] / sum(sizes.values())
        return bytes_kept(
            sizes,
            stressed="pattern",
            title=f"{tokens} tokens, width {width}: the pattern is {share:.0f} % of all",
            xlabel=f"kept by one block, {batch} rows, float32",
        )

    def slider(name: str, values: tuple[int, ...], start: int) -> widgets.SelectionSlider:
        return widgets.SelectionSlider(
            options=values,
            value=start,
            description=name,
            continuous_update=False,
            style={"description_width": "initial"},
        )

    return PictureWidget(
        draw,
        {"tokens": slider("tokens T", TOKENS, 1024), "width": slider("width D", WIDTHS, 256)},
        alt="Sliders over tokens and width, and the bytes that one block keeps, piece by piece.",
    )
