"""Exercises of chapter 03, the backward pass: linear and GELU here, the loss in ch03_loss.

Every answer is compared with autograd, linear also with a nudge. The gradient of (y * d_y).sum() is
asked for rather than that of y for d_y: the latter imports sympy, a second of a check's time.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.teach.checking import Exercise, Wrong, describe, expect_close, expect_unchanged
from course_lib.teach.checking.expect import Mistake
from course_lib.teach.checking.forbidden import AUTOGRAD, GELU
from course_lib.teach.exercises.ch03_loss import CROSS_ENTROPY_BACKWARD

__all__ = ["CROSS_ENTROPY_BACKWARD", "GELU_BACKWARD", "LINEAR"]

LinearBackward = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
GeluBackward = Callable[[Tensor, Tensor], Tensor]

LINEAR = Exercise(
    "03.1",
    "Linear backward",
    hints=(
        "Each gradient has the shape of its tensor. Which product of d_y [..., O] and weight "
        "[O, I] has the shape [..., I]?",
        "weight and bias served every row, so their gradients are sums over all rows. Make rows "
        "first: x.reshape(-1, I) and d_y.reshape(-1, O).",
        "d_x = d_y @ weight; d_weight = d_y_rows.T @ x_rows; d_bias = d_y_rows.sum(dim=0).",
    ),
    forbidden=(
        *AUTOGRAD,
        "aten.linear_backward",
        "course_lib.backward.layers.linear_backward",
        "course_lib.backward.gradcheck.numerical_gradient",
    ),
)


def _linear_case(leading: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, weight and d_y with three inputs and four outputs."""
    torch.manual_seed(3)
    x = torch.randn(*leading, 3, dtype=dtype)
    return x, torch.randn(4, 3, dtype=dtype), torch.randn(*leading, 4, dtype=dtype)


def _linear_by_autograd(x: Tensor, weight: Tensor, d_y: Tensor) -> tuple[Tensor, ...]:
    bias = torch.zeros(len(weight), dtype=x.dtype)
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (x, weight, bias)]
    return torch.autograd.grad((F.linear(*leaves) * d_y).sum(), leaves)


def _linear_mistakes(x: Tensor, weight: Tensor, d_y: Tensor) -> list[list[Mistake]]:
    rows, d_rows = x.reshape(-1, x.shape[-1]), d_y.reshape(-1, d_y.shape[-1])
    count = len(rows)
    d_weight = d_rows.T @ rows
    of_x = [
        (x @ weight.T, "That is the forward pass: the gradient by x starts from d_y."),
        (-(d_y @ weight), "The sign of d_x is turned: y grows with x times weight."),
        (d_y @ weight / count, "d_x is not divided by anything: each row has its own."),
    ]
    of_weight = [
        (
            d_weight / count,
            "d_weight is averaged over the rows. d_y holds the loss's mean already: add up.",
        ),
        (d_weight.T, "d_weight is transposed: row o, column i, as in weight."),
        (d_rows[-1:].T @ rows[-1:], "Only the last row has a part in d_weight: add up all rows."),
        (d_rows[:1].T @ rows[:1], "Only the first row has a part in d_weight: add up all rows."),
    ]
    of_bias = [
        (
            d_rows.mean(dim=0),
            "d_bias is the mean over the rows. The bias served each row in full: add up.",
        ),
        (d_y, "d_bias has a row for each row of x: the bias was broadcast, so sum over the rows."),
        (
            d_y.sum(dim=0),
            "d_bias is summed over the first dimension only: sum over all leading dimensions.",
        ),
        (torch.ones_like(d_rows[0]), "d_bias is the sum of d_y, not of ones."),
    ]
    return [of_x, of_weight, of_bias]


def _three(got: object) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(got, tuple | list) or len(got) != 3:
        likely = "End with `return d_x, d_weight, d_bias`."
        raise Wrong("three tensors: d_x, d_weight, d_bias", describe(got), likely)
    return tuple(got)


def _check_linear(answer: LinearBackward, case: tuple[Tensor, Tensor, Tensor]) -> None:
    expected, mistakes = _linear_by_autograd(*case), _linear_mistakes(*case)
    got = _three(answer(*(tensor.clone() for tensor in case)))
    names = ("d_x", "d_weight", "d_bias")
    for name, value, wanted, known in zip(names, got, expected, mistakes, strict=True):
        others = [(e, n) for e, n in zip(expected, names, strict=True) if n != name]
        swapped = [(e, f"{n} stands in {name}'s place: swap the two.") for e, n in others]
        expect_close(value, wanted, what=name, mistakes=[*known, *swapped])


@LINEAR.property(
    "it equals autograd for some rows",
    likely="Write the shapes beside each tensor: they allow only one product.",
)
def _linear_rows(answer: LinearBackward) -> None:
    _check_linear(answer, _linear_case((5,), torch.float64))


@LINEAR.property(
    "it works with any leading dimensions",
    cases={"none": (), "one row": (1,), "B, T": (2, 5), "three": (2, 1, 5)},
    likely="Make one list of rows of all leading dimensions: reshape(-1, size of the last).",
)
def _linear_leading(answer: LinearBackward, leading: tuple[int, ...]) -> None:
    _check_linear(answer, _linear_case(leading, torch.float64))


@LINEAR.property("the gradients keep the dtype float32")
def _linear_float32(answer: LinearBackward) -> None:
    _check_linear(answer, _linear_case((3, 2), torch.float32))


