"""What is kept for the backward pass: the formula is what our blocks keep, byte for byte."""

import pytest
import torch

from course_lib.backward.memory import autograd_saves, block_saved_bytes, saved_bytes
from course_lib.config import ModelConfig
from course_lib.forward.blocks import block
from course_lib.forward.model import Transformer
from course_lib.forward.weights import LinearWeights, named


@pytest.mark.parametrize("sizes", [(2, 5, 8, 2, 12), (3, 7, 16, 4, 64), (1, 1, 4, 1, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_formula_is_what_a_block_keeps(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    batch, tokens, width, heads, hidden = sizes
    config = ModelConfig(13, tokens, layers=1, width=width, heads=heads, hidden=hidden)
    weights = Transformer(config).to(dtype).weights().blocks[0]
    with torch.no_grad():
        _, saved = block(torch.randn(batch, tokens, width, dtype=dtype), weights, heads)
    predicted = block_saved_bytes(*sizes, element_bytes=dtype.itemsize)
    assert saved_bytes(saved) == sum(predicted.values())


def test_a_tensor_that_is_kept_twice_counts_once_and_weights_do_not() -> None:
    x, weight = torch.zeros(10), torch.zeros(1000)
    assert saved_bytes((x, [x, (x.view(2, 5), None)], LinearWeights(weight, None))) == 40


def test_autograd_saves_what_it_needs() -> None:
    weight = torch.randn(5, 3, requires_grad=True)
    x = torch.randn(7, 3)
    with autograd_saves([weight]) as kept:
        (x @ weight.T).exp()
    assert saved_bytes(kept) == 4 * (7 * 3 + 7 * 5)  # the product's input, and exp's output


def test_fused_layers_keep_less_than_readable_ones() -> None:
    sizes = {}
    for kernels in ("readable", "fused"):
        model = Transformer(ModelConfig(13, 11, kernels=kernels))
        tokens = torch.zeros(4, 11, dtype=torch.long)
        with autograd_saves(tensor for _, tensor in named(model.weights())) as kept:
            model(tokens)
        sizes[kernels] = saved_bytes(kept)
    assert 0 < sizes["fused"] < sizes["readable"]
