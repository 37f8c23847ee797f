"""A widget redraws when a control moves, shows its errors, and has a static picture."""

import ipywidgets
import matplotlib
import pytest

from course_lib.teach.figures.gradients import descent
from course_lib.teach.widgets.base import PictureWidget
from course_lib.teach.widgets.learning_rate import learning_rate_explorer

matplotlib.use("Agg")
PNG = b"\x89PNG"
WAYS = {0.1: [2.5, 2.2, 2.0], 1.0: [2.5, 2.1, 9.0]}


def slider_of(widget):
    return widget.children[0].children[0]


def image_of(widget):
    return widget.children[1]


def test_moving_the_slider_changes_the_picture():
    widget = learning_rate_explorer(WAYS, start=0.1)
    first = image_of(widget).value
    slider_of(widget).value = 1.0
    assert image_of(widget).value[:4] == PNG
    assert image_of(widget).value != first


def test_the_static_picture_is_part_of_the_output_and_stays_the_first():
    widget = learning_rate_explorer(WAYS, start=0.1)
    slider_of(widget).value = 1.0
    bundle = widget._repr_mimebundle_()
    assert bundle["image/png"] == widget.static_png
    assert bundle["image/png"] != image_of(widget).value
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "0x" not in bundle["text/plain"]


def test_an_error_while_drawing_is_shown_beside_the_picture():
    def draw(index):
        if index == 2:
            raise RuntimeError("no such <thing>")
        return descent(WAYS, 0.1)

    slider = ipywidgets.IntSlider(value=0, min=0, max=2)
    widget = PictureWidget(draw, {"index": slider}, alt="a test")
    slider.value = 2
    assert "no such &lt;thing&gt;" in widget.children[2].value
    slider.value = 1
    assert widget.children[2].value == ""


def test_a_start_that_is_no_rate_is_refused():
    with pytest.raises(ValueError, match=r"start is 0\.3: use one of 0\.1, 1"):
        learning_rate_explorer(WAYS, start=0.3)
