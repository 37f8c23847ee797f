"""Exercises of chapter 04, the gradients of a Transformer: layer norm and attention here, a whole
block in ch04_block.

Every answer is compared with autograd: with the gradient of (y * d_y).sum(), since that of y for
d_y imports sympy, a second of a check's time.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.teach.checking import Exercise, Wrong, describe, expect_close, expect_unchanged
from course_lib.teach.checking.expect import Mistake
from course_lib.teach.checking.forbidden import ATTENTION, AUTOGRAD
from course_lib.teach.checking.forbidden import LAYER_NORM as LAYER_NORM_CALLS
from course_lib.teach.exercises.ch04_block import BLOCK

__all__ = ["ATTENTION_BACKWARD", "BLOCK", "LAYER_NORM"]

Three = tuple[Tensor, Tensor, Tensor]

LAYER_NORM = Exercise(
    "04.1",
    "Layer norm backward",
    hints=(
        "d_bias and d_weight: bias and weight served every token, so sum over all of them.",
        "d_n = d_y * weight. Take out its mean over the last dimension, and its part along n, "
        "n * mean(d_n * n); both means with keepdim=True.",
        "d_x = (d_n - mean(d_n) - n * mean(d_n * n)) * inverse_std.",
    ),
    forbidden=(
        *AUTOGRAD,
        *LAYER_NORM_CALLS,
        "aten.native_layer_norm_backward",
        "course_lib.forward.layers.layer_norm",
        "course_lib.backward.layers.layer_norm_backward",
    ),
)


def _three(got: Any, names: tuple[str, str, str]) -> Three:
    if not isinstance(got, tuple | list) or len(got) != 3:
        wanted = ", ".join(names)
        raise Wrong(f"three tensors: {wanted}", describe(got), f"End with `return {wanted}`.")
    return tuple(got)


def _compare(
    got: Any, expected: tuple[Tensor, ...], names: tuple[str, str, str], mistakes: list
) -> None:
    """Compare three gradients, each with its own mistakes and with one in another's place."""
    for name, value, wanted, known in zip(
        names, _three(got, names), expected, mistakes, strict=True
    ):
        others = [(e, n) for e, n in zip(expected, names, strict=True) if n != name]
        swapped = [(e, f"{n} stands in {name}'s place: swap the two.") for e, n in others]
        expect_close(value, wanted, what=name, mistakes=[*known, *swapped])


NORM_NAMES = ("d_x", "d_weight", "d_bias")


def _norm_case(leading: tuple[int, ...], dtype: torch.dtype) -> tuple[tuple, tuple[Tensor, ...]]:
    """Return (normalised, inverse_std, weight, d_y) and autograd's three gradients."""
    torch.manual_seed(6)
    x = (3 * torch.randn(*leading, 5, dtype=dtype) + 2).requires_grad_()
    weight = torch.randn(5, dtype=dtype).requires_grad_()
    bias = torch.randn(5, dtype=dtype).requires_grad_()
    d_y = torch.randn(*leading, 5, dtype=dtype)
    y = F.layer_norm(x, (5,), weight, bias)
    expected = torch.autograd.grad((y * d_y).sum(), (x, weight, bias))
    centred = x.detach() - x.detach().mean(dim=-1, keepdim=True)
    inverse_std = (centred.square().mean(dim=-1, keepdim=True) + 1e-5).rsqrt()
    return (centred * inverse_std, inverse_std, weight.detach(), d_y), expected


