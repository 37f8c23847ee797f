"""Figures and widgets of chapters 01 and 02 show the data that they are given."""

import math

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt

from course_lib.teach.figures.attention import attention_map, sharpness
from course_lib.teach.figures.costs import work_and_time
from course_lib.teach.figures.sizes import size_by_layer
from course_lib.teach.figures.surprise import loss_and_goal, surprise_curve
from course_lib.teach.figures.transformer import PARTS, gelu_curve, transformer_map
from course_lib.teach.widgets.attention_explorer import attention_explorer
from course_lib.teach.widgets.surprise import surprise_explorer

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_the_map_names_every_part_and_how_often_a_block_comes():
    shown = [text.get_text() for text in transformer_map(layers=7).texts]
    assert {name for name, _, _ in PARTS} <= set(shown)
    assert "a block, 7 times" in shown


def test_attention_map_shows_percent_and_frames_the_marks():
    pattern = torch.tensor([[1.0, math.nan], [0.25, 0.75]])
    axes = attention_map(pattern, ["a", "b"], marks=[(1, 0)])
    drawn = axes.images[0].get_array()
    assert drawn.filled(-1).tolist() == [[100, -1], [25, 75]]
    assert axes.patches[0].get_xy() == (-0.5, 0.5)


def test_attention_map_needs_a_label_for_each_token():
    with pytest.raises(ValueError, match="as many labels, not 1 and 1"):
        attention_map(torch.eye(2), ["a"])


def test_lines_are_drawn_through_their_values():
    axes = sharpness([1, 4], [0.2, 0.9], [0.2, 0.3])
    assert [list(line.get_ydata()) for line in axes.lines] == [[20, 90], [20, 30]]
    axes = size_by_layer({"small": [1.0, 0.5], "right": [1.0, 1.0]})
    assert [list(line.get_ydata()) for line in axes.lines] == [[1.0, 0.5], [1.0, 1.0]]
    axes = gelu_curve([-1.0, 1.0], [-0.16, 0.84])
    assert list(axes.lines[-1].get_ydata()) == [-0.16, 0.84]
    assert list(axes.lines[-2].get_ydata()) == [0.0, 1.0]


def test_work_and_time_draws_both_shares():
    axes = work_and_time({"norm": 1, "mlp": 3}, {"norm": 2e-3, "mlp": 2e-3})
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([25, 75, 50, 50])
    with pytest.raises(ValueError, match="FLOPs of"):
        work_and_time({"norm": 1}, {"mlp": 1})


def test_the_curve_marks_the_loss_of_the_probability():
    axes = surprise_curve(70)
    marked = axes.lines[-1]
    assert list(marked.get_xdata()) == [70]
    assert list(marked.get_ydata()) == pytest.approx([0.356675])
    assert axes.get_title(loc="left").endswith("the loss is 0.357")
    with pytest.raises(ValueError, match="percent is 0"):
        surprise_curve(0)


def test_loss_and_goal_draws_a_bar_for_each_model():
    axes = loss_and_goal({"A": (0.5, 1.0), "B": (0.25, 0.0)})
    assert [bar.get_height() for bar in axes.patches] == [0.5, 0.25]


def picture(widget) -> bytes:
    return widget.children[1].value


def test_choosing_a_head_changes_the_picture():
    torch.manual_seed(0)
    patterns = torch.softmax(torch.randn(2, 3, 4, 4), -1)
    widget = attention_explorer(patterns, list("abcd"), start=(1, 2))
    layer, head = widget.children[0].children
    assert (layer.value, head.value) == (1, 2)
    first = picture(widget)
    assert first == widget.static_png
    head.value = 0
    assert picture(widget) != first
    with pytest.raises(ValueError, match="2 layers with 3 heads"):
        attention_explorer(patterns, list("abcd"), start=(2, 0))


def test_moving_the_probability_changes_the_picture():
    widget = surprise_explorer(70)
    first = picture(widget)
    widget.children[0].children[0].value = 20
    assert picture(widget) != first
    with pytest.raises(ValueError, match="percent is 0"):
        surprise_explorer(0)
