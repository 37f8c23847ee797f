"""Each backward pass by hand against autograd and finite differences, and wrong ones that must
fail."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.backward import layers as backward
from course_lib.backward.gradcheck import numerical_gradient, relative_errors
from course_lib.forward import layers as forward
from course_lib.forward.weights import LinearWeights, NormWeights

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
Case = tuple[dict[str, Tensor], Callable[[], Tensor], Callable[[Tensor], dict[str, Tensor]]]


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def linear_case(leading: tuple[int, ...]) -> Case:
    t = {"x": normal(*leading, 3), "weight": normal(4, 3, seed=1), "bias": normal(4, seed=2)}

    def ours(d_y: Tensor) -> dict[str, Tensor]:
        saved = forward.linear(t["x"], LinearWeights(t["weight"], t["bias"]))[1]
        d_x, d_weights = backward.linear_backward(saved, d_y)
        return {"x": d_x, "weight": d_weights.weight, "bias": d_weights.bias}

    return t, lambda: F.linear(t["x"], t["weight"], t["bias"]), ours


def norm_case(leading: tuple[int, ...]) -> Case:
    t = {"x": 2 * normal(*leading, 5), "weight": normal(5, seed=1), "bias": normal(5, seed=2)}

    def ours(d_y: Tensor) -> dict[str, Tensor]:
        saved = forward.layer_norm(t["x"], NormWeights(t["weight"], t["bias"]))[1]
        d_x, d_weights = backward.layer_norm_backward(saved, d_y)
        return {"x": d_x, "weight": d_weights.weight, "bias": d_weights.bias}

    return t, lambda: F.layer_norm(t["x"], (5,), t["weight"], t["bias"]), ours


def gelu_case(leading: tuple[int, ...]) -> Case:
    t = {"x": 2 * normal(*leading, 5)}
    return (
        t,
        lambda: F.gelu(t["x"]),
        lambda d_y: {"x": backward.gelu_backward(forward.gelu(t["x"])[1], d_y)},
    )


def softmax_case(leading: tuple[int, ...]) -> Case:
    t = {"x": normal(*leading, 5)}
    return (
        t,
        lambda: torch.softmax(t["x"], dim=-1),
        lambda d_y: {"x": backward.softmax_backward(forward.softmax(t["x"]), d_y)},
    )


def attention_case(leading: tuple[int, ...]) -> Case:
    shape = (*leading, 2, 4, 3)[-4:]
    t = {name: normal(*shape, seed=seed) for seed, name in enumerate("qkv")}

    def ours(d_y: Tensor) -> dict[str, Tensor]:
        saved = forward.causal_attention(t["q"], t["k"], t["v"])[1]
        return dict(zip("qkv", backward.causal_attention_backward(saved, d_y), strict=True))

    def theirs() -> Tensor:
        return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=True)

    return t, theirs, ours


def embedding_case(leading: tuple[int, ...]) -> Case:
    t = {"weight": normal(6, 3)}
    tokens = torch.randint(5, leading, generator=torch.Generator().manual_seed(3))  # row 5 unused
    return (
        t,
        lambda: F.embedding(tokens, t["weight"]),
        lambda d_y: {
            "weight": backward.embedding_backward(forward.embedding(tokens, t["weight"])[1], d_y)
        },
    )


CASES = [linear_case, norm_case, gelu_case, softmax_case, attention_case, embedding_case]


def errors_of(case: Case) -> dict[str, float]:
    tensors, theirs, ours = case
    for tensor in tensors.values():
        tensor.requires_grad_()
    y = theirs()
    d_y = normal(*y.shape, seed=9).to(y.dtype)
    expected = torch.autograd.grad(y, list(tensors.values()), d_y)
    with torch.no_grad():
        gradients = ours(d_y)
    return relative_errors(gradients, dict(zip(tensors, expected, strict=True)))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("leading", [(7,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("make", CASES)
def test_each_layer_equals_autograd(
    make: Callable[..., Case], leading: tuple[int, ...], dtype: torch.dtype
) -> None:
    case = make(leading)
    for name in case[0]:
        case[0][name] = case[0][name].to(dtype)
    assert max(errors_of(case).values()) < TOLERANCES[dtype]


@pytest.mark.parametrize("make", CASES)
def test_each_layer_equals_finite_differences(make: Callable[..., Case]) -> None:
    tensors, theirs, ours = make((2, 3))
    d_y = normal(*theirs().shape, seed=9)
    numerical = {
        name: numerical_gradient(lambda: (theirs() * d_y).sum(), tensor)
        for name, tensor in tensors.items()
    }
    assert max(relative_errors(ours(d_y), numerical).values()) < 1e-7


def test_a_linear_layer_without_bias_or_leading_dimensions() -> None:
    x, weight, d_y = normal(3), normal(4, 3), normal(4, seed=2)
    _, saved = forward.linear(x, LinearWeights(weight, None))
    d_x, d_weights = backward.linear_backward(saved, d_y)
    assert d_x.equal(d_y @ weight)
    assert d_weights.weight.equal(torch.outer(d_y, x))
    assert d_weights.bias is None


def test_a_norm_without_leading_dimensions() -> None:
    x, d_y = normal(5), normal(5, seed=3)
    weights = NormWeights(normal(5, seed=1), normal(5, seed=2))
    d_x, d_weights = backward.layer_norm_backward(forward.layer_norm(x, weights)[1], d_y)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(F.layer_norm(x, (5,), *weights), x, d_y)
    assert torch.allclose(d_x, expected, rtol=1e-10)
    assert d_weights.bias.equal(d_y)


def test_split_and_join_move_gradients_back() -> None:
    x = normal(2, 3, 8).requires_grad_()
    d_parts = normal(2, 4, 3, 2, seed=1)
    (expected,) = torch.autograd.grad(forward.split_heads(x, 4), x, d_parts)
    assert backward.split_heads_backward(d_parts).equal(expected)
    parts = normal(2, 4, 3, 2).requires_grad_()
    d_x = normal(2, 3, 8, seed=1)
    (expected,) = torch.autograd.grad(forward.join_heads(parts), parts, d_x)
    assert backward.join_heads_backward(d_x, 4).equal(expected)


def test_dropout_stops_the_gradient_where_it_dropped() -> None:
    torch.manual_seed(0)
    x, d_y = normal(50, 20).requires_grad_(), normal(50, 20, seed=1)
    y, saved = forward.dropout(x, 0.4, training=True)
    (expected,) = torch.autograd.grad(y, x, d_y)
    assert backward.dropout_backward(saved, d_y).equal(expected)
    assert ((y == 0) == (expected == 0)).all()
    assert backward.dropout_backward(forward.dropout(x, 0.4, training=False)[1], d_y) is d_y


@pytest.mark.parametrize("masked", [False, True])
def test_softmax_with_cross_entropy_is_p_minus_y(masked: bool) -> None:
    logits = normal(3, 5, 13).requires_grad_()
    targets = torch.randint(13, (3, 5), generator=torch.Generator().manual_seed(1))
    mask = torch.rand(3, 5, generator=torch.Generator().manual_seed(2)) < 0.5 if masked else None
    wanted = targets if mask is None else torch.where(mask, targets, -100)
    loss = F.cross_entropy(logits.reshape(-1, 13), wanted.reshape(-1))
    (expected,) = torch.autograd.grad(loss, logits)
    ours = backward.cross_entropy_backward(logits.detach(), targets, mask)
    assert relative_errors({"logits": ours}, {"logits": expected})["logits"] < 1e-10
    nothing = backward.cross_entropy_backward(logits, targets, torch.zeros(3, 5).bool())
    assert nothing.count_nonzero() == 0


def wrong_norm(saved: forward.LayerNormSaved, d_y: Tensor) -> Tensor:
    """The mistake of treating mean and variance as constants."""
    return d_y * saved.weights.weight * saved.inverse_std


def wrong_norm_half(saved: forward.LayerNormSaved, d_y: Tensor) -> Tensor:
    """The mistake of forgetting the way through the variance."""
    d_n = d_y * saved.weights.weight
    return saved.inverse_std * (d_n - d_n.mean(dim=-1, keepdim=True))


@pytest.mark.parametrize("wrong", [wrong_norm, wrong_norm_half])
def test_a_wrong_layer_norm_is_caught(wrong: Callable[..., Tensor]) -> None:
    tensors, _, ours = case = norm_case((2, 3))
    saved = forward.layer_norm(tensors["x"], NormWeights(tensors["weight"], tensors["bias"]))[1]
    broken = (*case[:2], lambda d_y: {**ours(d_y), "x": wrong(saved, d_y).detach()})
    assert errors_of(broken)["x"] > 0.01


def test_a_softmax_without_its_sum_is_caught() -> None:
    tensors, theirs, _ = softmax_case((2, 3))
    broken = (tensors, theirs, lambda d_y: {"x": torch.softmax(tensors["x"], -1) * d_y})
    assert errors_of(broken)["x"] > 0.01


def test_an_embedding_that_overwrites_is_caught() -> None:
    tokens, d_y = torch.tensor([2, 2, 1]), normal(3, 4)
    overwritten = torch.zeros(6, 4, dtype=torch.float64)
    overwritten[tokens] = d_y
    right = backward.embedding_backward(forward.EmbeddingSaved(tokens, 6), d_y)
    assert relative_errors({"w": overwritten}, {"w": right})["w"] > 0.1
