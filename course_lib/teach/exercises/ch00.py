"""Exercises of chapter 00, one training step: an update, unequal batches, the order of stages."""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.teach.checking import (
    Exercise,
    Wrong,
    describe,
    expect,
    expect_close,
    expect_equal,
    expect_unchanged,
)
from course_lib.teach.checking.forbidden import OPTIMIZERS

Update = Callable[[Tensor, Tensor, float], Tensor]
Average = Callable[[list[Tensor], list[int]], Tensor]

UPDATE = Exercise(
    "00.1",
    "Compute an update",
    hints=(
        "The gradient points uphill: the loss grows that way. You want to go down.",
        "How far? Not by the gradient itself: by the learning rate times the gradient.",
        "new = parameter - learning_rate * gradient; `return` it. With 0.80, 0.01 and 0.1: 0.799.",
    ),
    forbidden=(*OPTIMIZERS, "course_lib.update.optimizers.SGD"),
)


def _mistaken_updates(parameter: Tensor, gradient: Tensor, rate: float) -> list[tuple[Tensor, str]]:
    step = rate * gradient
    return [
        (parameter + step, "You went uphill: the gradient points to a larger loss, so subtract."),
        (parameter - gradient, "The learning rate is missing: the step is rate × gradient."),
        (parameter - gradient / rate, "You divided by the learning rate: multiply by it."),
        (parameter + gradient / rate, "Subtract, and multiply by the learning rate."),
        (step, "That is the step alone: subtract it from the old parameter."),
        (-step, "That is the step alone: add the old parameter."),
        (step - parameter, "The signs are swapped: old parameter minus the step."),
        (
            parameter - rate * gradient.abs(),
            "A negative gradient must raise the parameter: keep the gradient's sign.",
        ),
        (parameter, "The parameter is unchanged: subtract rate × gradient from it."),
        (parameter * (1 - step), "The step is subtracted from the parameter, not from 1."),
        (gradient - rate * parameter, "Parameter and gradient have changed places."),
    ]


def _check_update(answer: Update, parameter: Tensor, gradient: Tensor, rate: float) -> None:
    expected = parameter - rate * gradient
    mistakes = _mistaken_updates(parameter, gradient, rate)
    got = answer(parameter.clone(), gradient.clone(), rate)
    expect_close(got, expected, mistakes=mistakes)


@UPDATE.property("0.80 with gradient 0.01 and rate 0.1 becomes 0.799")
def _one_number(answer: Update) -> None:
    _check_update(answer, torch.tensor(0.80), torch.tensor(0.01), 0.1)


