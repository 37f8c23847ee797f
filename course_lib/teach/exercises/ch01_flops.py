"""Exercise 01.4: the FLOPs of a block, held to what PyTorch's counter sees while one runs."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from course_lib.config import ModelConfig
from course_lib.forward.blocks import block
from course_lib.forward.weights import initial_weights
from course_lib.teach.checking import Exercise, describe, expect_equal, fail

Mistakes = list[tuple[Any, str]]

FLOPS = Exercise(
    "01.4",
    "Count the FLOPs of a block",
    hints=(
        "Four projections (Q, K, V and the output) are products of [B T, D] with [D, D].",
        "Scores: in each of B H heads [T, K] times [K, T]. The weighted sum costs the same.",
        "MLP: [B T, D] times [D, F], and [B T, F] times [F, D].",
        "8 B T D² + 4 B T² D + 4 B T D F: the number of heads cancels.",
    ),
    forbidden=(
        "torch.utils.flop_counter.FlopCounterMode",
        "course_lib.cost.formulas.block_costs",
        "course_lib.cost.formulas.model_costs",
        "course_lib.cost.formulas.linear_cost",
        "course_lib.cost.formulas.attention_core_costs",
    ),
)
FLOP_SIZES = {
    "B, T, D, H, F = 3, 7, 12, 3, 20": (3, 7, 12, 3, 20),
    "2, 5, 8, 4, 24": (2, 5, 8, 4, 24),
    "1, 1, 6, 1, 5": (1, 1, 6, 1, 5),
}


class _Counter(TorchDispatchMode):
    """Adds up what PyTorch's registry gives for each operation; matrix products stand in it."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch._dynamo: over a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        known = flop_registry.get(func.overloadpacket)
        if known:
            self.flops += known(*args, **(kwargs or {}), out_val=out)
        return out


def _counted(batch: int, tokens: int, width: int, heads: int, hidden: int) -> int:
    """Return what PyTorch's counter sees while a readable block runs."""
    config = ModelConfig(
        vocab_size=2, context=tokens, layers=1, width=width, heads=heads, hidden=hidden
    )
    weights = initial_weights(config, None).blocks[0]
    with _Counter() as counter:
        block(torch.randn(batch, tokens, width), weights, heads)
    return counter.flops


def _mistaken_flops(b: int, t: int, d: int, h: int, f: int) -> Mistakes:
    projections, core, mlp = 8 * b * t * d * d, 4 * b * t * t * d, 4 * b * t * d * f
    whole = projections + core + mlp
    return [
        (whole // 2, "Each term of a sum is a product and an addition: two FLOPs, 2 n k m."),
        (
            projections * 3 // 4 + core + mlp,
            "There are four projections: Q, K, V, and the output after the heads are joined.",
        ),
        (projections + core * h + mlp, "A head has the width K = D ÷ H, not D."),
        (projections + core // h + mlp, "All H heads make scores: count each of them."),
        (projections + core // 2 + mlp, "Scores and weighted sum are two products of one size."),
        (projections + core + mlp // 2, "The MLP goes up and down: two products."),
        (projections + core + 16 * b * t * d * d, "F is given: it need not be 4 D."),
        (whole // b if b > 1 else -1, "The batch is missing: every row is computed."),
        (projections + mlp, "Scores and weighted sum are missing."),
        (projections + core, "The MLP is missing."),
        (
            projections + 2 * b * t * (t + 1) * d + mlp,
            "Forbidden scores are computed, too: all T × T of them.",
        ),
    ]


@FLOPS.property(
    "it equals what PyTorch's counter sees in a block that runs",
    cases=FLOP_SIZES,
    likely="Write each product as 2 n k m, one after the other, and add them up.",
)
def _equals_counter(answer: Callable[..., int], sizes: tuple[int, int, int, int, int]) -> None:
    got = answer(*sizes)
    if isinstance(got, float) and got == _counted(*sizes):
        fail("a whole number", describe(got), "Divide with //, which keeps whole numbers whole.")
    expect_equal(got, _counted(*sizes), mistakes=_mistaken_flops(*sizes))


@FLOPS.property("more heads of less width cost the same")
def _heads_cancel(answer: Callable[..., int]) -> None:
    expect_equal(answer(2, 9, 24, 6, 96), answer(2, 9, 24, 1, 96), what="6 heads as 1 head")