def _norm_mistakes(n: Tensor, inverse_std: Tensor, weight: Tensor, d_y: Tensor) -> list:
    d_n = d_y * weight
    shift, along = d_n.mean(-1, keepdim=True), (d_n * n).mean(-1, keepdim=True)
    rows = n[..., 0].numel()
    d_weight, d_bias = (d_y * n).flatten(0, -2).sum(0), d_y.flatten(0, -2).sum(0)
    of_x: list[Mistake] = [
        (
            d_n * inverse_std,
            "Only the direct way is there: take out the mean and the part along n.",
        ),
        (
            (d_n - shift) * inverse_std,
            "The way through the deviation is missing: the part along n.",
        ),
        (
            (d_n - n * along) * inverse_std,
            "The way through the mean is missing: take out d_n's mean.",
        ),
        (d_n - shift - n * along, "Divide by the deviation: multiply with inverse_std."),
        (
            (d_n - shift - n * along) / inverse_std,
            "inverse_std is 1 / std already: multiply with it.",
        ),
        ((d_n + shift + n * along) * inverse_std, "The two parts are taken out, not added."),
        (
            (d_n - shift - along) * inverse_std,
            "The part along n points along n: n * mean(d_n * n).",
        ),
        (
            (d_y - d_y.mean(-1, keepdim=True) - n * (d_y * n).mean(-1, keepdim=True)) * inverse_std,
            "The weight is missing: d_n = d_y * weight comes first.",
        ),
        (
            (d_n - d_n.sum(-1, keepdim=True) - n * (d_n * n).sum(-1, keepdim=True)) * inverse_std,
            "Take means over the D elements, not sums.",
        ),
        (
            (d_n - d_n.mean() - n * (d_n * n).mean()) * inverse_std,
            "The means run over each token by itself: dim=-1, keepdim=True.",
        ),
    ]
    of_weight = [
        (d_y * n, "d_weight has a row for each token: the weight served all, so sum over them."),
        (d_weight / rows, "d_weight is a sum over the tokens, not a mean."),
        ((d_n * n).flatten(0, -2).sum(0), "d_weight starts from d_y, not from d_y * weight."),
        (d_bias, "d_weight is the sum of d_y * n: the factor n is missing."),
        (
            (d_y * n).sum(0),
            "d_weight is summed over the first dimension only: sum over all tokens.",
        ),
    ]
    of_bias = [
        (d_y, "d_bias has a row for each token: the bias served all, so sum over them."),
        (d_bias / rows, "d_bias is a sum over the tokens, not a mean."),
        (d_n.flatten(0, -2).sum(0), "d_bias is the sum of d_y itself, without the weight."),
    ]
    return [of_x, of_weight, of_bias]


@LAYER_NORM.property(
    "it equals autograd through torch's layer norm",
    cases={"[4, D]": (4,), "[2, 3, D]": (2, 3), "[2, 1, 3, D]": (2, 1, 3)},
    likely="Write the shape beside each tensor: means over the last dimension, sums over the rest.",
)
def _norm_equals_autograd(answer: Callable[..., Three], leading: tuple[int, ...]) -> None:
    case, expected = _norm_case(leading, torch.float64)
    got = answer(*(tensor.clone() for tensor in case))
    _compare(got, expected, NORM_NAMES, _norm_mistakes(*case))


@LAYER_NORM.property("float32 stays float32")
def _norm_float32(answer: Callable[..., Three]) -> None:
    case, expected = _norm_case((3, 2), torch.float32)
    _compare(answer(*case), expected, NORM_NAMES, _norm_mistakes(*case))


@LAYER_NORM.property("d_x has no part that shifts a token's vector")
def _norm_no_shift(answer: Callable[..., Three]) -> None:
    case, _ = _norm_case((3,), torch.float64)
    sums = _three(answer(*case), NORM_NAMES)[0].sum(dim=-1)
    expect_close(1 + sums, torch.ones_like(sums), what="1 + the sum of d_x over a token")


@LAYER_NORM.property("the tensors you are given stay as they are")
def _norm_unchanged(answer: Callable[..., Three]) -> None:
    case, _ = _norm_case((3,), torch.float64)
    given = [tensor.clone() for tensor in case]
    answer(*given)
    names = ("normalised", "inverse_std", "weight", "d_y")
    for name, now, before in zip(names, given, case, strict=True):
        expect_unchanged(now, before, name)


ATTENTION_BACKWARD = Exercise(
    "04.2",
    "Attention backward",
    hints=(
        "From the end: y = pattern @ v. By the rule for C = A B, what are d_pattern and d_v?",
        "Then through softmax, d_scores = pattern * (d_pattern - sum of pattern * d_pattern), and "
        "through the scaled product: each of d_q and d_k is divided by sqrt(K).",
        "d_q = d_scores @ k / sqrt(K); d_k = d_scores.transpose(-2, -1) @ q / sqrt(K).",
    ),
    forbidden=(
        *AUTOGRAD,
        *ATTENTION,
        "aten._softmax_backward_data",
        "course_lib.forward.layers.causal_attention",
        "course_lib.backward.layers.causal_attention_backward",
    ),
)
ATTENTION_NAMES = ("d_q", "d_k", "d_v")


