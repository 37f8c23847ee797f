"""The whole Transformer against torch's own modules, its properties, and how it starts."""

import math

import pytest
import torch

from course_lib.config import ModelConfig
from course_lib.forward.blocks import block
from course_lib.forward.model import Transformer
from course_lib.forward.weights import named
from course_lib.loss import cross_entropy
from tests.forward.reference import scattered, small_model, torch_block, torch_forward

TOKENS = torch.randint(13, (3, 11), generator=torch.Generator().manual_seed(1))
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-12}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("kernels", ["readable", "fused"])
def test_a_block_is_torchs_encoder_layer(dtype: torch.dtype, kernels: str) -> None:
    model = Transformer(ModelConfig(13, 11), torch.Generator().manual_seed(0)).to(dtype)
    weights = model.weights().blocks[0]
    x = torch.randn(3, 11, 64, generator=torch.Generator().manual_seed(2)).to(dtype)
    expected = torch_block(weights, 4, x)
    ours, _ = block(x, weights, 4, kernels)
    assert torch.allclose(ours, expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("kernels", ["readable", "fused"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_model_is_the_same_as_one_of_torchs_modules(
    dtype: torch.dtype, kernels: str, tied: bool
) -> None:
    model = small_model(dtype, kernels=kernels, tied=tied)
    expected = torch_forward(model.weights(), 4, TOKENS)
    assert (model(TOKENS) - expected).norm() < TOLERANCES[dtype] * expected.norm()


@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"layers": 4, "width": 128}])
def test_the_two_kernel_settings_agree(sizes: dict[str, int], scatter: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    readable = Transformer(ModelConfig(13, 11, **sizes), generator)
    fused = Transformer(ModelConfig(13, 11, **sizes, kernels="fused"))
    if scatter:
        scattered(readable)
    assert readable.state_dict().keys() == fused.state_dict().keys()
    fused.load_state_dict(readable.state_dict())
    ours, theirs = readable(TOKENS), fused(TOKENS)
    assert (ours - theirs).norm() < 1e-6 * theirs.norm()
    if not scatter:
        assert (ours - theirs).abs().max() < 1e-6


@pytest.mark.parametrize("kernels", ["readable", "fused"])
@pytest.mark.parametrize("place", range(1, 11))
def test_no_token_sees_what_comes_later(kernels: str, place: int) -> None:
    model = small_model(kernels=kernels)
    changed = TOKENS.clone()
    changed[:, place:] = (changed[:, place:] + 1) % 13
    before, after = model(TOKENS), model(changed)
    assert torch.allclose(before[:, :place], after[:, :place], atol=1e-12)
    assert (before[:, place:] - after[:, place:]).abs().amax(dim=(0, 2)).min() > 1e-3


def test_fewer_tokens_give_the_same_answers() -> None:
    model = small_model()
    assert torch.allclose(model(TOKENS[:, :5]), model(TOKENS)[:, :5], atol=1e-12)


def test_too_many_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="12 tokens are too many: the model reads 11 at most"):
        small_model()(torch.zeros(1, 12, dtype=torch.int64))


def test_dropout_is_alive_in_training_only() -> None:
    model = small_model(dropout=0.5)
    assert not model.train()(TOKENS).equal(model(TOKENS))
    assert model.eval()(TOKENS).equal(model(TOKENS))


@pytest.mark.parametrize("tied", [False, True])
def test_names_and_count_of_the_parameters(tied: bool) -> None:
    model = Transformer(ModelConfig(13, 11, tied=tied))
    names = [name for name, _ in model.named_parameters()]
    assert dict(named(model.weights())).keys() == set(names)
    assert all(dict(named(model.weights()))[name] is p for name, p in model.named_parameters())
    assert ("head" in names) is not tied
    assert "blocks.0.attention.key.weight" in names
    assert not any("key.bias" in name for name in names)
    width, hidden = 64, 256
    per_block = 4 * width**2 + 3 * width + 2 * width * hidden + hidden + width + 4 * width
    expected = (1 if tied else 2) * 13 * width + 11 * width + 2 * per_block + 2 * width
    assert model.parameter_count() == expected


@pytest.mark.parametrize("vocab_size", [13, 65])
@pytest.mark.parametrize("tied", [False, True])
def test_the_loss_starts_at_ln_v(vocab_size: int, tied: bool) -> None:
    for seed in range(10):
        config = ModelConfig(vocab_size, 11, tied=tied)
        generator = torch.Generator().manual_seed(seed)
        model = Transformer(config, generator)
        tokens = torch.randint(vocab_size, (64, 12), generator=generator)
        loss = cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])
        assert loss.item() == pytest.approx(math.log(vocab_size), abs=0.1)


def test_the_start_is_decided_by_the_generator_alone() -> None:
    config = ModelConfig(13, 11)

    def start(seed: int) -> dict[str, torch.Tensor]:
        return Transformer(config, torch.Generator().manual_seed(seed)).state_dict()

    first, again, other = start(0), start(0), start(1)
    assert all(first[name].equal(again[name]) for name in first)
    assert not first["token_embedding"].equal(other["token_embedding"])
    torch.manual_seed(5)
    by_global = Transformer(config).state_dict()
    torch.manual_seed(5)
    assert by_global["token_embedding"].equal(Transformer(config).state_dict()["token_embedding"])


def test_the_stream_neither_fades_nor_explodes_at_the_start() -> None:
    for layers in (1, 2, 8):
        config = ModelConfig(13, 11, layers=layers, width=128)
        model = Transformer(config, torch.Generator().manual_seed(0))
        saved = model.forward_saved(TOKENS)[1]
        size = 1 / saved.final_norm.inverse_std.mean().item()
        assert 0.2 < size < 2.0
