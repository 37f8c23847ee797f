"""Exercise 03.3: the backward pass of softmax with cross-entropy, masked, as a mean."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.teach.checking import Exercise, expect_close, expect_unchanged
from course_lib.teach.checking.expect import Mistake
from course_lib.teach.checking.forbidden import AUTOGRAD, CROSS_ENTROPY

CrossEntropyBackward = Callable[[Tensor, Tensor, Tensor], Tensor]

CROSS_ENTROPY_BACKWARD = Exercise(
    "03.3",
    "Softmax + cross-entropy backward",
    hints=(
        "For one token it is p - y: the probabilities, less 1 at the right answer.",
        "The loss is a mean, so each token that counts has a share of 1 / (how many count).",
        "(p - y) * mask.unsqueeze(-1) / max(int(mask.sum()), 1), with y = F.one_hot(targets, V).",
    ),
    forbidden=(
        *AUTOGRAD,
        *CROSS_ENTROPY,
        "course_lib.loss.cross_entropy",
        "course_lib.backward.layers.cross_entropy_backward",
        "course_lib.backward.gradcheck.numerical_gradient",
    ),
)


def _ce_by_autograd(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    leaf = logits.detach().clone().requires_grad_()
    if not mask.any():
        return torch.zeros_like(logits)
    loss = F.cross_entropy(leaf[mask], targets[mask])
    return torch.autograd.grad(loss, leaf)[0]


def _ce_mistakes(logits: Tensor, targets: Tensor, mask: Tensor) -> list[Mistake]:
    p = logits.softmax(dim=-1)
    error = p - F.one_hot(targets, logits.shape[-1])
    counts, all_tokens = max(int(mask.sum()), 1), max(mask.numel(), 1)
    kept = error * mask.unsqueeze(-1)
    return [
        (-kept / counts, "The sign is turned: it is p - y, what was believed less what is true."),
        (kept, "The loss is a mean: divide by the number of tokens that count."),
        (error / all_tokens, "Tokens that don't count have a gradient here: the mask is missing."),
        (error / counts, "Tokens that don't count have a gradient here: set theirs to 0."),
        (
            kept / all_tokens,
            "You divided by the number of all tokens: the mean is over those that count.",
        ),
        (kept / kept.numel(), "You divided by the number of logits: the mean is over tokens."),
        (p * mask.unsqueeze(-1) / counts, "y is missing: take 1 off at the right answer."),
        (
            error * ~mask.unsqueeze(-1) / counts,
            "True in the mask means that a token counts: yours has them swapped.",
        ),
        (
            (logits - F.one_hot(targets, logits.shape[-1])) * mask.unsqueeze(-1) / counts,
            "Those are the logits: p is their softmax.",
        ),
        (
            (logits.softmax(0) - F.one_hot(targets, logits.shape[-1]))
            * mask.unsqueeze(-1)
            / counts,
            "Your softmax runs over the tokens: it must run over the answers, the last dimension.",
        ),
        (
            kept / counts / len(logits) if logits.dim() > 1 else kept,
            "You divided twice: once, by the number of tokens that count, is enough.",
        ),
    ]


def _check_ce(answer: CrossEntropyBackward, logits: Tensor, targets: Tensor, mask: Tensor) -> None:
    expected, mistakes = _ce_by_autograd(logits, targets, mask), _ce_mistakes(logits, targets, mask)
    got = answer(logits.clone(), targets.clone(), mask.clone())
    expect_close(got, expected, mistakes=mistakes)


def _ce_case(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits over seven answers, targets, and a mask that keeps some tokens."""
    torch.manual_seed(5)
    targets = torch.randint(7, shape)
    mask = (torch.arange(targets.numel()) % 3 != 1).reshape(shape)
    return torch.randn(*shape, 7, dtype=dtype), targets, mask


@CROSS_ENTROPY_BACKWARD.property("for one token it is p - y")
def _ce_one(answer: CrossEntropyBackward) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.2, -1.0]], dtype=torch.float64)
    _check_ce(answer, logits, torch.tensor([1]), torch.tensor([True]))


@CROSS_ENTROPY_BACKWARD.property(
    "it equals autograd's gradient of the masked mean",
    cases={"[5, V]": (5,), "[2, 5, V]": (2, 5), "[3, 2, 4, V]": (3, 2, 4)},
    likely="Each token's gradient is p - y of its own logits; the mask says which tokens count.",
)
def _ce_masked(answer: CrossEntropyBackward, shape: tuple[int, ...]) -> None:
    _check_ce(answer, *_ce_case(shape, torch.float64))


@CROSS_ENTROPY_BACKWARD.property("float32 stays float32")
def _ce_float32(answer: CrossEntropyBackward) -> None:
    _check_ce(answer, *_ce_case((4, 3), torch.float32))


@CROSS_ENTROPY_BACKWARD.property(
    "a logit of 1000 gives no nan",
    likely="exp(1000) overflows. Take the largest logit off first, as torch.softmax does.",
)
def _ce_large(answer: CrossEntropyBackward) -> None:
    logits = torch.tensor([[1000.0, 0.0, 998.0], [0.0, 2.0, -1000.0]])
    _check_ce(answer, logits, torch.tensor([1, 0]), torch.tensor([True, True]))


@CROSS_ENTROPY_BACKWARD.property(
    "if no token counts, everything is 0",
    likely="A division by 0 gives nan: divide by 1 where nothing counts.",
)
def _ce_nothing(answer: CrossEntropyBackward) -> None:
    logits, targets, mask = _ce_case((2, 3), torch.float64)
    _check_ce(answer, logits, targets, torch.zeros_like(mask))


@CROSS_ENTROPY_BACKWARD.property("the tensors you are given stay as they are")
def _ce_unchanged(answer: CrossEntropyBackward) -> None:
    case = _ce_case((2, 5), torch.float64)
    given = [tensor.clone() for tensor in case]
    answer(*given)
    for name, now, before in zip(("logits", "targets", "mask"), given, case, strict=True):
        expect_unchanged(now, before, name)
