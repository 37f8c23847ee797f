"""One look for every figure of the course: colours, sizes, and the axes that figures draw on.

Colours are Okabe and Ito's palette (2008), which readers with any common colour blindness can tell
apart; no figure relies on colour alone. Sizes are chosen for a projector at 1280 x 720.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLACK, GREY, LIGHT = "#222222", "#7A7A7A", "#E6E6E6"
BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
ORANGE, VERMILION, PURPLE, YELLOW = "#E69F00", "#D55E00", "#CC79A7", "#F0E442"

STAGES = ("data", "forward", "loss", "backward", "sync", "update")
STAGE_COLOURS = dict(zip(STAGES, (GREY, BLUE, ORANGE, VERMILION, PURPLE, GREEN), strict=True))
RANK_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, GREY)
RANK_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

RC = {
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": BLACK,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelsize": 12,
    "axes.axisbelow": True,
    "grid.color": LIGHT,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "legend.fontsize": 11,
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "font.family": "DejaVu Sans",
    "svg.hashsalt": "course",
}


@contextmanager
def course_style() -> Iterator[None]:
    """Draw in the course's style inside this block; the reader's settings come back after it.

    Only our own settings are put back: a notebook switches its backend on with the first figure,
    and `matplotlib.rc_context` would switch it off again.
    """
    before = {name: matplotlib.rcParams[name] for name in RC}
    matplotlib.rcParams.update(RC)
    try:
        yield
    finally:
        matplotlib.rcParams.update(before)


def new_axes(
    width_in: float = 8.0, height_in: float = 3.6, *, rows: int = 1, columns: int = 1, **kwargs
) -> tuple[Figure, Axes]:
    """Return a figure of the course's size and its axes (an array of them for several)."""
    return plt.subplots(
        rows, columns, figsize=(width_in, height_in), layout="constrained", **kwargs
    )


def text_on(colour: str) -> str:
    """Return black or white, whichever reads better on a background of this colour."""
    red, green, blue = matplotlib.colors.to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
