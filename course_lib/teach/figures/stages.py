"""Pictures of the six stages of a training step: the loop, and where its seconds go."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from course_lib.teach.figures.style import (
    BLACK,
    GREY,
    LIGHT,
    STAGE_COLOURS,
    STAGES,
    course_style,
    new_axes,
    text_on,
)

HOMEWORK = {
    "data": "take the next\nproblems",
    "forward": "do them",
    "loss": "check the\nanswers",
    "backward": "find what caused\nthe mistakes",
    "sync": "agree on one\ncorrection",
    "update": "correct\nyourself",
}


def training_loop(
    captions: Mapping[str, str] = HOMEWORK, *, here: str | None = None, title: str = ""
) -> Axes:
    """Draw the six stages as a round trip with captions; `here` names the one to stress."""
    with course_style():
        _, axes = new_axes(8.4, 4.6)
        places = {}
        for index, stage in enumerate(STAGES):
            angle = math.pi - index * math.pi / 3
            places[stage] = (3.3 * math.cos(angle), 1.85 * math.sin(angle))
        boxes = {
            stage: _stage_box(axes, stage, place, captions.get(stage, ""), here in (None, stage))
            for stage, place in places.items()
        }
        for stage, following in zip(STAGES, (*STAGES[1:], STAGES[0]), strict=True):
            axes.add_patch(
                FancyArrowPatch(
                    places[stage],
                    places[following],
                    patchA=boxes[stage],
                    patchB=boxes[following],
                    shrinkA=6,
                    shrinkB=6,
                    arrowstyle="-|>",
                    mutation_scale=20,
                    color=GREY,
                    linewidth=2,
                )
            )
        axes.set(xlim=(-4.5, 4.5), ylim=(-2.3, 2.3), title=title)
        axes.set_aspect("equal")
        axes.axis("off")
    return axes


def _stage_box(
    axes: Axes, stage: str, centre: tuple[float, float], caption: str, stressed: bool
) -> FancyBboxPatch:
    x, y = centre
    colour = STAGE_COLOURS[stage] if stressed else LIGHT
    style = "round,pad=0.02,rounding_size=0.12"
    box = FancyBboxPatch((x - 0.95, y - 0.5), 1.9, 1.0, boxstyle=style, fc=colour, ec="none")
    axes.add_patch(box)
    ink = text_on(colour) if stressed else GREY
    axes.text(x, y + 0.24, stage, ha="center", va="center", color=ink, fontsize=13, weight="bold")
    axes.text(
        x, y - 0.19, caption, ha="center", va="center", color=ink, fontsize=10, linespacing=1.05
    )
    return box


def stage_seconds(seconds: Mapping[str, float], *, title: str = "") -> Axes:
    """Draw how long each stage of one step took, as one bar per stage.

    Args:
        seconds: the time in seconds of each stage, in the order of the step.
        title: the finding.
    """
    total = sum(seconds.values())
    with course_style():
        _, axes = new_axes(8.0, 3.2)
        names = list(seconds)
        milliseconds = [1e3 * seconds[name] for name in names]
        colours = [STAGE_COLOURS.get(name, GREY) for name in names]
        bars = axes.barh(names, milliseconds, color=colours)
        shares = [f"{value:.2f} ms · {value / total / 10:.0f} %" for value in milliseconds]
        axes.bar_label(bars, labels=shares, padding=4, fontsize=11, color=BLACK)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.3 * max(milliseconds))
        axes.set(xlabel="milliseconds in one step, on this machine", title=title)
        axes.grid(axis="x", color=LIGHT)
    return axes
