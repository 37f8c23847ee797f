"""The loss against F.cross_entropy, its mask, and the wrong ways to average."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from course_lib.loss import cross_entropy, cross_entropy_sum, log_softmax, token_losses


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def targets_like(logits: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(logits.shape[-1], logits.shape[:-1], generator=generator)


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=8))
@settings(deadline=None)
def test_log_softmax_is_torchs_and_never_overflows(logits: list[float]) -> None:
    x = torch.tensor(logits)
    assert torch.allclose(log_softmax(x), torch.log_softmax(x, dim=-1), rtol=1e-6, atol=1e-6)


def test_the_plain_formula_would_overflow() -> None:
    x = torch.tensor([100.0, 0.0])
    assert not torch.isfinite(x.exp() / x.exp().sum()).all()
    assert log_softmax(x).tolist() == [0.0, -100.0]


@pytest.mark.parametrize("shape", [(13,), (4, 13), (3, 5, 13)])
def test_cross_entropy_is_torchs(shape: tuple[int, ...]) -> None:
    logits = normal(*shape)
    targets = targets_like(logits)
    expected = F.cross_entropy(logits.reshape(-1, 13), targets.reshape(-1))
    assert torch.allclose(cross_entropy(logits, targets), expected, rtol=1e-12)
    none = F.cross_entropy(logits.reshape(-1, 13), targets.reshape(-1), reduction="none")
    assert torch.allclose(token_losses(logits, targets).reshape(-1), none, rtol=1e-12)


def test_the_mask_counts_only_the_answer_in_value_and_gradient() -> None:
    logits = normal(3, 5, 13).requires_grad_()
    targets = targets_like(logits)
    mask = torch.rand(3, 5, generator=torch.Generator().manual_seed(2)) < 0.5
    assert 0 < mask.sum() < 15
    ignored = torch.where(mask, targets, -100)
    reference = F.cross_entropy(logits.reshape(-1, 13), ignored.reshape(-1))
    (expected,) = torch.autograd.grad(reference, logits)
    loss = cross_entropy(logits, targets, mask)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.allclose(loss, reference, rtol=1e-12)
    assert torch.allclose(gradient, expected, rtol=1e-10, atol=1e-14)
    assert gradient[~mask].count_nonzero() == 0
    everything = cross_entropy(logits, targets)  # the wrong answer: the prompt counted too
    assert not torch.allclose(everything, reference, rtol=1e-3)


def test_a_masked_nan_does_not_spread() -> None:
    logits = normal(2, 13)
    logits[0] = math.nan
    logits.requires_grad_()
    loss = cross_entropy(logits, torch.tensor([0, 1]), torch.tensor([False, True]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()  # type: ignore[arg-type]


def test_the_cat_at_seventy_percent() -> None:
    logits = torch.tensor([0.7, 0.2, 0.1]).log()
    assert cross_entropy(logits, torch.tensor(0)).item() == pytest.approx(0.357, abs=1e-3)


def test_knowing_nothing_costs_ln_v() -> None:
    loss = cross_entropy(torch.zeros(8, 13), torch.arange(8))
    assert loss.item() == pytest.approx(math.log(13))


def test_sums_of_unequal_parts_join_to_the_whole() -> None:
    logits = normal(10, 13)
    targets = targets_like(logits)
    parts = [cross_entropy_sum(logits[rows], targets[rows]) for rows in (slice(3), slice(3, 10))]
    joined = sum(part.total for part in parts) / sum(part.counted for part in parts)
    whole = F.cross_entropy(logits, targets)
    assert torch.allclose(joined, whole, rtol=1e-12)
    mean_of_means = sum(part.mean for part in parts) / 2
    assert not torch.allclose(mean_of_means, whole, rtol=1e-3)


def test_nothing_to_count_is_zero() -> None:
    logits = normal(2, 13).requires_grad_()
    nothing = cross_entropy_sum(logits, torch.zeros(2, dtype=torch.int64), torch.zeros(2).bool())
    assert nothing.counted == 0
    nothing.mean.backward()
    assert nothing.mean.item() == 0.0
    assert logits.grad is not None
    assert logits.grad.count_nonzero() == 0


def test_half_precision_is_added_up_in_single() -> None:
    logits = normal(4096, 13).bfloat16()
    targets = targets_like(logits)
    loss = cross_entropy(logits, targets)
    assert loss.dtype == torch.float32
    assert torch.allclose(loss, F.cross_entropy(logits.float(), targets), rtol=1e-5)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(4, 13\) need targets of shape \(4,\).*\(1, 4\)"):
        cross_entropy(normal(4, 13), torch.zeros(1, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"mask has the shape \(3,\), but the targets have \(4,\)"):
        cross_entropy(normal(4, 13), torch.zeros(4, dtype=torch.int64), torch.ones(3).bool())
