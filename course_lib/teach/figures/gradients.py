"""Pictures of gradients: one parameter's slope, a step down it, and the gradients of many ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from torch import Tensor

from course_lib.teach.figures.style import (
    BLACK,
    BLUE,
    GREY,
    LIGHT,
    RANK_COLOURS,
    RANK_MARKERS,
    VERMILION,
    course_style,
    new_axes,
)


def slope_at(
    offsets: Sequence[float], losses: Sequence[float], slope: float, *, title: str = ""
) -> Axes:
    """Draw the loss as one parameter moves, and the straight line that the gradient predicts.

    Args:
        offsets: how far the parameter was moved; 0 is where it stands.
        losses: the loss measured at each offset (nats per token).
        slope: the gradient of the loss by this parameter at offset 0.
        title: the finding.

    Raises:
        ValueError: if no offset is 0, so that there is no point to draw the line through.
    """
    offsets, losses = list(offsets), list(losses)
    here = min(range(len(offsets)), key=lambda index: abs(offsets[index]))
    if abs(offsets[here]) > 1e-9:
        raise ValueError("one of the offsets must be 0: the line goes through that point")
    with course_style():
        _, axes = new_axes(7.5, 3.4)
        axes.plot(offsets, losses, color=BLUE, label="the loss, measured")
        line = [losses[here] + slope * offset for offset in offsets]
        axes.plot(offsets, line, "--", color=VERMILION, label="the gradient's prediction")
        axes.plot([0], [losses[here]], "o", color=BLACK, markersize=9, zorder=5)
        axes.annotate(
            "the parameter now", (0, losses[here]), xytext=(8, -18), textcoords="offset points"
        )
        low, high = min(losses), max(losses)
        margin = 0.25 * (high - low or 1e-6)
        axes.set_ylim(low - margin, high + margin)
        axes.set(xlabel="change of the parameter", ylabel="loss (nats per token)", title=title)
        axes.grid(color=LIGHT)
        axes.legend(loc="best")
    return axes


def gradients_of_ranks(
    per_rank: Sequence[Tensor], averaged: Tensor, whole_batch: Tensor, *, title: str = ""
) -> Axes:
    """Draw a few elements of one gradient: each rank's own, their average, the whole batch's.

    Args:
        per_rank: for each rank a vector of the same few elements of its own gradient.
        averaged: the same elements after averaging over ranks.
        whole_batch: the same elements computed by one process on the whole batch.
        title: the finding.
    """
    count = len(averaged)
    with course_style():
        _, axes = new_axes(8.0, 3.6)
        axes.axhline(0, color=GREY, linewidth=1)
        for rank, values in enumerate(per_rank):
            places = [index - 0.24 + 0.16 * rank for index in range(count)]
            axes.plot(
                places,
                values.tolist(),
                RANK_MARKERS[rank],
                color=RANK_COLOURS[rank],
                markersize=7,
                label=f"rank {rank} alone",
            )
        for index in range(count):
            value = float(whole_batch[index])
            axes.plot(
                [index - 0.4, index + 0.4], [value, value], color=BLACK, linewidth=4, alpha=0.3
            )
        axes.plot([], [], color=BLACK, linewidth=4, alpha=0.3, label="whole batch, one process")
        axes.plot(
            range(count),
            averaged.tolist(),
            "_",
            color=BLACK,
            markersize=18,
            markeredgewidth=2,
            label="average over ranks",
        )
        axes.set_xticks(range(count), [f"[{index}]" for index in range(count)])
        axes.set(xlabel="element of the gradient", ylabel="gradient", title=title)
        axes.grid(axis="y", color=LIGHT)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes


def descent(ways: Mapping[float, Sequence[float]], chosen: float) -> Axes:
    """Draw the losses of a few updates with one learning rate, those of other rates pale behind.

    Args:
        ways: learning rate -> the loss before each update (nats per token), the first before any.
        chosen: the rate that stands out; one of `ways`.
    """
    losses = ways[chosen]
    verdict = "goes down" if losses[-1] < losses[0] else "ends higher than it began"
    with course_style():
        _, axes = new_axes(8.0, 3.4)
        for rate, values in ways.items():
            if rate != chosen:
                axes.plot(range(len(values)), values, color="#B8B8B8", linewidth=1.8)
        axes.plot(range(len(losses)), losses, "o-", color=VERMILION, markersize=7, zorder=5)
        axes.axhline(losses[0], color=GREY, linestyle=":", label="before the first step")
        axes.set_yscale("log")
        highest = max(max(values) for values in ways.values())
        ticks = [tick for tick in (1, 2, 3, 5, 10, 20, 30, 50, 100) if tick <= 1.2 * highest]
        axes.set_yticks(ticks, [str(tick) for tick in ticks])
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set(
            xlabel="steps taken",
            ylabel="loss (nats per token)",
            title=f"With learning rate {chosen:g} the loss {verdict}",
        )
        axes.grid(color=LIGHT)
        axes.legend(loc="upper left")
    return axes