def _attention_case(
    sizes: tuple[int, int, int, int], dtype: torch.dtype
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return (q, k, v, pattern, d_y) and autograd's three gradients."""
    torch.manual_seed(7)
    leaves = [torch.randn(sizes, dtype=dtype).requires_grad_() for _ in range(3)]
    d_y = torch.randn(sizes, dtype=dtype)
    q, k, v = leaves
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    expected = torch.autograd.grad((y * d_y).sum(), leaves)
    q, k, v = (leaf.detach() for leaf in leaves)
    later = torch.ones(sizes[2], sizes[2], dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(sizes[3])).masked_fill(later, -math.inf)
    return (q, k, v, scores.softmax(-1), d_y), expected


def _attention_mistakes(q: Tensor, k: Tensor, v: Tensor, pattern: Tensor, d_y: Tensor) -> list:
    d_pattern, scale = d_y @ v.transpose(-2, -1), math.sqrt(q.shape[-1])
    through = pattern * d_pattern
    d_scores = through - pattern * through.sum(-1, keepdim=True)

    def both(d_s: Tensor, text: str) -> tuple[Mistake, Mistake]:
        d_q, d_k = d_s @ k / scale, d_s.transpose(-2, -1) @ q / scale
        return (d_q, f"d_q: {text}"), (d_k, f"d_k: {text}")

    pairs = [
        both(d_scores * scale, "the scores were divided by sqrt(K), so divide here too."),
        both(d_scores / scale, "you divided by sqrt(K) twice: once is enough."),
        both(d_pattern, "softmax is passed over: go through it before you come to the scores."),
        both(through, "the sum is missing: all shares shrink when one score grows."),
        both(pattern * (d_pattern - d_pattern.sum(-1, keepdim=True)),
             "the sum in softmax's backward is over pattern * d_pattern."),
        both(through - pattern * through.sum(-2, keepdim=True),
             "the sum in softmax's backward runs over a query's row: dim=-1, keepdim=True."),
        both(-d_scores, "the sign is turned."),
    ]  # fmt: skip
    of_v = [
        (
            pattern @ d_y,
            "d_v: pattern must be transposed: v_s went to every query that looked at s.",
        ),
        (pattern.transpose(-2, -1) @ d_y / scale, "d_v: sqrt(K) belongs to the scores, not to v."),
        (pattern @ v, "d_v: that is the forward pass."),
    ]
    swapped_q = (d_scores.transpose(-2, -1) @ k / scale, "d_q: d_scores is transposed by mistake.")
    swapped_k = (
        d_scores @ q / scale,
        "d_k: d_scores must be transposed: row s of d_k belongs to key s.",
    )
    of_q = [*(pair[0] for pair in pairs), swapped_q]
    of_k = [*(pair[1] for pair in pairs), swapped_k]
    return [of_q, of_k, of_v]


@ATTENTION_BACKWARD.property(
    "it equals autograd through torch's attention",
    cases={"one head": (1, 1, 4, 3), "B 2, H 3, T 5, K 4": (2, 3, 5, 4)},
    likely="Go back one step at a time, and write the shape beside each tensor.",
)
def _attention_equals_autograd(
    answer: Callable[..., Three], sizes: tuple[int, int, int, int]
) -> None:
    case, expected = _attention_case(sizes, torch.float64)
    got = answer(*(tensor.clone() for tensor in case))
    _compare(got, expected, ATTENTION_NAMES, _attention_mistakes(*case))


@ATTENTION_BACKWARD.property("float32 stays float32")
def _attention_float32(answer: Callable[..., Three]) -> None:
    case, expected = _attention_case((2, 2, 3, 5), torch.float32)
    _compare(answer(*case), expected, ATTENTION_NAMES, _attention_mistakes(*case))


@ATTENTION_BACKWARD.property("a single token has nothing to choose: d_q and d_k are 0")
def _attention_one_token(answer: Callable[..., Three]) -> None:
    case, _ = _attention_case((2, 2, 1, 4), torch.float64)
    d_q, d_k, d_v = _three(answer(*case), ATTENTION_NAMES)
    for name, value, wanted in (("d_q", d_q, 0.0), ("d_k", d_k, 0.0)):
        expect_close(1 + value, torch.ones_like(value) + wanted, what=f"1 + {name}")
    expect_close(d_v, case[-1], what="d_v")


@ATTENTION_BACKWARD.property("the tensors you are given stay as they are")
def _attention_unchanged(answer: Callable[..., Three]) -> None:
    case, _ = _attention_case((2, 2, 3, 4), torch.float64)
    given = [tensor.clone() for tensor in case]
    answer(*given)
    for name, now, before in zip(("q", "k", "v", "pattern", "d_y"), given, case, strict=True):
        expect_unchanged(now, before, name)
