"""The memory picture and its slider show the bytes that they are given."""

import matplotlib
import pytest
from matplotlib import pyplot as plt

from course_lib.teach.figures.step_memory import memory_of_step
from course_lib.teach.widgets.accumulation import accumulation_explorer

matplotlib.use("Agg")
MIB = 2**20


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_only_the_activations_shrink_with_the_parts():
    axes = memory_of_step({"parameters": 2 * MIB, "state": 4 * MIB}, 12 * MIB, 3)
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == pytest.approx([2, 2, 4, 4, 12, 4])
    assert {text.get_text() for text in axes.texts} == {"12.0 MiB", "4.0 MiB"}
    with pytest.raises(ValueError, match="parts is 0"):
        memory_of_step({}, 1, 0)


def test_the_slider_offers_what_divides_the_rows():
    widget = accumulation_explorer({"parameters": MIB}, 8 * MIB, rows=12, start=3)
    slider = widget.children[0].children[0]
    assert list(slider.options) == [1, 2, 3, 4, 6, 12]
    title = widget._draw(parts=4).get_title(loc="left")
    assert title == "4 forward and backward passes of 3 rows, one update"
    with pytest.raises(ValueError, match="start is 5: 12 rows go into 1, 2, 3"):
        accumulation_explorer({}, MIB, rows=12, start=5)
