"""A choice of layer and head: where does each one look?"""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from course_lib.teach.figures.attention import Place, attention_map
from course_lib.teach.widgets.base import PictureWidget


def attention_explorer(
    patterns_LHTS: Float[Tensor, "L H T S"],
    labels: Sequence[str],
    start: tuple[int, int] = (0, 0),
    marks: Sequence[Place] = (),
) -> PictureWidget:
    """Return two choices, layer and head, above the attention map of that head.

    Args:
        patterns_LHTS: for each layer and head, T rows that each sum to 1.
        labels: T texts, one for each token.
        start: the layer and head shown first, counted from 0.
        marks: (row, column) places framed in every map.

    Raises:
        ValueError: if `start` is no layer and head of the patterns.
    """
    layers, heads, tokens = patterns_LHTS.shape[:3]
    if not (0 <= start[0] < layers and 0 <= start[1] < heads):
        raise ValueError(f"start is {start}, but there are {layers} layers with {heads} heads")
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)

    def draw(layer: int, head: int) -> Axes:
        seen = patterns_LHTS[layer, head].detach().masked_fill(later, float("nan"))
        title = f"Layer {layer}, head {head}"
        return attention_map(seen, labels, marks=marks, title=title)

    controls = {
        name: widgets.ToggleButtons(
            options=list(range(count)),
            value=value,
            description=name,
            style={"button_width": "44px", "description_width": "initial"},
        )
        for name, count, value in (("layer", layers, start[0]), ("head", heads, start[1]))
    }
    alt = "A choice of layer and head, and how much each token takes from each other one there."
    return PictureWidget(draw, controls, alt=alt)