@UPDATE.property(
    "every element takes its own step, whatever its gradient's sign",
    cases={"shape (3,)": (3,), "shape (2, 4)": (2, 4)},
    likely="Element i of the gradient moves element i of the parameter, and no other.",
)
def _each_element(answer: Update, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    _check_update(answer, torch.randn(shape), torch.randn(shape), 0.3)


@UPDATE.property("the tensors you are given stay as they are")
def _new_tensor(answer: Update) -> None:
    parameter, gradient = torch.tensor([0.5, -1.0]), torch.tensor([2.0, 4.0])
    before = parameter.clone(), gradient.clone()
    got = answer(parameter, gradient, 0.25)
    expect_unchanged(parameter, before[0], "parameter")
    expect_unchanged(gradient, before[1], "gradient")
    expect_close(got, torch.tensor([0.0, -2.0]))


AVERAGE = Exercise(
    "00.2",
    "Average gradients of unequal batches",
    hints=(
        "A rank with many rows must count for more than a rank with few.",
        "A mean times its count is a sum: counts[r] * gradients[r] is the sum over rank r's rows.",
        "Add those sums over the ranks and divide once, by sum(counts).",
    ),
    forbidden=("numpy.average",),
)


def _whole_batch(gradients: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    sums = torch.stack([count * g for g, count in zip(gradients, counts, strict=True)])
    return sums.sum(dim=0) / sum(counts)


def _mistaken_averages(gradients: Sequence[Tensor], counts: Sequence[int]) -> list:
    stacked, ranks, rows = torch.stack(list(gradients)), len(counts), sum(counts)
    weighted = _whole_batch(gradients, counts) * rows
    return [
        (
            stacked.mean(dim=0),
            "That is the mean of the means: every rank counts alike, though their batches differ. "
            "Weight each gradient by its rank's count.",
        ),
        (weighted, "The sums are added but not divided: divide by the number of all rows."),
        (weighted / ranks, "You divided by the number of ranks: divide by the number of all rows."),
        (stacked.sum(dim=0), "The gradients are added as they are: weight each by its count."),
        (stacked.sum(dim=0) / rows, "Multiply each gradient by its own count before you add them."),
        (
            torch.stack([g / n for g, n in zip(gradients, counts, strict=True) if n]).sum(dim=0),
            "The gradients are means already: multiply by the count, don't divide by it.",
        ),
        (gradients[0], "That is rank 0's gradient alone."),
        (gradients[-1], "That is the last rank's gradient alone."),
    ]


def _check_average(answer: Average, gradients: list[Tensor], counts: list[int]) -> None:
    given = [gradient.clone() for gradient in gradients], list(counts)
    mistakes = _mistaken_averages(gradients, counts)
    expect_close(answer(*given), _whole_batch(gradients, counts), mistakes=mistakes)


@AVERAGE.property("with equal batches it is the plain mean: 10, 20, 30, 40 give 25")
def _equal(answer: Average) -> None:
    gradients = [torch.tensor([value]) for value in (10.0, 20.0, 30.0, 40.0)]
    _check_average(answer, gradients, [8, 8, 8, 8])


@AVERAGE.property("3 rows with mean 2 and 2 rows with mean 15 give 7.2")
def _unequal(answer: Average) -> None:
    _check_average(answer, [torch.tensor([2.0]), torch.tensor([15.0])], [3, 2])


@AVERAGE.property(
    "it equals autograd's gradient of the whole batch",
    cases={"1 rank": (5,), "2 ranks": (1, 6), "4 ranks": (2, 3, 5, 1)},
)
def _equals_autograd(answer: Average, counts: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    inputs, targets = torch.randn(sum(counts), 3), torch.randn(sum(counts))
    weight = torch.randn(3, requires_grad=True)

    def gradient(rows: slice) -> Tensor:
        loss = ((inputs[rows] @ weight - targets[rows]) ** 2).mean()
        return torch.autograd.grad(loss, weight)[0]

    starts = [sum(counts[:rank]) for rank in range(len(counts))]
    own = [gradient(slice(s, s + n)) for s, n in zip(starts, counts, strict=True)]
    got = answer([g.clone() for g in own], list(counts))
    expect_close(got, gradient(slice(None)), mistakes=_mistaken_averages(own, counts))


@AVERAGE.property(
    "a rank without a row has no say", likely="A count of 0 gives the weight 0, and the rest go on."
)
def _empty_rank(answer: Average) -> None:
    _check_average(answer, [torch.tensor([4.0]), torch.zeros(1), torch.tensor([1.0])], [2, 0, 4])


@AVERAGE.property("what you are given stays as it is")
def _inputs_stay(answer: Average) -> None:
    gradients, counts = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])], [2, 6]
    before = [gradient.clone() for gradient in gradients]
    expect_close(answer(gradients, counts), torch.tensor([2.5, 4.25]))
    expect_equal(counts, [2, 6], what="`counts` stays as it was")
    expect_equal(len(gradients), 2, what="`gradients` keeps its length")
    for rank, (gradient, copy) in enumerate(zip(gradients, before, strict=True)):
        expect_unchanged(gradient, copy, f"gradients[{rank}]")


STAGES = ("data", "forward", "loss", "backward", "sync", "update")
NAMES = ", ".join(sorted(STAGES))  # not in their order: that is the question
REASONS = {
    "forward": "The model can't answer a problem that it hasn't read.",
    "loss": "The loss compares an answer with the right one: there must be an answer first.",
    "backward": "The backward pass starts at the loss: without one there is nothing to trace back.",
    "sync": "The ranks agree on gradients: the backward pass must have made them first.",
    "update": (
        "An update before the sync uses each rank's own gradient: the models drift apart. "
        "Agree first, then correct."
    ),
}

ORDER = Exercise(
    "00.3",
    "Put the six stages in order",
    kind="value",
    hints=(
        "Ask of each stage what it needs, and which stage makes that.",
        "The loss needs an answer (forward); a gradient needs a loss; the sync needs gradients.",
        "It begins with data, forward, loss; the correction that all have agreed on comes last.",
    ),
)


@ORDER.property("it is a list with each of the six stages once")
def _six_stages(order: list[str]) -> None:
    expected = f"a list of the six stages: {NAMES}, but in the right order"
    expect(
        isinstance(order, list | tuple),
        expected=expected,
        came=describe(order),
        likely='Write a list of six strings: ["…", "…"].',
    )
    if ... in order:
        raise Wrong("a stage at every place", describe(list(order)), "One place is still blank.")
    for stage in order:
        if stage not in STAGES:
            known = f"Write the names as they stand in the text: {NAMES}."
            raise Wrong("names of stages", describe(stage), known)
    missing = [stage for stage in STAGES if stage not in order]
    twice = [stage for stage in STAGES if list(order).count(stage) > 1]
    expect(
        not missing,
        expected=expected,
        came=f"{describe(list(order))}",
        likely=(
            f"{' and '.join(missing)} is missing."
            if len(missing) == 1
            else f"{', '.join(missing)} are missing."
        ),
    )
    expect(not twice, expected="each stage once", came=f"{', '.join(twice)} more than once")


def _add_pair(first: str, then: str) -> None:
    @ORDER.property(f"{first} comes before {then}")
    def _pair(order: list[str]) -> None:
        came = f"{then} at place {order.index(then) + 1}, {first} at {order.index(first) + 1}"
        holds = order.index(first) < order.index(then)
        expect(holds, expected=f"{first}, then {then}", came=came, likely=REASONS[then])


for _first, _then in itertools.pairwise(STAGES):
    _add_pair(_first, _then)
