"""Pictures of graphs, directions and errors show what autograd and the numbers say."""

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt

from course_lib.teach.figures.autograd_graph import autograd_graph, recorded_graph
from course_lib.teach.figures.directions import slope_in_direction
from course_lib.teach.figures.gradient_checks import errors_by_parameter, nudge_errors
from course_lib.teach.figures.loss_gradient import belief_minus_truth
from course_lib.teach.figures.slopes import functions_and_slopes
from course_lib.teach.widgets.directions import direction_explorer

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def neuron():
    w = torch.tensor(0.5, requires_grad=True)
    b = torch.tensor(-0.4, requires_grad=True)
    return (torch.tanh(2 * w + b) - 1) ** 2, w, b


def test_the_graph_holds_autograds_nodes_and_gradients():
    loss, w, b = neuron()
    graph = recorded_graph(loss, {"w": w, "b": b})
    operations = [label for key, label in graph.nodes.items() if key not in graph.leaves]
    assert operations == [
        "PowBackward0", "SubBackward0", "TanhBackward0", "AddBackward0", "MulBackward0"
    ]  # fmt: skip
    arriving = {graph.nodes[target]: value for _, target, value in graph.edges}
    for name, reference in zip("wb", torch.autograd.grad(loss, (w, b)), strict=True):
        assert torch.equal(arriving[name], reference)
    assert w.grad is None


def test_a_value_used_twice_has_two_edges_that_add_up_to_its_gradient():
    x = torch.randn(4, 3, requires_grad=True)
    loss = (x + torch.tanh(3 * x)).mean()
    graph = recorded_graph(loss, {"x": x})
    ways = [value for _, target, value in graph.edges if graph.nodes[target] == "x"]
    assert len(ways) == 2
    assert torch.allclose(sum(ways), torch.autograd.grad(loss, x)[0])


def test_no_two_boxes_of_a_graph_share_a_place():
    loss, w, b = neuron()
    axes = autograd_graph(loss, {"w": w, "b": b})
    corners = [
        (round(box.get_x(), 3), round(box.get_y(), 3))
        for box in axes.patches
        if isinstance(box, matplotlib.patches.FancyBboxPatch)
    ]
    assert len(corners) == 7
    assert len(set(corners)) == 7
    shown = {text.get_text() for text in axes.texts}
    assert {"w", "b", "loss", "-1.318", "-0.926"} <= shown


def test_a_graph_needs_one_recorded_number():
    with pytest.raises(ValueError, match="that of one number"):
        recorded_graph(torch.ones(3, requires_grad=True) * 2, {})
    with pytest.raises(ValueError, match="grad_fn None"):
        recorded_graph(torch.tensor(1.0), {})


def test_the_direction_marked_has_the_slope_of_gradient_times_direction():
    grid = torch.randn(5, 5)
    axes = slope_in_direction(grid, (0, 1, 0, 1), (0.5, 0.5), (3.0, 4.0), [(0, 3.0)], 90)
    assert axes.get_title(loc="left") == "Towards 90° the loss rises: slope +4.00"
    axes = slope_in_direction(grid, (0, 1, 0, 1), (0.5, 0.5), (3.0, 4.0), [(0, 3.0)], 180)
    assert axes.get_title(loc="left") == "Towards 180° the loss falls: slope -3.00"


def test_turning_the_direction_redraws_it():
    widget = direction_explorer(torch.randn(5, 5), (0, 1, 0, 1), (0.5, 0.5), (1.0, 0.0), [(0, 1)])
    first = widget.children[1].value
    widget.children[0].children[0].value = 300
    assert widget.children[1].value != first
    with pytest.raises(ValueError, match="the gradient is zero"):
        direction_explorer(torch.randn(5, 5), (0, 1, 0, 1), (0.5, 0.5), (0.0, 0.0), [(0, 0)])


def test_errors_are_drawn_where_they_are():
    axes = nudge_errors([1e-1, 1e-2], {"float64": [1e-3, 1e-5]})
    assert list(axes.lines[0].get_ydata()) == [1e-3, 1e-5]
    errors = {"float64": {"a": 1e-14, "b": 1e-13}, "float32": {"a": 1e-7, "b": 2e-7}}
    axes = errors_by_parameter(errors, {"float64": 1e-10, "float32": 1e-5})
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert list(axes.lines[0].get_xdata()) == [1e-14, 1e-13]


def test_belief_less_truth_and_slopes_are_drawn_as_given():
    p = torch.tensor([0.7, 0.3])
    axes = belief_minus_truth(p, torch.tensor([0.7, -0.7]), ["a", "b"], 1)
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.7, 0.3])
    assert [bar.get_hatch() is not None for bar in axes.patches] == [False, True]
    x = torch.linspace(-1, 1, 5)
    axes = functions_and_slopes(x, {"square": (x**2, 2 * x)})
    assert list(axes.lines[0].get_ydata()) == pytest.approx((x**2).tolist())
