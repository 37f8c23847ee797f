"""Exercises of chapter 02, the loss: stable log-softmax, masked cross-entropy, unequal parts."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.teach.checking import (
    Exercise,
    expect_close,
    expect_equal,
    expect_unchanged,
)
from course_lib.teach.checking.forbidden import CROSS_ENTROPY, LOG_SOFTMAX, SOFTMAX

LogSoftmax = Callable[[Tensor], Tensor]
CrossEntropy = Callable[[Tensor, Tensor, Tensor], Tensor]
Joined = Callable[[list[float], list[int]], float]
Mistakes = list[tuple[Any, str]]

STABLE = Exercise(
    "02.1",
    "Build a stable log_softmax",
    hints=(
        "Take each row's largest logit off first: logits.amax(dim=-1, keepdim=True).",
        "Of what is left, exp can't overflow: sum it over the last dimension, keepdim=True.",
        "Return shifted - shifted.exp().sum(dim=-1, keepdim=True).log().",
    ),
    forbidden=(
        *LOG_SOFTMAX,
        *SOFTMAX,
        "torch.logaddexp",
        "torch.logcumsumexp",
        "course_lib.loss.log_softmax",
        "course_lib.forward.layers.softmax",
    ),
)


def _mistaken_logs(logits: Tensor) -> Mistakes:
    right = logits.log_softmax(-1)
    shifted = logits - logits.amax(-1, keepdim=True)
    return [
        (right.exp(), "That is the softmax: its logarithm is asked for."),
        (-right, "The sign is turned: ln p is negative, or 0. (The loss is -ln p.)"),
        (shifted, "The sum is missing: subtract ln of the sum of the exponentials."),
        (logits.logsumexp(-1, keepdim=True).expand_as(logits), "Subtract that from the logits."),
        (
            shifted - logits.logsumexp(-1, keepdim=True),
            "The largest is taken off twice: sum the exponentials of the shifted logits.",
        ),
        (
            logits - shifted.exp().sum(-1, keepdim=True).log(),
            "The sum is of shifted logits, so shift those in front of it, too.",
        ),
        (shifted - shifted.exp().sum(-1, keepdim=True), "The sum's logarithm is missing."),
        (logits.log_softmax(0), "You summed over the first dimension: take the last, dim=-1."),
        (
            logits - logits.logsumexp(tuple(range(logits.dim())), keepdim=True),
            "You summed over everything: each row by itself, dim=-1.",
        ),
    ]


@STABLE.property(
    "it equals PyTorch's log_softmax over the last dimension",
    cases={"shape (3,)": (3,), "shape (4, 13)": (4, 13), "shape (2, 3, 5)": (2, 3, 5)},
    likely="Sum over the last dimension, and keep it: `dim=-1, keepdim=True`.",
)
def _equals_torch(answer: LogSoftmax, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    logits = torch.randn(shape, dtype=torch.float64)
    expect_close(
        answer(logits.clone()), functional.log_softmax(logits, -1), mistakes=_mistaken_logs(logits)
    )


@STABLE.property(
    "large logits give no inf or nan, whatever their sign",
    cases={
        "[1000, 0]": [[1000.0, 0.0]],
        "[-1000, -1000]": [[-1000.0, -1000.0]],
        "rows of 900 and of -900": [[900.0, 899.0], [-900.0, -899.0]],
    },
    likely="Take each row's own largest logit off before the exponential.",
)
def _no_overflow(answer: LogSoftmax, rows: list[list[float]]) -> None:
    logits = torch.tensor(rows, dtype=torch.float64)
    expect_close(answer(logits.clone()), functional.log_softmax(logits, -1))


@STABLE.property("`logits` stay as they are")
def _logits_stay(answer: LogSoftmax) -> None:
    logits = torch.tensor([[1.0, 2.0, 4.0]])
    before = logits.clone()
    expect_close(answer(logits), functional.log_softmax(before, -1))
    expect_unchanged(logits, before, "logits")


MASKED = Exercise(
    "02.2",
    "Build masked cross-entropy",
    hints=(
        "Pick what counts first: logits[mask] is [N, V], targets[mask] is [N].",
        "gather(-1, index) wants an index with as many dimensions: targets[mask].unsqueeze(-1).",
        "Add up, turn the sign, and divide by N; by 1 where N is 0.",
    ),
    forbidden=(
        *CROSS_ENTROPY,
        "torch.nn.CrossEntropyLoss",
        "torch.nn.NLLLoss",
        "course_lib.loss.cross_entropy",
        "course_lib.loss.cross_entropy_sum",
        "course_lib.loss.token_losses",
    ),
)


def _expected_loss(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    ignored = targets.masked_fill(~mask, -100).flatten()
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ignored)


def _mistaken_losses(logits: Tensor, targets: Tensor, mask: Tensor) -> Mistakes:
    losses = -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    counted = losses[mask]
    p_right = logits.softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)[mask]
    picked = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)[mask]
    by_row = (losses * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    return [
        (losses.mean(), "That is the mean over all tokens: the mask is not used."),
        (losses[~mask].mean(), "The mask is turned round: True is where a token counts."),
        (counted.sum(), "That is the sum: divide by the number of tokens that count."),
        (
            counted.sum() / losses.numel(),
            "You divided by the number of all tokens: divide by how many count.",
        ),
        (-counted.mean(), "The sign is turned: the loss is -ln p, never negative."),
        (1 - p_right.mean(), "That is 1 - p: the loss is -ln p."),
        (-p_right.mean(), "The logarithm is missing: the loss is -ln p."),
        (-picked.mean(), "Those are the logits of the targets: take log_softmax first."),
        (
            by_row.mean(),
            "That is a mean of each row's mean: rows with few tokens weigh too much. "
            "Add up over all rows, divide once.",
        ),
        (-p_right.mean().log(), "That is -ln of the mean p: take the mean of -ln p."),
    ]


def _example() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    logits = 2 * torch.randn(3, 5, 7, dtype=torch.float64)
    targets = torch.randint(7, (3, 5))
    mask = torch.arange(5) < torch.tensor([[4], [1], [3]])
    return logits, targets, mask


@MASKED.property("the cat at 70 % costs 0.357")
def _cat(answer: CrossEntropy) -> None:
    logits = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log()
    got = answer(logits, torch.tensor([0]), torch.tensor([True]))
    expected = torch.tensor(-math.log(0.7), dtype=torch.float64)
    mistakes: Mistakes = [
        (-expected, "The sign is turned: the loss is -ln p, never negative."),
        (0.7, "That is p itself."),
        (-0.7, "The logarithm is missing: the loss is -ln p."),
        (0.3, "That is 1 - p: the loss is -ln p."),
    ]
    expect_close(got, expected, mistakes=mistakes)


@MASKED.property(
    "it equals PyTorch's cross_entropy over the tokens that count",
    likely="Pick log_softmax at the targets, where the mask is True, and take the mean of -ln p.",
)
def _equals_cross_entropy(answer: CrossEntropy) -> None:
    given = _example()
    got = answer(*(tensor.clone() for tensor in given))
    expect_close(got, _expected_loss(*given), mistakes=_mistaken_losses(*given))


@MASKED.property(
    "any leading dimensions: one row of tokens works as well as a batch",
    likely="Don't name the dimensions from the front: the vocabulary is dim=-1.",
)
def _one_row(answer: CrossEntropy) -> None:
    logits, targets, mask = (tensor[0] for tensor in _example())
    expect_close(answer(logits, targets, mask), _expected_loss(logits, targets, mask))


@MASKED.property(
    "what doesn't count can't spoil the loss: nan × 0 is nan",
    likely="Pick the tokens that count before you compute: logits[mask], targets[mask].",
)
def _nothing_spoils(answer: CrossEntropy) -> None:
    logits, targets, mask = _example()
    expected = _expected_loss(logits, targets, mask)
    logits[~mask] = math.nan
    expect_close(answer(logits, targets, mask), expected)


@MASKED.property(
    "over nothing it is 0, not nan", likely="Divide by 1 where no token counts: 0 ÷ 0 is nan."
)
def _over_nothing(answer: CrossEntropy) -> None:
    logits, targets, mask = _example()
    got = answer(logits, targets, torch.zeros_like(mask))
    expect_close(got, torch.tensor(0.0, dtype=torch.float64))


JOINED = Exercise(
    "02.3",
    "Join the losses of unequal parts",
    hints=(
        "A mean times its count is a sum, and sums can be added.",
        "Divide once, at the end, by the sum of the counts; by 1 where that is 0.",
        "Leave out parts with the count 0 before you multiply: nan × 0 is nan.",
    ),
    forbidden=("numpy.average",),
)


def _mistaken_joins(means: list[float], counts: list[int]) -> Mistakes:
    known = [(mean, count) for mean, count in zip(means, counts, strict=True) if count]
    total, counted = sum(m * n for m, n in known), sum(counts)
    return [
        (
            sum(m for m, _ in known) / len(known),
            "That is the mean of the means: a part with few tokens weighs too much.",
        ),
        (total, "The sums are added but not divided: divide by the number of all tokens."),
        (total / len(means), "You divided by the number of parts: divide by all tokens."),
        (sum(m for m, _ in known), "The means are added as they are: multiply by the counts."),
        (sum(m for m, _ in known) / counted, "Multiply each mean by its count before you add."),
        (
            sum(m / n for m, n in known) / counted,
            "The means are divided already: multiply by the count, don't divide.",
        ),
        (known[0][0], "That is the first part's mean alone."),
        (known[-1][0], "That is the last part's mean alone."),
    ]


@JOINED.property(
    "it is the mean over all tokens",
    cases={
        "2.0 over 1 token, 4.0 over 3": ([2.0, 4.0], [1, 3]),
        "2.0 over 3, 15.0 over 2": ([2.0, 15.0], [3, 2]),
        "3.0 over 1 token, alone": ([3.0], [1]),
        "four ranks": ([0.5, 3.0, 1.25, 2.0], [7, 2, 4, 1]),
    },
    likely="Add mean × count over the parts, then divide by the sum of the counts.",
)
def _mean_of_all(answer: Joined, case: tuple[list[float], list[int]]) -> None:
    means, counts = case
    tokens = torch.tensor(means, dtype=torch.float64).repeat_interleave(torch.tensor(counts))
    got = answer(list(means), list(counts))
    expect_close(got, tokens.mean().item(), mistakes=_mistaken_joins(means, counts))


@JOINED.property(
    "a part without a token, whose mean is nan, doesn't matter, wherever it stands",
    cases={"first": 0, "in the middle": 1, "last": 2},
    likely="Skip parts with the count 0 before you multiply, and go on with the next.",
)
def _empty_part(answer: Joined, place: int) -> None:
    means, counts = [2.0, 6.0], [3, 1]
    means.insert(place, math.nan)
    counts.insert(place, 0)
    expect_close(answer(means, counts), 3.0)


@JOINED.property("without any token it is 0.0", likely="Divide by 1 where the sum of counts is 0.")
def _no_token(answer: Joined) -> None:
    expect_close(answer([math.nan, math.nan], [0, 0]), 0.0)


@JOINED.property("both lists stay as they are")
def _lists_stay(answer: Joined) -> None:
    means, counts = [1.0, 2.0], [2, 6]
    expect_close(answer(means, counts), 1.75)
    expect_equal(means, [1.0, 2.0], what="`means`")
    expect_equal(counts, [2, 6], what="`counts`")
