"""Exercise 06.3: five bugs to find in a loop whose loss still falls."""

import math
from collections.abc import Callable
from typing import Any

import torch

from course_lib.data.batch import Batch
from course_lib.teach.checking import Exercise, expect, expect_close, expect_equal, fail
from course_lib.teach.exercises.ch06_tools import (
    SpyModel,
    SpyOptimizer,
    gradients_of,
    random_batch,
    slices_of,
    token_losses,
)

Train = Callable[..., tuple[list[float], float]]

BUGS = Exercise(
    "06.3",
    "Five bugs in a loop whose loss still falls",
    hints=(
        "Go through the six stages one by one: what should count in the loss, by what is it "
        "divided, what is in .grad when the next batch begins?",
        "Three bugs sit in the loss and its gradient, one in the order of two lines, one after the "
        "loop.",
        "mask · scale by the whole batch's count · zero_grad once a batch · clip before the step · "
        "model.eval() for the exam, and model.train() after it.",
    ),
    forbidden=("course_lib.train.step.train_step", "course_lib.train.fit.fit"),
)
ROWS = (3, 1, 2, 4, 1, 2, 5)


def _train(
    answer: Train, batches: int, parts: int, max_norm: float = math.inf, dropout: float = 0.0
) -> tuple[SpyModel, SpyOptimizer, list[Batch], Any]:
    model = SpyModel(dropout)
    optimizer = SpyOptimizer(model)
    data = [random_batch(ROWS, seed=step) for step in range(batches)]
    came = answer(model, optimizer, list(data), parts, max_norm, random_batch((4, 2), seed=99))
    if not (isinstance(came, tuple) and len(came) == 2):
        fail("two things, (losses, exam_loss)", "something else", "Return both, as the loop does.")
    expect_equal(len(optimizer.seen), batches, what="optimizer steps")
    expect_equal(len(came[0]), batches, what="losses, one for each batch")
    return model, optimizer, data, came


def _model_at(optimizer: SpyOptimizer, step: int) -> SpyModel:
    model = SpyModel()
    model.load_state_dict(optimizer.weights[step])
    return model


def _expect_gradient(optimizer: SpyOptimizer, step: int, wanted: Any, mistakes: list) -> None:
    for index, right in enumerate(wanted):
        got = optimizer.seen[step][index]
        if got is None:
            fail("gradients at the optimizer's step", "none", "zero_grad stands before backward.")
        near = [(values[index], text) for values, text in mistakes]
        what = f"the gradient at step {step + 1}, parameter {index}"
        expect_close(got, right, what=what, mistakes=near)


@BUGS.property("the prompt doesn't count: only targets that the mask names")
def _mask(answer: Train) -> None:
    _, optimizer, (batch,), _ = _train(answer, 1, parts=1)
    model = _model_at(optimizer, 0)
    losses = token_losses(model, batch)
    wanted = gradients_of(model, losses[batch.mask].mean())
    every = gradients_of(model, token_losses(model, batch).mean())
    _expect_gradient(optimizer, 0, wanted, [(every, "The prompt counts too: give the loss the "
                     "mask.")])  # fmt: skip


@BUGS.property(
    "in three parts the gradient is that of the whole batch",
    likely="Divide each part's sum by the count of the whole batch.",
)
def _scale(answer: Train) -> None:
    _, optimizer, (batch,), (losses, _) = _train(answer, 1, parts=3)
    model = _model_at(optimizer, 0)
    mean = token_losses(model, batch)[batch.mask].mean().item()
    wanted = gradients_of(model, token_losses(model, batch)[batch.mask].mean())
    parts = list(slices_of(batch, 3))
    means = [gradients_of(model, token_losses(model, p)[p.mask].mean()) for p in parts]
    summed = [sum(each) for each in zip(*means, strict=True)]
    share = [int(p.mask.sum()) / int(batch.mask.sum()) for p in parts]
    mistakes = [
        (summed, "The parts' gradients pile up unscaled: divide by the whole batch's count."),
        ([g / 3 for g in summed], "The parts count different numbers of tokens: the mean of their "
         "means is another number."),
        (means[-1], "Only the last part is left: zero_grad once a batch, not once a part."),
        ([g * share[-1] for g in means[-1]], "Only the last part is left: zero_grad comes once a "
         "batch, not once a part."),
    ]  # fmt: skip
    _expect_gradient(optimizer, 0, wanted, mistakes)
    expect_close(
        losses[0],
        mean,
        what="the loss in the list",
        tolerance=1e-5,
        mistakes=[
            (mean / 3, "The parts' shares add up to the mean: don't divide them again."),
            (
                token_losses(model, parts[-1])[parts[-1].mask].mean().item(),
                "That is the last part's loss: the list has the whole batch's.",
            ),
        ],
    )


@BUGS.property("each step has the gradient of its own batch alone")
def _zero_grad(answer: Train) -> None:
    _, optimizer, batches, _ = _train(answer, 3, parts=2)
    for step, batch in enumerate(batches):
        model = _model_at(optimizer, step)
        wanted = gradients_of(model, token_losses(model, batch)[batch.mask].mean())
        old = optimizer.seen[step - 1]
        piled = [w + (0 if o is None else o) for w, o in zip(wanted, old, strict=True)]
        mistakes = [(piled, "The batch before is still in .grad: call optimizer.zero_grad().")]
        _expect_gradient(optimizer, step, wanted, mistakes if step else [])


@BUGS.property("the optimizer is given the clipped gradient", likely="Clip once, all parts added.")
def _clips(answer: Train) -> None:
    _, optimizer, (batch,), _ = _train(answer, 1, parts=2, max_norm=0.01)
    model = _model_at(optimizer, 0)
    whole = gradients_of(model, token_losses(model, batch)[batch.mask].mean())
    norm = torch.cat([g.flatten() for g in whole]).norm().item()
    late = "It was given the whole gradient: clip before the step, not after it."
    _expect_gradient(optimizer, 0, [g * (0.01 / norm) for g in whole], [(whole, late)])


@BUGS.property("the exam is taken without dropout, and training goes on with it")
def _exam(answer: Train) -> None:
    torch.manual_seed(0)
    model, _, _, (_, exam_loss) = _train(answer, 2, parts=2, dropout=0.5)
    expect(
        all(model.modes[:4]),
        expected="dropout while training",
        came="model.eval() during training",
        likely="model.eval() belongs right before the exam, not before the loop.",
    )
    expect(
        not any(model.modes[4:]) and len(model.modes) > 4,
        expected="the exam in eval mode",
        came="dropout alive in the exam",
        likely="Call model.eval() before the exam.",
    )
    exam = random_batch((4, 2), seed=99)
    expect(
        model.training,
        expected="the model in training mode afterwards",
        came="in eval mode",
        likely="Call model.train() after the exam, or the next run trains without dropout.",
    )
    model.eval()
    wanted = token_losses(model, exam)[exam.mask].mean().item()
    expect_close(exam_loss, wanted, what="the exam's loss", tolerance=1e-5)
