"""The classroom picture: what data-parallel training would look like if ranks were pupils."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Wedge

from course_lib.teach.figures.style import (
    BLACK,
    GREY,
    RANK_COLOURS,
    STAGE_COLOURS,
    course_style,
    new_axes,
)

PANELS = (
    ("forward", "each pupil\nalone"),
    ("loss", "answers\nchecked"),
    ("backward", "mistakes\nfound"),
    ("sync", "one correction\nagreed"),
    ("update", "all corrected\nalike"),
)
SHEETS = {
    "forward": ("3+5=?", "2+4=?", "6+3=?", "1+7=?"),
    "loss": ("3+5=2", "2+4=7", "6+3=9", "1+7=9"),
    "backward": ("−4", "+2", "0", "−2"),
    "sync": ("", "", "", ""),
    "update": ("−1",) * 4,
}


def classroom(panels=PANELS, *, title: str = "") -> Axes:
    """Draw five scenes of a class of four: do, check, find, agree, correct.

    Args:
        panels: (stage, caption) of each scene, in order; captions may be given in another language.
        title: the finding.
    """
    with course_style():
        _, axes = new_axes(11.5, 4.1)
        for index, (stage, caption) in enumerate(panels):
            left = 2.35 * index
            _scene(axes, left, stage)
            axes.text(left + 1, 3.45, caption, ha="center", va="center", fontsize=12)
            axes.text(
                left + 1,
                -0.28,
                stage,
                ha="center",
                color=STAGE_COLOURS[stage],
                fontsize=13,
                weight="bold",
            )
            if index:
                axes.add_patch(
                    FancyArrowPatch(
                        (left - 0.32, 1.5),
                        (left - 0.03, 1.5),
                        arrowstyle="-|>",
                        color=GREY,
                        mutation_scale=18,
                        linewidth=2,
                    )
                )
        axes.set(xlim=(-0.15, 2.35 * len(panels) - 0.2), ylim=(-0.5, 3.8), title=title)
        axes.set_aspect("equal")
        axes.axis("off")
    return axes


def _scene(axes: Axes, left: float, stage: str) -> None:
    style = "round,pad=0,rounding_size=0.1"
    frame = FancyBboxPatch(
        (left, 0), 2, 3, boxstyle=style, fc="#FAFAFA", ec=STAGE_COLOURS[stage], linewidth=2
    )
    axes.add_patch(frame)
    seats = [(left + 0.5, 2.05), (left + 1.5, 2.05), (left + 0.5, 0.65), (left + 1.5, 0.65)]
    if stage == "sync":
        _round_table(axes, left + 1, 1.45, seats)
    for rank, (x, y) in enumerate(seats):
        _pupil(axes, x, y, RANK_COLOURS[rank], SHEETS[stage][rank], _mark(stage, rank))


def _mark(stage: str, rank: int) -> str:
    """A tick or a cross beside each checked answer: of the four, only 6+3=9 is right."""
    return "" if stage != "loss" else ("right" if rank == 2 else "wrong")


def _pupil(axes: Axes, x: float, y: float, colour: str, sheet: str, mark: str) -> None:
    axes.add_patch(Circle((x, y + 0.42), 0.17, fc=colour, ec="none", zorder=2))
    axes.add_patch(Wedge((x, y - 0.04), 0.3, 0, 180, fc=colour, ec="none", zorder=2))
    if not sheet:
        return
    axes.add_patch(
        FancyBboxPatch(
            (x - 0.4, y - 0.46),
            0.8,
            0.34,
            boxstyle="round,pad=0,rounding_size=0.04",
            fc="white",
            ec=GREY,
            linewidth=1,
        )
    )
    axes.text(x, y - 0.3, sheet, ha="center", va="center", fontsize=9.5, family="monospace")
    if mark == "right":
        axes.plot(
            [x + 0.22, x + 0.28, x + 0.41], [y + 0.3, y + 0.2, y + 0.45], color="#009E73", lw=3
        )
    elif mark == "wrong":
        for ends in ([y + 0.2, y + 0.42], [y + 0.42, y + 0.2]):
            axes.plot([x + 0.23, x + 0.41], ends, color="#D55E00", lw=3)


def _round_table(axes: Axes, x: float, y: float, seats: list[tuple[float, float]]) -> None:
    """All four talk to each other and end with one number, the mean of −4, +2, 0 and −2."""
    for seat_x, seat_y in seats:
        axes.plot([x, seat_x], [y, seat_y + 0.1], color=STAGE_COLOURS["sync"], lw=2, zorder=1.5)
    axes.add_patch(Circle((x, y), 0.3, fc="white", ec=STAGE_COLOURS["sync"], lw=2.5, zorder=3))
    axes.text(
        x, y, "−1", ha="center", va="center", fontsize=12, weight="bold", color=BLACK, zorder=4
    )
