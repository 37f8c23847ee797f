"""Figures and the widget of the update's chapter show the data that they are given."""

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt

from course_lib.teach.figures.bounds import roofline, times_against_bounds
from course_lib.teach.figures.series import over_steps
from course_lib.teach.figures.surfaces import XLIM, paths_on_surface
from course_lib.teach.widgets.descent import descent_explorer
from course_lib.update.paths import valley

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_a_path_is_drawn_point_by_point_and_what_is_far_off_is_cut():
    path = torch.tensor([[-4.0, 0.5], [-3.0, 0.1], [1e30, float("inf")]])
    axes = paths_on_surface(valley, {"one": path})
    line = axes.lines[0]
    assert line.get_xdata()[:2].tolist() == [-4.0, -3.0]
    assert line.get_ydata()[2] == line.get_xdata()[2] == 50.0
    assert axes.get_xlim() == XLIM


def test_curves_over_steps_start_at_the_step_named():
    axes = over_steps({"a": [1, 2], "b": [3, 4]}, ylabel="loss", first=5, reference=(2.5, "half"))
    assert list(axes.lines[0].get_xdata()) == [5, 6]
    assert [line.get_label() for line in axes.lines] == ["a", "b", "half"]


def test_times_and_bounds_stand_in_the_same_row():
    axes = times_against_bounds({"a": 0.002, "b": 0.004}, {"a": 0.001, "b": 0.003})
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([2, 4])
    assert list(axes.lines[1].get_xdata()) == pytest.approx([3, 3])
    with pytest.raises(ValueError, match="times for a and bounds for b"):
        times_against_bounds({"a": 1}, {"b": 1})


def test_the_roof_bends_where_both_bounds_meet():
    axes = roofline(100e9, 20e9, {"forward": (50, 60e9), "update": (0.1, 1e9)})
    x, y = axes.lines[0].get_data()
    assert (x[1], y[1], y[2]) == (5, 100, 100)
    assert y[0] == pytest.approx(x[0] * 20)
    texts = {text.get_text() for text in axes.texts}
    assert {"forward", "update", "memory-bound"} <= texts


def title_of(widget, **values):
    axes = widget._draw(**{**widget._values(), **values})
    return axes.get_title(loc="left")


def test_the_explorer_tells_divergence_from_descent():
    widget = descent_explorer(valley, (-4.0, 0.5))
    assert "loss 20.5 →" in title_of(widget)
    assert title_of(widget, rate=0.021).endswith("diverges")
    assert "loss" in title_of(widget, optimizer="Adam", rate=0.1, momentum=0.9)
    before = widget.children[1].value
    widget.children[0].children[1].value = 0.03
    assert widget.children[1].value != before
    assert widget.children[2].value == ""
    with pytest.raises(ValueError, match=r"rate is 0\.5: use one of"):
        descent_explorer(valley, (-4.0, 0.5), rate=0.5)
