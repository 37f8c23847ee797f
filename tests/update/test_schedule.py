"""The schedule against torch's own cosine, at its corners, and on wrong numbers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.update.schedule import cosine_schedule


def test_equal_to_torchs_cosine_after_the_warmup():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    torchs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=49, eta_min=0.03)
    for step in range(10, 60):
        expected = optimizer.param_groups[0]["lr"]
        assert cosine_schedule(step, 60, 0.3, 10, 0.03) == pytest.approx(expected, abs=1e-12)
        optimizer.step()
        torchs.step()


def test_corners():
    assert cosine_schedule(0, 100, 1.0, 4) == pytest.approx(0.2)  # the first step is not lost
    assert cosine_schedule(3, 100, 1.0, 4) == pytest.approx(0.8)
    assert cosine_schedule(4, 100, 1.0, 4) == 1.0
    assert cosine_schedule(99, 100, 1.0, 4, 0.1) == pytest.approx(0.1)
    assert cosine_schedule(500, 100, 1.0, 4, 0.1) == pytest.approx(0.1)  # and stays there
    assert cosine_schedule(0, 1, 0.5) == 0.5


@given(st.integers(1, 200), st.data())
def test_rises_then_falls_and_stays_in_its_range(total, data):
    warmup = data.draw(st.integers(0, total - 1))
    rates = [cosine_schedule(step, total, 2.0, warmup, 0.5) for step in range(total)]
    assert rates[: warmup + 1] == sorted(rates[: warmup + 1])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert max(rates) == 2.0
    assert all(0 < rate <= 2.0 for rate in rates)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((-1, 10, 1.0), "step -1"),
        ((0, 0, 1.0), "0 of 0"),
        ((0, 10, 1.0, 10), "warmup_steps is 10: give a number from 0 to 9"),
        ((0, 10, 1.0, 0, 2.0), "min_lr is 2.0"),
    ],
)
def test_wrong_numbers_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        cosine_schedule(*arguments)
