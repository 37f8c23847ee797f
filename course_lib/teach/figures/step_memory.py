"""Pictures of what a training step holds in memory, whole and in micro-batches."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from course_lib.teach.figures.style import RANK_COLOURS, course_style, new_axes, text_on


def memory_of_step(
    fixed_bytes: Mapping[str, float], activation_bytes: float, parts: int, *, title: str = ""
) -> Axes:
    """Draw the memory of a step as one stacked bar for 1 part, and one for `parts` parts.

    Args:
        fixed_bytes: name -> bytes that don't depend on the batch (parameters, gradients, state).
        activation_bytes: what the forward pass of the whole batch keeps for the backward pass.
        parts: in how many micro-batches the batch is worked through.
        title: the finding.

    Raises:
        ValueError: parts below 1.
    """
    if parts < 1:
        raise ValueError(f"parts is {parts}: a batch has at least one part")
    pieces = [*fixed_bytes.items(), ("activations", activation_bytes)]
    total_mib = sum(size_bytes for _, size_bytes in pieces) / 2**20
    rows = ["whole batch at once", f"in {parts} part{'s' if parts > 1 else ''}"]
    with course_style():
        _, axes = new_axes(8.0, 3.2)
        left = [0.0, 0.0]
        for index, (name, size_bytes) in enumerate(pieces):
            colour = RANK_COLOURS[index]
            share = parts if name == "activations" else 1
            widths = [size_bytes / 2**20, size_bytes / share / 2**20]
            axes.barh(rows, widths, left=left, color=colour, edgecolor="white", label=name)
            for row, width in enumerate(widths):
                if name == "activations" and width > 0.12 * total_mib:
                    place = (left[row] + width / 2, row)
                    axes.text(*place, f"{width:.1f} MiB", ha="center", va="center",
                              color=text_on(colour))  # fmt: skip
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.set(xlabel="memory of one training step (MiB)", title=title)
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.25), ncols=4)
    return axes
