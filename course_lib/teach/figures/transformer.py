"""Pictures of a Transformer's parts: the way from tokens to probabilities, and its GELU."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from course_lib.teach.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    course_style,
    new_axes,
    text_on,
)

# Name, colour, and what comes out, along the way of one token.
PARTS = (
    ("tokens", GREY, "T numbers"),
    ("embed\n+ place", SKY, "T × D"),
    ("norm", LIGHT, ""),
    ("attention", ORANGE, ""),
    ("norm", LIGHT, ""),
    ("MLP", GREEN, ""),
    ("final\nnorm", LIGHT, "T × D"),
    ("head", BLUE, "T × V\nlogits"),
    ("softmax", PURPLE, "T × V\nprobabilities"),
)
BLOCK = (2, 5)  # from the first norm to the MLP
STEP, BOX = 1.24, 1.0


def transformer_map(*, layers: int, title: str = "") -> Axes:
    """Draw the parts in a row; what a block adds goes back onto the stream by the arcs above.

    Args:
        layers: how often the block is repeated.
        title: the finding.
    """
    with course_style():
        _, axes = new_axes(9.0, 3.2)
        for index, (name, colour, out) in enumerate(PARTS):
            _part(axes, index * STEP, name, colour, out)
            if index:
                _arrow(axes, ((index - 1) * STEP + BOX, 0), (index * STEP, 0), BLACK)
        for first in (2, 4):
            _residual(axes, first * STEP - 0.15, (first + 1) * STEP + BOX + 0.07)
        left, right = BLOCK[0] * STEP - 0.2, BLOCK[1] * STEP + BOX + 0.2
        style = "round,pad=0,rounding_size=0.15"
        frame = FancyBboxPatch(
            (left, -0.8), right - left, 2.05, boxstyle=style, fc="none", ec=GREY, ls="--", lw=1.5
        )
        axes.add_patch(frame)
        axes.text(
            (left + right) / 2,
            -1.05,
            f"a block, {layers} times",
            ha="center",
            fontsize=12,
            color=BLACK,
        )
        axes.set(xlim=(-0.2, 8 * STEP + BOX + 0.2), ylim=(-1.5, 1.6), title=title)
        axes.axis("off")
    return axes


def _part(axes: Axes, x: float, name: str, colour: str, out: str) -> None:
    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch((x, -0.45), BOX, 0.9, boxstyle=style, fc=colour, ec="none"))
    axes.text(
        x + BOX / 2,
        0,
        name,
        ha="center",
        va="center",
        fontsize=11,
        color=text_on(colour),
        weight="bold",
    )
    axes.text(x + BOX / 2, -0.95, out, ha="center", va="center", fontsize=10, color=GREY)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    arrow = {"arrowstyle": "-|>", "linewidth": 1.8, "color": colour, "mutation_scale": 13}
    axes.annotate("", end, xytext=start, arrowprops=arrow)


def _residual(axes: Axes, left: float, right: float) -> None:
    """Draw the way past two boxes: up, along, and down onto the stream again."""
    top = 0.68
    axes.plot([left, left, right], [0, top, top], color=VERMILION, linewidth=1.8)
    _arrow(axes, (right, top), (right, 0), VERMILION)
    middle = (left + right) / 2
    axes.text(middle, top + 0.12, "kept, and added", ha="center", color=VERMILION, fontsize=10)


def gelu_curve(x: Sequence[float], y: Sequence[float], *, title: str = "") -> Axes:
    """Draw GELU beside ReLU.

    Args:
        x: inputs, ascending.
        y: GELU of each.
        title: the finding.
    """
    x, y = [float(value) for value in x], [float(value) for value in y]
    with course_style():
        _, axes = new_axes(7.0, 3.2)
        axes.axhline(0, color=GREY, linewidth=1)
        axes.axvline(0, color=GREY, linewidth=1)
        relu = [max(value, 0.0) for value in x]
        axes.plot(x, relu, "--", color=ORANGE, label="ReLU: max(x, 0)")
        axes.plot(x, y, color=BLUE, label="GELU: x P(Z ≤ x)")
        axes.set(xlabel="input x", ylabel="output", title=title)
        axes.grid(color=LIGHT)
        axes.legend(loc="upper left")
    return axes
