"""Each readable layer against torch's own, its known wrong forms, and what it must not do."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from course_lib.forward import fused, layers
from course_lib.forward.weights import LinearWeights, NormWeights

DTYPES = {torch.float32: 1e-6, torch.float64: 1e-12}


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    return torch.allclose(ours, theirs, rtol=DTYPES[ours.dtype], atol=DTYPES[ours.dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3)])
def test_linear_is_torchs(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, weight, bias = normal(*shape, dtype=dtype), normal(5, 3, dtype=dtype), normal(5, dtype=dtype)
    for use in (layers, fused):
        assert close(use.linear(x, LinearWeights(weight, bias))[0], F.linear(x, weight, bias))
        assert close(use.linear(x, LinearWeights(weight, None))[0], F.linear(x, weight))


def test_embedding_is_torchs() -> None:
    weight, tokens = normal(7, 4), torch.tensor([[0, 6, 6], [3, 1, 0]])
    assert layers.embedding(tokens, weight)[0].equal(F.embedding(tokens, weight))


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_is_torchs(dtype: torch.dtype) -> None:
    x = 3 * normal(4, 5, 16, dtype=dtype) + 2
    weights = NormWeights(normal(16, dtype=dtype, seed=1), normal(16, dtype=dtype, seed=2))
    reference = nn.LayerNorm(16, dtype=dtype)
    reference.load_state_dict(weights._asdict())
    for use in (layers, fused):
        assert close(use.layer_norm(x, weights)[0], reference(x))


def test_layer_norm_divides_by_n() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    y, _ = layers.layer_norm(x, NormWeights(torch.ones(4), torch.zeros(4)))
    assert y[0].item() == pytest.approx(-1.3416, abs=1e-4)
    by_n_minus_1 = (x - x.mean()) / x.std()  # the wrong answer
    assert by_n_minus_1[0].item() == pytest.approx(-1.1619, abs=1e-4)


def test_layer_norm_of_a_constant_is_its_shift() -> None:
    y, _ = layers.layer_norm(torch.full((2, 4), 7.0), NormWeights(torch.ones(4), torch.ones(4)))
    assert y.equal(torch.ones(2, 4))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_is_torchs_exact_one(dtype: torch.dtype) -> None:
    x = torch.linspace(-12, 12, 1001, dtype=dtype)
    for use in (layers, fused):
        assert close(use.gelu(x)[0], F.gelu(x))
    assert not close(F.gelu(x, approximate="tanh"), F.gelu(x))  # the other GELU is told apart


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=8))
@settings(deadline=None)
def test_softmax_is_torchs_and_never_overflows(scores: list[float]) -> None:
    x = torch.tensor(scores)
    assert close(layers.softmax(x), torch.softmax(x, dim=-1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_causal_attention_is_torchs(dtype: torch.dtype, tokens: int) -> None:
    q, k, v = (normal(2, 3, tokens, 4, dtype=dtype, seed=seed) for seed in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    for use in (layers, fused):
        assert close(use.causal_attention(q, k, v)[0], expected)


def test_the_pattern_forbids_what_comes_later() -> None:
    q, k, v = (normal(2, 3, 5, 4, seed=seed) for seed in range(3))
    pattern = layers.causal_attention(q, k, v)[1].pattern_BHTS
    assert pattern.triu(diagonal=1).count_nonzero() == 0
    assert (pattern.tril() > 0).sum() == 2 * 3 * 15
    assert torch.allclose(pattern.sum(dim=-1), torch.ones(2, 3, 5, dtype=torch.float64))


def test_heads_split_and_join() -> None:
    x = torch.arange(2 * 3 * 8).reshape(2, 3, 8).double()
    parts = layers.split_heads(x, 4)
    assert parts.shape == (2, 4, 3, 2)
    assert parts[1, 2, 0].tolist() == x[1, 0, 4:6].tolist()
    assert layers.join_heads(parts).equal(x)
    # The mistake that has the right shape: cutting up the tokens instead of the vector.
    assert not x.reshape(2, 4, 3, 2).equal(parts)


def test_dropout_keeps_the_mean_and_sleeps_in_evaluation() -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, 100)
    y, saved = layers.dropout(x, 0.3, training=True)
    assert saved.factor is not None
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert (y == 0).double().mean().item() == pytest.approx(0.3, abs=0.01)
    assert y[y != 0].unique().tolist() == pytest.approx([1 / 0.7])
    for same, saved in (layers.dropout(x, 0.3, training=False), layers.dropout(x, 0.0, True)):
        assert same is x
        assert saved.factor is None


def test_the_scale_keeps_scores_at_deviation_one() -> None:
    q, k = normal(1, 1, 500, 64), normal(1, 1, 500, 64, seed=1)
    assert (q @ k.transpose(-2, -1) / math.sqrt(64)).std().item() == pytest.approx(1.0, abs=0.02)
