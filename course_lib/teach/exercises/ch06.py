"""Exercises of chapter 06, the loop: accumulation, resume, five bugs, the share of the peak."""

from collections.abc import Callable, Sequence

import torch

from course_lib.data.batch import Batch
from course_lib.teach.checking import Exercise, expect, expect_close, fail
from course_lib.teach.exercises.ch06_bugs import BUGS
from course_lib.teach.exercises.ch06_resume import RESUME
from course_lib.teach.exercises.ch06_tools import (
    SpyModel,
    gradients_of,
    random_batch,
    slices_of,
    token_losses,
)

__all__ = ["ACCUMULATE", "BUGS", "RESUME", "SHARE"]

Accumulate = Callable[[SpyModel, list[Batch]], float]
Share = Callable[[int, int, float, float], float]

ACCUMULATE = Exercise(
    "06.1",
    "Accumulate with the right scale",
    hints=(
        "First count the targets of all parts together: sum of part.mask.sum().",
        "cross_entropy_sum(...).total is a part's sum; divided by the count of all parts it is "
        "that part's share of the mean.",
        "One backward for each part: .grad adds up by itself.",
    ),
    forbidden=("course_lib.train.step.train_step", "course_lib.train.fit.fit"),
)


def _accumulate(answer: Accumulate, parts: Sequence[Batch]) -> None:
    """Compare the gradients with the whole batch's, and the loss; name the usual mistakes."""
    model = SpyModel()
    came = answer(model, list(parts))
    calls, grads = list(model.rows), model.gradients()
    whole = Batch(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
    losses = token_losses(model, whole)
    wanted = gradients_of(model, losses[whole.mask].mean())
    _expect_a_pass_for_each(calls, [len(part.inputs) for part in parts], grads)
    mistakes = _mistaken_gradients(model, parts, whole)
    for index, right in enumerate(wanted):
        near = [(values[index], text) for values, text in mistakes]
        expect_close(grads[index], right, what=f"gradient {index}", mistakes=near)
    mean = losses[whole.mask].mean().item()
    means = [token_losses(model, p)[p.mask].mean().item() for p in parts if p.mask.any()]
    expect_close(
        came,
        mean,
        what="the mean loss that is returned",
        tolerance=1e-5,
        mistakes=[
            (mean * int(whole.mask.sum()), "That is the sum: divide by the count of all parts."),
            (sum(means) / len(parts), "That is the mean of the parts' means."),
            (means[-1], "That is the last part's loss alone."),
        ],
    )


def _expect_a_pass_for_each(calls: list[int], sizes: list[int], grads: list) -> None:
    if max(calls, default=0) > max(sizes):
        fail(
            f"a forward pass for each part, of {max(sizes)} rows at most",
            f"one of {max(calls)} rows",
            "The parts were joined: that takes the memory which accumulation saves.",
        )
    expect(
        calls == sizes,
        expected=f"a forward pass for each part, of {sizes} rows",
        came=f"{calls}",
        likely="Call the model once for each part, in their order.",
    )
    if any(grad is None for grad in grads):
        fail("gradients in .grad", "none", "Call backward for each part.")


def _mistaken_gradients(model: SpyModel, parts: Sequence[Batch], whole: Batch) -> list:
    tried = [part for part in parts if part.mask.any()]
    counted, rows = int(whole.mask.sum()), len(whole.inputs)
    means = [gradients_of(model, token_losses(model, p)[p.mask].mean()) for p in tried]
    every = gradients_of(model, token_losses(model, whole).mean())
    right = gradients_of(model, token_losses(model, whole)[whole.mask].mean())

    def mix(weights: Sequence[float]) -> list:
        return [
            sum(w * g for w, g in zip(weights, each, strict=True))
            for each in zip(*means, strict=True)
        ]

    last_share = int(tried[-1].mask.sum()) / counted
    return [
        ([g * counted for g in right], "The sums are added but not divided: divide by the count of "
         "all parts."),
        (mix([1.0] * len(tried)), "The means are added unscaled: with more parts the gradient "
         "grows."),
        (mix([1 / len(parts)] * len(tried)), "That is the mean of the parts' means: a part with "
         "few targets counts as much as one with many."),
        (mix([len(p.inputs) / rows for p in tried]), "You weighted by rows: weight by the targets "
         "that count."),
        ([g * counted / whole.mask.numel() for g in right], "You divided by all positions: count "
         "only those of the mask."),
        (every, "The mask is missing: the prompt counts too."),
        (means[-1], "Only the last part is left: don't reset .grad between the parts."),
        ([g * last_share for g in means[-1]], "Only the last part's share is left: keep .grad "
         "between the parts."),
    ]  # fmt: skip


@ACCUMULATE.property("one part alone gives the gradient of its mean loss")
def _one_part(answer: Accumulate) -> None:
    _accumulate(answer, [random_batch((3, 1, 4), seed=0)])


@ACCUMULATE.property(
    "the parts together give the whole batch's gradient, and its mean loss",
    cases={
        "a short last part": ((1, 1, 2, 6, 5, 4, 3), 3),
        "4 + 4 rows": ((3, 1, 4, 2, 1, 5, 2, 6), 4),
        "a row at a time": ((1, 6, 2), 1),
    },
    likely="Each part's sum, divided by the count of all parts.",
)
def _whole_batch(answer: Accumulate, case: tuple[tuple[int, ...], int]) -> None:
    counts, size = case
    _accumulate(answer, list(slices_of(random_batch(counts, seed=1), size)))


@ACCUMULATE.property(
    "a part in which nothing counts adds nothing",
    likely="Its sum is 0; divide by the count of all parts, not by its own.",
)
def _empty_part(answer: Accumulate) -> None:
    _accumulate(answer, list(slices_of(random_batch((2, 3, 0, 0, 4), seed=2), 2)))


SHARE = Exercise(
    "06.4",
    "The share of the peak",
    hints=(
        "Three numbers one after another: FLOPs, FLOPs a second, share.",
        "A step of D tokens costs 6 N D FLOPs; divide by its seconds.",
        "6 * parameters * tokens / time_s / peak_flops_per_s.",
    ),
    forbidden=("course_lib.cost.step.step_flops",),
)


@SHARE.property(
    "it is 6 N D ÷ seconds ÷ peak",
    cases={
        "a small model": (100_000, 2_816, 0.02, 2e11),
        "1 B on one GPU": (10**9, 524_288, 8.0, 9.9e14),
    },
    likely="FLOPs of the step, divided by its seconds, divided by the peak.",
)
def _share(answer: Share, case: tuple[int, int, float, float]) -> None:
    n, d, time_s, peak = case
    right = n * d * 6.0 / (time_s * peak)
    mistakes = [
        (right / 6, "The 6 is missing: 2 for the forward pass, 4 for the backward pass."),
        (right / 3, "That is the forward pass alone: the backward pass costs twice as much."),
        (right * 2 / 3, "That is the backward pass alone: add the forward pass."),
        (100 * right, "A share lies between 0 and 1: no percent."),
        (1 / right, "It is upside down: reached ÷ peak."),
        (right * peak, "That is FLOPs a second: divide by the peak."),
        (right * time_s, "Divide by the seconds that the step took."),
        (right * time_s**2, "Divide by the seconds, don't multiply."),
    ]
    expect_close(answer(n, d, time_s, peak), right, mistakes=mistakes)


@SHARE.property("twice the time is half the share, twice the tokens twice the share")
def _scales(answer: Share) -> None:
    one = answer(1000, 50, 0.5, 1e7)
    expect_close(answer(1000, 50, 1.0, 1e7), one / 2)
    expect_close(answer(1000, 100, 0.5, 1e7), one * 2)
