"""The whole Transformer's gradients by hand against autograd and finite differences."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.backward.gradcheck import directional_difference, relative_errors
from course_lib.backward.model import gradients_by_hand
from course_lib.config import ModelConfig
from course_lib.data.addition import Addition
from course_lib.data.batch import Batch
from course_lib.forward.model import Transformer
from course_lib.loss import cross_entropy
from tests.forward.reference import small_model, torch_forward

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
BATCH = Addition(3).batch(0, 16)


def autograd(model: Transformer, batch: Batch = BATCH) -> dict[str, Tensor]:
    loss = cross_entropy(model(batch.inputs), batch.targets, batch.mask)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("kernels", ["readable", "fused"])
@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_equals_autograd(dtype: torch.dtype, kernels: str, tied: bool) -> None:
    for model in (
        small_model(dtype, kernels=kernels, tied=tied),
        Transformer(ModelConfig(13, 11, kernels=kernels, tied=tied)).to(dtype),
    ):
        by_hand = gradients_by_hand(model, BATCH)
        assert list(by_hand) == [name for name, _ in model.named_parameters()]
        errors = relative_errors(by_hand, autograd(model))
        assert max(errors.values()) < TOLERANCES[dtype], errors


@pytest.mark.parametrize("tied", [False, True])
def test_torchs_own_modules_give_the_same_gradients(tied: bool) -> None:
    """No line of our forward pass, loss or backward pass takes part in the reference."""
    model = small_model(tied=tied)
    logits = torch_forward(model.weights(), 4, BATCH.inputs)
    wanted = torch.where(BATCH.mask, BATCH.targets, -100)
    loss = F.cross_entropy(logits.reshape(-1, 13), wanted.reshape(-1))
    names, parameters = zip(*model.named_parameters(), strict=True)
    reference = dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))
    assert max(relative_errors(gradients_by_hand(model, BATCH), reference).values()) < 1e-10


@pytest.mark.parametrize("tied", [False, True])
def test_finite_differences_along_random_directions(tied: bool) -> None:
    model = small_model(tied=tied)
    parameters = dict(model.named_parameters())
    gradients = gradients_by_hand(model, BATCH)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        direction = {
            name: torch.randn(p.shape, generator=generator, dtype=p.dtype)
            for name, p in parameters.items()
        }
        slope = directional_difference(
            lambda: cross_entropy(model(BATCH.inputs), BATCH.targets, BATCH.mask),
            {name: p.data for name, p in parameters.items()},
            direction,
        )
        expected = sum((gradients[name] * direction[name]).sum().item() for name in parameters)
        assert slope == pytest.approx(expected, rel=1e-6)


def test_a_short_row_leaves_later_positions_without_gradient() -> None:
    model = small_model()
    short = Batch(BATCH.inputs[:, :6], BATCH.targets[:, :6], torch.ones(16, 6).bool())
    by_hand = gradients_by_hand(model, short)
    assert by_hand["position_embedding"][6:].count_nonzero() == 0
    assert max(relative_errors(by_hand, autograd(model, short)).values()) < 1e-10


def test_dropout_by_hand_uses_the_masks_of_its_own_forward_pass() -> None:
    model = small_model(dropout=0.3)
    torch.manual_seed(4)
    by_hand = gradients_by_hand(model.train(), BATCH)
    torch.manual_seed(4)
    assert max(relative_errors(by_hand, autograd(model)).values()) < 1e-10


def test_the_model_is_left_as_it_was() -> None:
    model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients_by_hand(model, BATCH)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_key_bias_would_have_the_gradient_zero() -> None:
    model = small_model()
    attention = model.weights().blocks[0].attention
    bias = torch.randn(16, dtype=torch.float64).requires_grad_()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    q, k, v = (F.linear(x, p.weight) for p in (attention.query, attention.key, attention.value))
    y = F.scaled_dot_product_attention(q[:, None], (k + bias)[:, None], v[:, None], is_causal=True)
    (gradient,) = torch.autograd.grad((y * torch.randn_like(y)).sum(), bias)
    assert gradient.abs().max() < 1e-14


@pytest.mark.parametrize(
    "spoil",
    [
        lambda gradient: torch.zeros_like(gradient),
        lambda gradient: -gradient,
        lambda gradient: gradient * 1.0001,
        lambda gradient: gradient.flip(0),
        lambda gradient: gradient * torch.nan,
    ],
    ids=["zeros", "sign", "scale", "order", "nan"],
)
def test_a_wrong_gradient_of_any_parameter_is_caught(spoil) -> None:
    model = small_model(tied=True)
    right = autograd(model)
    for name in right:
        error = relative_errors({**right, name: spoil(right[name])}, right)[name]
        assert not error < 1e-5, name


def test_forgetting_one_use_of_a_tied_embedding_is_caught() -> None:
    model = small_model(tied=True)
    untied = small_model(tied=False)
    untied.load_state_dict({**model.state_dict(), "head": model.token_embedding})
    one_way = gradients_by_hand(untied, BATCH)
    right = autograd(model)
    for name in ("token_embedding", "head"):
        wrong = {**right, "token_embedding": one_way[name]}
        assert relative_errors(wrong, right)["token_embedding"] > 0.01
