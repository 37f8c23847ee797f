"""Exercises 01.2 and 01.3: causal attention, and heads split and joined."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.teach.checking import (
    Exercise,
    expect,
    expect_close,
    expect_equal,
    expect_unchanged,
)
from course_lib.teach.checking.forbidden import ATTENTION

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
InHeads = Callable[[Tensor, Tensor, Tensor, int, Attention], Tensor]
Mistakes = list[tuple[Any, str]]

CAUSAL = Exercise(
    "01.2",
    "Build causal attention",
    hints=(
        "The scores are q @ k.transpose(-2, -1): one for each token that looks, and at whom.",
        "Divide them by math.sqrt(K), K the last dimension of q.",
        "masked_fill(causal_mask(T), -math.inf) before the softmax, which goes over `dim=-1`.",
        "At the end the shares times the values: softmax(scores) @ v.",
    ),
    forbidden=(
        *ATTENTION,
        "course_lib.forward.layers.causal_attention",
        "course_lib.forward.fused.causal_attention",
        "course_lib.forward.blocks.attention",
    ),
)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, forbidden: Tensor, dim: int = -1
) -> Tensor:
    scores = (q @ k.transpose(-2, -1) * scale).masked_fill(forbidden, -math.inf)
    return torch.softmax(scores, dim) @ v


def _mistaken_attentions(q: Tensor, k: Tensor, v: Tensor) -> Mistakes:
    tokens, width = q.shape[-2:]
    scale = 1 / math.sqrt(width)
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    nothing = torch.zeros_like(future)
    shares = torch.softmax(q @ k.transpose(-2, -1) * scale, -1)
    itself = torch.ones(tokens, tokens, dtype=torch.bool).triu(0)
    return [
        (
            _attend(q, k, v, scale=scale, forbidden=nothing),
            "Tokens see later ones: the mask is missing.",
        ),
        (
            _attend(q, k, v, scale=scale, forbidden=future.T),
            "The mask is upside down: it forbids the past and allows the future.",
        ),
        (
            _attend(q, k, v, scale=scale, forbidden=~future),
            "True and False are swapped in the mask: True is where a token must not look.",
        ),
        (
            _attend(q, k, v, scale=scale, forbidden=itself),
            "A token may look at itself: the diagonal is allowed.",
        ),
        (_attend(q, k, v, scale=1.0, forbidden=future), "The scale is missing: divide by √K."),
        (_attend(q, k, v, scale=1 / width, forbidden=future), "Divide by √K, not by K."),
        (
            _attend(q, k, v, scale=1 / math.sqrt(tokens), forbidden=future),
            "K is the width of a head, q.shape[-1]; you took the root of the number of tokens.",
        ),
        (
            _attend(q, k, v, scale=math.sqrt(width), forbidden=future),
            "Divide by √K: you multiplied.",
        ),
        (
            _attend(k, q, v, scale=scale, forbidden=future),
            "Queries and keys have changed places: a row of scores belongs to one query.",
        ),
        (
            _attend(q, k, v, scale=scale, forbidden=future, dim=-2),
            "The softmax goes over the keys, the last dimension.",
        ),
        (
            shares.masked_fill(future, 0) @ v,
            "You masked after the softmax: the shares of a row no longer add up to 1. "
            "Set scores to -inf before it.",
        ),
        (
            torch.softmax((q @ k.transpose(-2, -1) * scale).masked_fill(future, 0), -1) @ v,
            "A score of 0 is no ban: exp(0) is 1. Fill in -inf.",
        ),
    ]


def _attention_inputs(shape: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(3)
    return list(torch.randn(3, *shape, dtype=torch.float64))


@CAUSAL.property(
    "it equals PyTorch's scaled_dot_product_attention",
    cases={
        "B, H, T, K = 1, 1, 4, 3": (1, 1, 4, 3),
        "2, 3, 5, 4": (2, 3, 5, 4),
        "T = 1": (2, 2, 1, 3),
    },
    likely="softmax(q k^T / √K, later tokens at -inf) v, each in its own row and head.",
)
def _equals_sdpa(answer: Attention, shape: tuple[int, ...]) -> None:
    q, k, v = _attention_inputs(shape)
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    mistakes = _mistaken_attentions(q, k, v)
    expect_close(answer(q.clone(), k.clone(), v.clone()), expected, mistakes=mistakes)


@CAUSAL.property(
    "another last token changes nothing before it, to the bit",
    likely="Something of the last token reaches the earlier ones: look at the mask.",
)
def _no_peeking(answer: Attention) -> None:
    q, k, v = _attention_inputs((1, 2, 6, 4))
    one = answer(q.clone(), k.clone(), v.clone())
    for tensor in (q, k, v):
        tensor[..., -1, :] += 5
    other = answer(q, k, v)
    expect(
        torch.equal(one[..., :-1, :], other[..., :-1, :]),
        expected="the same outputs for tokens 0 to 4",
        came="other outputs",
    )


@CAUSAL.property(
    "large scores give no nan, and q, k and v stay as they are",
    likely="Take the largest score off before the exponential, as `softmax` above does.",
)
def _large_scores(answer: Attention) -> None:
    q, k, v = (200 * tensor.float() for tensor in _attention_inputs((1, 1, 4, 3)))
    copies = q.clone(), k.clone(), v.clone()
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    expect_close(answer(q, k, v), expected)
    for name, now, before in zip("qkv", (q, k, v), copies, strict=True):
        expect_unchanged(now, before, name)


HEADS = Exercise(
    "01.3",
    "Split into heads, and join them",
    hints=(
        "First cut D into H and K: unflatten(-1, (heads, -1)) gives [B, T, H, K].",
        "Then let tokens and heads change places: transpose(1, 2) gives [B, H, T, K].",
        "Back: transpose(1, 2) again, then flatten(-2).",
    ),
    forbidden=("course_lib.forward.layers.split_heads", "course_lib.forward.layers.join_heads"),
)


def _split(x: Tensor, heads: int) -> Tensor:
    return torch.stack(x.chunk(heads, dim=-1), dim=1)  # by slices: no reshape at all


def _mistaken_splits(x: Tensor, heads: int) -> Mistakes:
    batch, tokens, width = x.shape
    head_width = width // heads
    wrong_view = x.reshape(batch, heads, tokens, head_width)
    strided = x.unflatten(-1, (head_width, heads)).permute(0, 3, 1, 2)
    return [
        (
            wrong_view,
            "The shape is right and the numbers are not: a plain view or reshape to [B, H, T, K] "
            "mixes tokens. Cut D into H and K first, then transpose.",
        ),
        (
            strided,
            "Each head takes every H-th number: head 0 is numbers 0 to K - 1, so D becomes (H, K), "
            "in this order.",
        ),
        (
            x.unflatten(-1, (heads, -1)),
            "Tokens and heads have not changed places: transpose dimensions 1 and 2.",
        ),
    ]


@HEADS.property(
    "`attend` gets [B, H, T, K], head h with numbers h K to h K + K - 1 of every token",
    cases={"B, T, D = 2, 3, 8 with 2 heads": (2, 3, 8, 2), "1, 4, 12 with 3 heads": (1, 4, 12, 3),
           "2, 2, 4 with 2 heads": (2, 2, 4, 2)},
    likely="unflatten the last dimension into (heads, K), then transpose dimensions 1 and 2.",
)  # fmt: skip
def _given_to_attend(answer: InHeads, case: tuple[int, int, int, int]) -> None:
    *shape, heads = case
    torch.manual_seed(4)
    inputs = list(torch.randn(3, *shape))
    calls: list[tuple[Tensor, ...]] = []

    def spy(*parts: Tensor) -> Tensor:
        calls.append(parts)
        return torch.zeros(shape[0], heads, shape[1], shape[2] // heads)

    q, k, v = (tensor.clone() for tensor in inputs)
    answer(q, k, v, heads, spy)
    expect_equal(len(calls), 1, what="calls of `attend`")
    for name, got, given in zip("qkv", calls[0], inputs, strict=True):
        mistakes = _mistaken_splits(given, heads)
        others = [(_split(o, heads), f"`attend` wants q, k, v in this order; {name} is another.")
                  for o in inputs if o is not given]  # fmt: skip
        expect_close(got, _split(given, heads), what=name, mistakes=[*mistakes, *others])


def _mistaken_joins(parts: Tensor) -> Mistakes:
    batch, heads, tokens, head_width = parts.shape
    width = heads * head_width
    return [
        (
            parts.reshape(batch, tokens, width),
            "The shape is right and the numbers are not: transpose back before you flatten.",
        ),
        (
            parts.permute(0, 2, 3, 1).reshape(batch, tokens, width),
            "The heads' numbers alternate: put head 0's first, then head 1's.",
        ),
        (
            parts.transpose(1, 2),
            "Heads and tokens are back in place, but still apart: flatten(-2) makes D of them.",
        ),
        (parts, "That is what `attend` returned: join the heads again."),
    ]


@HEADS.property(
    "what `attend` returns is joined: head 0's numbers first",
    cases={"B, H, T, K = 2, 2, 3, 4": (2, 2, 3, 4), "1, 3, 4, 4": (1, 3, 4, 4)},
    likely="Undo the split in the opposite order: transpose(1, 2), then flatten(-2).",
)
def _joined(answer: InHeads, case: tuple[int, int, int, int]) -> None:
    batch, heads, tokens, head_width = case
    torch.manual_seed(5)
    q, k, v = torch.randn(3, batch, tokens, heads * head_width)
    returned = torch.randn(case)
    got = answer(q, k, v, heads, lambda q, k, v: returned.clone())
    expected = torch.cat(list(returned.unbind(1)), dim=-1)
    expect_close(got, expected, mistakes=_mistaken_joins(returned))


@HEADS.property("an `attend` that returns the values gives the values back, each in its place")
def _round_trip(answer: InHeads) -> None:
    q, k, v = torch.randn(3, 2, 5, 6)
    mistakes = [(q, "That is q: the result of `attend` is what counts."),
                (k, "That is k: the result of `attend` is what counts.")]  # fmt: skip
    expect_close(answer(q, k, v, 3, lambda q, k, v: v), v, mistakes=mistakes)
