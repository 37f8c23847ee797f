"""Clipping against torch's own, and what it must leave alone."""

import pytest
import torch
from torch import nn

from course_lib.update.clipping import clip_grad_norm


def parameters_with_gradients(scale: float = 1.0) -> list[nn.Parameter]:
    torch.manual_seed(1)
    params = [nn.Parameter(torch.zeros(3, 4)), nn.Parameter(torch.zeros(7))]
    for param in params:
        param.grad = scale * torch.randn_like(param)
    return [*params, nn.Parameter(torch.zeros(2))]  # the last one has no gradient


@pytest.mark.parametrize("max_norm", [0.5, 2.0, 100.0])
def test_equal_to_torchs(max_norm):
    mine, theirs = parameters_with_gradients(), parameters_with_gradients()
    norm = clip_grad_norm(iter(mine), max_norm)
    expected = nn.utils.clip_grad_norm_(theirs, max_norm)
    assert norm == pytest.approx(expected.item(), rel=1e-6)
    for a, b in zip(mine[:2], theirs[:2], strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=0)


def test_one_norm_for_all_parameters_and_not_one_each():
    params = parameters_with_gradients()
    ratio = params[0].grad.norm() / params[1].grad.norm()
    clip_grad_norm(params, 0.1)
    torch.testing.assert_close(params[0].grad.norm() / params[1].grad.norm(), ratio)


def test_small_gradients_stay_as_they_are():
    params, before = parameters_with_gradients(), parameters_with_gradients()
    clip_grad_norm(params, float("inf"))
    assert torch.equal(params[0].grad, before[0].grad)


def test_no_gradients_at_all():
    assert clip_grad_norm([nn.Parameter(torch.zeros(2))], 1.0) == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_norm_that_is_not_a_number_is_told(bad):
    params = parameters_with_gradients()
    params[0].grad[0, 0] = bad
    kept = params[1].grad.clone()
    with pytest.raises(FloatingPointError, match="diverged"):
        clip_grad_norm(params, 1.0)
    assert torch.equal(params[1].grad, kept)


def test_max_norm_must_be_above_zero():
    with pytest.raises(ValueError, match="max_norm is 0"):
        clip_grad_norm(parameters_with_gradients(), 0)
