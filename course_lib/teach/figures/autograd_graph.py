"""Pictures of a computational graph: the nodes that autograd itself recorded, and what it passes
back along each edge.

Nothing is drawn that isn't there: nodes and edges come from `grad_fn.next_functions`, gradients
from hooks on those nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from torch import Tensor

from course_lib.teach.figures.style import (
    BLACK,
    BLUE,
    ORANGE,
    VERMILION,
    course_style,
    new_axes,
    text_on,
)

BOX_HEIGHT, BOX_WIDTH, LEAF_WIDTH = 0.46, 0.58, 0.46


@dataclass
class Graph:
    """A recorded graph.

    Args:
        nodes: key -> label, in the order in which the backward pass first meets them.
        leaves: the keys of the nodes that stand for a tensor of the caller.
        edges: (from, to, gradient) in the direction of the backward pass; the gradient is None
            where nothing was passed.
    """

    nodes: dict[int, str] = field(default_factory=dict)
    leaves: set[int] = field(default_factory=set)
    edges: list[tuple[int, int, Tensor | None]] = field(default_factory=list)


def recorded_graph(output: Tensor, names: Mapping[str, Tensor]) -> Graph:
    """Walk the graph behind a scalar, and run its backward pass to see each gradient go by.

    Args:
        output: a scalar with a grad_fn; its graph is kept, and no `.grad` is changed.
        names: a name for each tensor that the graph should end in.

    Raises:
        ValueError: the output isn't a scalar that autograd has recorded.
    """
    if output.grad_fn is None or output.numel() != 1:
        raise ValueError(
            f"the graph is that of one number with a grad_fn, not of a tensor of shape "
            f"{tuple(output.shape)} with grad_fn {output.grad_fn}"
        )
    graph, hooks = Graph(), []
    passed: dict[int, tuple[Tensor | None, ...]] = {}
    waiting: list[Any] = [output.grad_fn]
    keep_alive = []  # a node's Python object must live on, or its id may be given to another
    while waiting:
        node = waiting.pop(0)
        if id(node) in graph.nodes:
            continue
        keep_alive.append(node)
        graph.nodes[id(node)] = _label(node, names)
        if hasattr(node, "variable"):
            graph.leaves.add(id(node))
            continue
        hooks.append(node.register_hook(_recorder(passed, id(node))))
        waiting += [following for following, _ in node.next_functions if following is not None]
    torch.autograd.grad(output, list(names.values()), retain_graph=True, allow_unused=True)
    for hook in hooks:
        hook.remove()
    for node in keep_alive:
        for index, (following, _) in enumerate(node.next_functions):
            if following is not None:
                gradients = passed.get(id(node), ())
                gradient = gradients[index] if index < len(gradients) else None
                graph.edges.append((id(node), id(following), gradient))
    return graph


def _recorder(passed: dict[int, tuple[Tensor | None, ...]], key: int) -> Any:
    def record(grad_inputs: tuple[Tensor | None, ...], _grad_outputs: Any) -> None:
        passed[key] = grad_inputs

    return record


def _label(node: Any, names: Mapping[str, Tensor]) -> str:
    if not hasattr(node, "variable"):
        return str(node.name())
    return next((name for name, tensor in names.items() if tensor is node.variable), "leaf")


def autograd_graph(
    output: Tensor, names: Mapping[str, Tensor], *, title: str = "", output_name: str = "loss"
) -> Axes:
    """Draw what autograd recorded: inputs at the left, the output at the right, gradients between.

    Args:
        output: a scalar with a grad_fn.
        names: a name for each tensor that the graph ends in.
        title: the finding.
        output_name: what to call the output.
    """
    graph = recorded_graph(output, names)
    places = _places(graph)
    columns = max(x for x, _ in places.values()) + 1
    rows = max(y for _, y in places.values()) + 1
    with course_style():
        _, axes = new_axes(min(10.0, 1.75 * columns + 0.9), 1.05 * rows + 0.9)
        for source, target, gradient in graph.edges:
            _edge(axes, places[source], places[target], gradient, target in graph.leaves)
        for key, label in graph.nodes.items():
            _node(axes, places[key], label, key in graph.leaves)
        first = next(iter(graph.nodes))
        x, y = places[first]
        axes.text(x, y + 0.36, output_name, ha="center", weight="bold", fontsize=12, color=BLACK)
        axes.set(xlim=(-0.6, columns - 0.25), ylim=(-0.6, rows - 0.5), title=title)
        axes.axis("off")
        axes.text(
            0.5, -0.06, "← the backward pass, with the gradient that it hands on",
            transform=axes.transAxes, ha="center", va="top", color=VERMILION, fontsize=11,
        )  # fmt: skip
    return axes


def _places(graph: Graph) -> dict[int, tuple[float, float]]:
    """Return (column, row) for each node: it stands left of all that it feeds, the longest way on
    the lowest row."""
    depth = dict.fromkeys(graph.nodes, 0)
    for _ in graph.nodes:  # the longest way from the output
        for source, target, _gradient in graph.edges:
            depth[target] = max(depth[target], depth[source] + 1)
    deepest = max(depth.values())
    rows: dict[int, int] = {}

    def place(key: int, row: int) -> None:
        rows[key] = row
        fed = [target for source, target, _gradient in graph.edges if source == key]
        for target in sorted(fed, key=lambda k: -_reach(graph, k)):
            if target not in rows:
                place(target, row if rows[key] not in _taken(rows, fed) else max(rows.values()) + 1)

    place(next(iter(graph.nodes)), 0)
    return {key: (float(deepest - depth[key]), float(rows[key])) for key in graph.nodes}


def _reach(graph: Graph, key: int) -> int:
    """Return how many edges the longest way on from a node has."""
    return max((1 + _reach(graph, t) for s, t, _ in graph.edges if s == key), default=0)


def _taken(rows: dict[int, int], keys: list[int]) -> set[int]:
    return {rows[key] for key in keys if key in rows}


def _node(axes: Axes, place: tuple[float, float], label: str, leaf: bool) -> None:
    x, y = place
    width = LEAF_WIDTH if leaf else BOX_WIDTH
    colour = ORANGE if leaf else BLUE
    box = FancyBboxPatch(
        (x - width / 2, y - BOX_HEIGHT / 2),
        width,
        BOX_HEIGHT,
        boxstyle="round,pad=0.02,rounding_size=0.08",
        fc=colour,
        ec="none",
        zorder=3,
    )
    axes.add_patch(box)
    text = label.replace("Backward", "\nBackward")
    axes.text(
        x, y, text, ha="center", va="center", color=text_on(colour), zorder=4,
        fontsize=13 if leaf else 10, weight="bold" if leaf else "normal", linespacing=1.0,
    )  # fmt: skip


def _edge(
    axes: Axes,
    source: tuple[float, float],
    target: tuple[float, float],
    gradient: Tensor | None,
    to_leaf: bool,
) -> None:
    start = (source[0] - BOX_WIDTH / 2 - 0.03, source[1])
    end = (target[0] + (LEAF_WIDTH if to_leaf else BOX_WIDTH) / 2 + 0.03, target[1])
    passes = source[0] - target[0] > 1 and source[1] == target[1]  # below the nodes between
    if passes:
        start = (source[0], source[1] - BOX_HEIGHT / 2 - 0.03)
        end = (target[0], target[1] - BOX_HEIGHT / 2 - 0.03)
    arc = "arc,angleA=-90,angleB=-90,armA=24,armB=24,rad=12" if passes else "arc3"
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=16, color=VERMILION, linewidth=1.8,
            connectionstyle=arc, shrinkA=0, shrinkB=0, zorder=2,
        )
    )  # fmt: skip
    if gradient is not None:
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        text = f"{gradient.item():.3f}" if gradient.numel() == 1 else _shape(gradient)
        lift = -0.23 if passes else 0.19 if source[1] == target[1] else 0.0
        axes.text(
            x, y + lift, text, ha="center", va="center", fontsize=10, color=BLACK, zorder=5,
            bbox={"fc": "white", "ec": "none", "pad": 1.0},
        )  # fmt: skip


def _shape(tensor: Tensor) -> str:
    return "[" + ", ".join(map(str, tensor.shape)) + "]"
