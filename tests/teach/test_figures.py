"""Figures show the data that they are given: read back from the drawn artists."""

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt

from course_lib.teach.figures.classroom import classroom
from course_lib.teach.figures.gradients import descent, gradients_of_ranks, slope_at
from course_lib.teach.figures.probabilities import probability_bars
from course_lib.teach.figures.ranks import before_after
from course_lib.teach.figures.stages import stage_seconds, training_loop
from course_lib.teach.figures.style import STAGES, text_on

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_probability_bars_are_as_tall_as_the_probabilities():
    axes = probability_bars([0.7, 0.2, 0.1], ["cat", "dog", "other"], truth="cat", title="A cat")
    assert [round(bar.get_height()) for bar in axes.patches] == [70, 20, 10]
    assert [bar.get_hatch() is not None for bar in axes.patches] == [True, False, False]
    assert axes.get_ylabel() == "probability (%)"


def test_probability_bars_refuse_a_label_too_few():
    with pytest.raises(ValueError, match="3 probabilities need as many labels, not 2"):
        probability_bars([0.7, 0.2, 0.1], ["cat", "dog"])


def test_slope_is_drawn_through_the_point_where_the_parameter_stands():
    axes = slope_at([-0.1, 0.0, 0.1], [2.3, 2.0, 1.9], slope=-2.0)
    prediction = axes.lines[1].get_ydata()
    assert prediction == pytest.approx([2.2, 2.0, 1.8])


def test_slope_needs_the_point_itself():
    with pytest.raises(ValueError, match="one of the offsets must be 0"):
        slope_at([0.1, 0.2], [1.0, 2.0], slope=1.0)


def test_every_rank_has_its_own_marker():
    gradients = torch.randn(4, 5)
    axes = gradients_of_ranks(list(gradients), gradients.mean(0), gradients.mean(0))
    markers = [line.get_marker() for line in axes.lines if "alone" in str(line.get_label())]
    assert len(set(markers)) == 4


@pytest.mark.parametrize(
    ("rate", "verdict"), [(0.1, "goes down"), (1.0, "ends higher than it began")]
)
def test_descent_says_where_the_loss_went(rate, verdict):
    axes = descent({0.1: [2.5, 2.2, 2.0], 1.0: [2.5, 2.1, 9.0]}, rate)
    assert axes.get_title(loc="left").endswith(verdict)
    stressed = [line for line in axes.lines if line.get_marker() == "o"]
    assert stressed[0].get_ydata()[-1] == {0.1: 2.0, 1.0: 9.0}[rate]


def test_before_after_shows_every_ranks_values():
    shown = texts(before_after([10, 20], [15.0, 15.0], "mean"))
    assert {"10", "20", "15.0", "rank 0", "rank 1"} <= set(shown)
    with pytest.raises(ValueError, match="2 ranks before, 1 after"):
        before_after([10, 20], [15], "mean")


def test_stage_seconds_gives_shares_that_sum_to_the_step():
    axes = stage_seconds({"forward": 0.001, "backward": 0.003})
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([1.0, 3.0])
    assert any("75 %" in text for text in texts(axes))


def test_the_loop_names_all_six_stages_and_the_class_five():
    assert set(STAGES) <= set(texts(training_loop()))
    assert set(STAGES) - {"data"} <= set(texts(classroom()))


def test_text_stays_readable_on_any_colour():
    assert text_on("#000000") == "white"
    assert text_on("#F0E442") == "black"