@LINEAR.property("it agrees with a nudge of the weight")
def _linear_nudge(answer: LinearBackward) -> None:
    x, weight, d_y = _linear_case((2, 3), torch.float64)
    d_weight = _three(answer(x.clone(), weight.clone(), d_y.clone()))[1]
    nudge = torch.zeros_like(weight)
    nudge[2, 1] = 1e-5
    above, below = ((d_y * (x @ (weight + sign * nudge).T)).sum() for sign in (1, -1))
    expect_close(d_weight[2, 1].item(), (above - below).item() / 2e-5, what="d_weight[2, 1]")


@LINEAR.property("the tensors you are given stay as they are")
def _linear_unchanged(answer: LinearBackward) -> None:
    case = _linear_case((2, 3), torch.float64)
    given = [tensor.clone() for tensor in case]
    answer(*given)
    for name, now, before in zip(("x", "weight", "d_y"), given, case, strict=True):
        expect_unchanged(now, before, name)


GELU_BACKWARD = Exercise(
    "03.2",
    "GELU backward",
    hints=(
        "y = x P(x) is a product, and both factors change with x. What is the slope of u v?",
        "u = x has the slope 1; v = P(x) has the slope of the bell curve, exp(-x²/2) / sqrt(2 pi).",
        "d_x = d_y * (P + x * bell), with P = 0.5 * (1 + torch.erf(x / math.sqrt(2))).",
    ),
    forbidden=(
        *AUTOGRAD,
        *GELU,
        "aten.gelu_backward",
        "course_lib.forward.layers.gelu",
        "course_lib.backward.layers.gelu_backward",
        "course_lib.backward.gradcheck.numerical_gradient",
    ),
)


def _gelu_by_autograd(x: Tensor, d_y: Tensor) -> Tensor:
    leaf = x.detach().clone().requires_grad_()
    return torch.autograd.grad((F.gelu(leaf) * d_y).sum(), leaf)[0]


def _gelu_mistakes(x: Tensor, d_y: Tensor) -> list[Mistake]:
    probability = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    bell = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    slope = probability + x * bell
    leaf = x.detach().clone().requires_grad_()
    coarse = F.gelu(leaf, approximate="tanh")
    by_tanh = torch.autograd.grad((coarse * d_y).sum(), leaf)[0]
    return [
        (d_y * probability, "The second half of the product rule is missing: x times P's slope."),
        (d_y * x * bell, "The first half of the product rule is missing: 1 times P."),
        (d_y * (probability + bell), "P's slope is multiplied with the other factor, x."),
        (slope, "That is the slope alone: multiply it with what comes back, d_y."),
        (x * probability, "That is GELU itself, the forward pass."),
        (d_y * x * probability, "That is d_y times GELU: you need d_y times GELU's slope."),
        (
            d_y * (probability + x * torch.exp(-0.5 * x * x)),
            "The bell curve is divided by sqrt(2 pi), so that the whole area below it is 1.",
        ),
        (
            d_y * (probability + x * torch.exp(-x * x) / math.sqrt(math.pi)),
            "The bell curve of a standard normal is exp(-x²/2) / sqrt(2 pi).",
        ),
        (
            d_y * (probability - x * bell),
            "The sign is turned: the two halves of the product rule are added.",
        ),
        (by_tanh, "That is the slope of the tanh approximation: this GELU is the exact one."),
        (d_y * (x > 0), "That is ReLU's slope."),
    ]


def _check_gelu(answer: GeluBackward, x: Tensor, d_y: Tensor) -> None:
    expected, mistakes = _gelu_by_autograd(x, d_y), _gelu_mistakes(x, d_y)
    expect_close(answer(x.clone(), d_y.clone()), expected, mistakes=mistakes)


@GELU_BACKWARD.property(
    "the slope at -1, 0 and 2 is right", likely="At x = 0, P is 1/2 and x times the bell is 0."
)
def _gelu_points(answer: GeluBackward) -> None:
    x = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    _check_gelu(answer, x, torch.tensor([1.0, 1.0, 3.0], dtype=torch.float64))


@GELU_BACKWARD.property(
    "it equals autograd on tensors of any shape",
    cases={"float64 [5]": torch.float64, "float32 [2, 5]": torch.float32},
    likely="Element i of d_x depends on element i of x and of d_y, and on no other.",
)
def _gelu_any(answer: GeluBackward, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    shape = (5,) if dtype == torch.float64 else (2, 5)
    _check_gelu(answer, 2 * torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype))


@GELU_BACKWARD.property(
    "far from 0 the slope is 1 or 0, never nan",
    likely="Far to the right GELU is x itself, far to the left it is 0.",
)
def _gelu_far(answer: GeluBackward) -> None:
    x = torch.tensor([-40.0, 40.0, 300.0])
    expect_close(answer(x, torch.tensor([2.0, 3.0, -4.0])), torch.tensor([0.0, 3.0, -4.0]))


@GELU_BACKWARD.property("`x` and `d_y` stay as they are")
def _gelu_unchanged(answer: GeluBackward) -> None:
    x, d_y = torch.tensor([0.5, -1.0]), torch.tensor([2.0, 3.0])
    before = x.clone(), d_y.clone()
    answer(x, d_y)
    expect_unchanged(x, before[0], "x")
    expect_unchanged(d_y, before[1], "d_y")
