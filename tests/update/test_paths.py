"""Paths of optimizers on a small surface against what can be worked out on paper."""

import torch

from course_lib.update.optimizers import SGD
from course_lib.update.paths import descend, valley


def test_sgd_shrinks_each_direction_by_its_own_factor():
    path = descend(valley, (-4.0, 0.5), lambda params: SGD(params, lr=0.018), steps=30)
    steps = torch.arange(31, dtype=torch.float64)
    assert torch.allclose(path[:, 0], -4.0 * (1 - 0.018) ** steps)
    assert torch.allclose(path[:, 1], 0.5 * (1 - 100 * 0.018) ** steps)


def test_the_valley_is_flat_along_and_steep_across():
    point = torch.tensor([2.0, 3.0], requires_grad=True)
    valley(point).backward()
    assert point.grad.tolist() == [2.0, 300.0]


def test_a_rate_above_two_over_the_curvature_diverges():
    for rate, grows in ((0.0199, False), (0.0201, True)):
        path = descend(valley, (-4.0, 0.5), lambda params, lr=rate: SGD(params, lr=lr), 60)
        assert (path[-1, 1].abs() > 0.5) == grows
