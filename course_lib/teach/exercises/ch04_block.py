"""Exercise 04.3: the backward pass of one whole block."""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.config import ModelConfig
from course_lib.forward.blocks import BlockSaved, block
from course_lib.forward.model import Transformer
from course_lib.forward.weights import BlockWeights, named
from course_lib.teach.checking import Exercise, Wrong, describe, expect_close, expect_unchanged
from course_lib.teach.checking.forbidden import AUTOGRAD

BLOCK = Exercise(
    "04.3",
    "One whole block",
    hints=(
        "Read the forward pass from its last line. In x = x + change, d_y goes to both.",
        "d_normed, d_mlp = mlp_backward(saved.mlp, d_y); then through norm2; then add d_y: that "
        "is the gradient in the middle of the block.",
        "The first half is the same with attention and norm1, starting from the middle's gradient.",
    ),
    forbidden=(*AUTOGRAD, "course_lib.backward.blocks.block_backward"),
)
BlockBackward = Callable[[BlockSaved, Tensor], tuple[Tensor, BlockWeights]]


def _block_case(
    tokens: int, dtype: torch.dtype
) -> tuple[BlockSaved, Tensor, Tensor, dict[str, Tensor]]:
    """Return what a block saved, d_y, and autograd's d_x and gradients of the weights."""
    torch.manual_seed(8)
    config = ModelConfig(13, tokens, layers=1, width=6, heads=2, hidden=10)
    weights = Transformer(config).to(dtype).weights().blocks[0]
    x = torch.randn(3, tokens, 6, dtype=dtype).requires_grad_()
    d_y = torch.randn(3, tokens, 6, dtype=dtype)
    y, _ = block(x, weights, 2)
    names, tensors = zip(*named(weights), strict=True)
    d_x, *gradients = torch.autograd.grad((y * d_y).sum(), [x, *tensors])
    with torch.no_grad():
        _, saved = block(x.detach(), weights, 2)
    return saved, d_y, d_x, dict(zip(names, gradients, strict=True))


def _check_block(answer: BlockBackward, tokens: int, dtype: torch.dtype) -> None:
    saved, d_y, d_x, gradients = _block_case(tokens, dtype)
    with torch.no_grad():
        got = answer(saved, d_y.clone())
    if not isinstance(got, tuple) or len(got) != 2 or not isinstance(got[0], Tensor):
        likely = "End with `return d_x, BlockWeights(d_norm1, d_attention, d_norm2, d_mlp)`."
        raise Wrong("a pair: d_x and BlockWeights", describe(got), likely)
    if not isinstance(got[1], BlockWeights):
        likely = "Put the gradients into BlockWeights(norm1, attention, norm2, mlp)."
        raise Wrong("BlockWeights as the second", describe(got[1]), likely)
    # From the end of the block to its start: the first that differs is where it went wrong.
    ours = dict(named(got[1]))
    for part in ("mlp", "norm2", "attention", "norm1"):
        for name in (name for name in gradients if name.startswith(f"{part}.")):
            if name not in ours:
                raise Wrong(f"{name} in its place", f"no {name}", PLACES)
            expect_close(ours[name], gradients[name], what=name, mistakes=[], tolerance=None)
    straight = [
        (d_x - d_y, "The straight way past the block is missing: d_y itself is part of d_x."),
        (d_x + d_y, "The straight way counts twice: each addition hands its gradient on once."),
    ]
    expect_close(got[0], d_x, what="d_x", mistakes=straight)


PLACES = "Each gradient belongs in the place of its weight: norm1, attention, norm2, mlp."


@BLOCK.property(
    "it equals autograd, part by part from the end",
    cases={"5 tokens": 5, "2 tokens": 2},
    likely=(
        "Look at the part that is named: which gradient went into it? In the middle of the block "
        "it is d_y plus what came back through norm2 and the MLP."
    ),
)
def _block_equals_autograd(answer: BlockBackward, tokens: int) -> None:
    _check_block(answer, tokens, torch.float64)


@BLOCK.property("float32 stays float32")
def _block_float32(answer: BlockBackward) -> None:
    _check_block(answer, 4, torch.float32)


@BLOCK.property("`d_y` stays as it is")
def _block_unchanged(answer: BlockBackward) -> None:
    saved, d_y, _, _ = _block_case(4, torch.float64)
    given = d_y.clone()
    with torch.no_grad():
        answer(saved, given)
    expect_unchanged(given, d_y, "d_y")
