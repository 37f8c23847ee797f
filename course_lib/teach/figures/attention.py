"""Pictures of attention: who looks at whom, and why scores are scaled."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.teach.figures.style import (
    BLUE,
    LIGHT,
    VERMILION,
    course_style,
    new_axes,
)

Place = tuple[int, int]


def attention_map(
    pattern_TS: Tensor,
    labels: Sequence[str],
    *,
    marks: Sequence[Place] = (),
    title: str = "",
    row_labels: Sequence[str] | None = None,
) -> Axes:
    """Draw how much each token (row) takes from each token (column), in percent.

    Args:
        pattern_TS: T rows that each sum to 1; nan where a token must not look.
        labels: T texts, one for each token.
        marks: (row, column) places to frame.
        title: the finding.
        row_labels: other texts for the rows.

    Raises:
        ValueError: if there is not one label for each token.
    """
    pattern_TS = pattern_TS.detach()
    tokens = pattern_TS.shape[-1]
    rows = labels if row_labels is None else row_labels
    if len(labels) != tokens or len(rows) != pattern_TS.shape[0]:
        raise ValueError(
            f"a pattern of shape {tuple(pattern_TS.shape)} needs as many labels, "
            f"not {len(rows)} and {len(labels)}"
        )
    with course_style():
        _, axes = new_axes(7.4, 4.4)
        image = axes.imshow(100 * pattern_TS.numpy(), cmap="Blues", vmin=0, vmax=100, aspect="auto")
        axes.set_facecolor(LIGHT)
        mono = {"fontfamily": "monospace", "fontsize": 13}
        axes.set_xticks(range(tokens), labels, **mono)
        axes.set_yticks(range(len(rows)), rows, **mono)
        for row, column in marks:
            frame = Rectangle(
                (column - 0.5, row - 0.5), 1, 1, fill=False, ec=VERMILION, lw=2.2, clip_on=False
            )
            axes.add_patch(frame)
        axes.figure.colorbar(image, ax=axes, label="attention (%)", shrink=0.9)
        axes.set(xlabel="… takes from this token", ylabel="the token here …", title=title)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return axes


def sharpness(
    head_widths: Sequence[int],
    plain: Sequence[float],
    scaled: Sequence[float],
    *,
    title: str = "",
) -> Axes:
    """Draw how much of the attention goes to one token, without and with the scale.

    Args:
        head_widths: K, ascending.
        plain: the mean largest weight without a scale, 0 to 1, for each K.
        scaled: the same with scores divided by sqrt(K).
        title: the finding.
    """
    with course_style():
        _, axes = new_axes(7.5, 3.4)
        for values, style, colour, label in (
            (plain, "s--", VERMILION, "scores as they are"),
            (scaled, "o-", BLUE, "scores ÷ √K"),
        ):
            axes.plot(head_widths, [100 * v for v in values], style, color=colour, label=label)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(head_widths), [str(k) for k in head_widths])
        axes.set(
            xlabel="width of a head, K",
            ylabel="share of the largest\nweight (%)",
            ylim=(0, 105),
            title=title,
        )
        axes.grid(color=LIGHT)
        axes.legend(loc="center right")
    return axes
