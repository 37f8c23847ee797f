"""Pictures of bytes show the bytes, in a unit that suits them."""

import matplotlib
import pytest
from matplotlib import pyplot as plt

from course_lib.backward.memory import block_saved_bytes
from course_lib.teach.figures.backward_ratio import backward_over_forward
from course_lib.teach.figures.memory import bytes_kept
from course_lib.teach.widgets.saved_memory import saved_memory_explorer

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize(
    ("size", "width", "unit"), [(2_500, 2.5, "kB"), (3 * 10**9, 3.0, "GB"), (12, 12.0, "bytes")]
)
def test_a_bar_is_as_long_as_its_bytes_in_a_fitting_unit(size: int, width: float, unit: str):
    axes = bytes_kept({"all": size, "none": 0}, stressed="all")
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([width, 0])
    assert axes.get_xlabel() == f"kept ({unit})"
    assert [bar.get_hatch() is not None for bar in axes.patches] == [True, False]


def test_more_tokens_redraw_the_memory():
    widget = saved_memory_explorer()
    first = widget.children[1].value
    widget.children[0].children[0].value = 4096
    assert widget.children[1].value != first


def test_only_the_pattern_grows_with_the_square_of_the_tokens():
    short, long = (block_saved_bytes(2, tokens, 8, 2, 32) for tokens in (10, 20))
    growth = {piece: long[piece] / short[piece] for piece in short}
    assert growth.pop("pattern") == 4
    assert set(growth.values()) == {2}


def test_the_ratio_is_drawn_beside_what_the_products_alone_would_take():
    axes = backward_over_forward({"narrow": 1.1, "wide": 2.5})
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([1.1, 2.5])
    assert list(axes.lines[0].get_xdata()) == [2.0, 2.0]
