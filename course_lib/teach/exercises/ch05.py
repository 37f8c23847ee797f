"""Exercises of chapter 05, the update: momentum, AdamW, the cosine schedule, clipping."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.teach.checking import Exercise, expect, expect_close
from course_lib.teach.checking.forbidden import CLIPPING, SCHEDULES
from course_lib.teach.exercises.ch05_steps import ADAMW_STEP, OURS, SGD_STEP, random_tensors

__all__ = ["ADAMW_STEP", "CLIP", "SCHEDULE", "SGD_STEP"]

Schedule = Callable[[int, int, float, int, float], float]
Clip = Callable[[list[Tensor], float], float]

SCHEDULE = Exercise(
    "05.3",
    "The cosine schedule",
    hints=(
        "Two branches: step < warmup_steps, and all the rest.",
        "q = (step - warmup_steps) / (total_steps - 1 - warmup_steps), at most 1.",
        "min_lr + (peak_lr - min_lr) * (1 + math.cos(math.pi * q)) / 2.",
    ),
    forbidden=(*SCHEDULES, f"{OURS}.schedule.cosine_schedule"),
)


def right_rates(total: int, peak: float, warmup: int, low: float) -> list[float]:
    """Return the rates of all steps, by cos^2 of half the angle; tests hold them to torch's."""
    rates = [peak * (step + 1) / (warmup + 1) for step in range(warmup)]
    down = max(1, total - 1 - warmup)
    shares = [math.cos(math.pi * index / down / 2) ** 2 for index in range(total - warmup)]
    return rates + [peak * share + low * (1 - share) for share in shares]


def _expect_rate(answer: Schedule, step: int, run: tuple, wanted: float) -> None:
    total, peak, warmup, low = run
    down = total - 1 - warmup
    q = (step - warmup) / down if down else 0.0
    cosine = (1 + math.cos(math.pi * q)) / 2
    mistakes = [
        (peak * step / (warmup + 1), "The first step would have the rate 0: use step + 1."),
        (peak * step / max(warmup, 1), "Warm up by (step + 1) / (warmup_steps + 1)."),
        (peak * (step + 1) / max(warmup, 1), "Divide by warmup_steps + 1: step W has the peak."),
        (low + (peak - low) * (1 + math.cos(math.pi * (step / max(total - 1, 1)))) / 2,
         "The cosine starts after the warm-up: count from step − warmup_steps."),
        (low + (peak - low) * (1 + math.cos(math.pi * (step - warmup) / max(down + 1, 1))) / 2,
         "The last step, total_steps − 1, has min_lr: divide by total_steps − 1 − warmup_steps."),
        (low + (peak - low) * (1 - q), "That falls in a straight line: use the cosine."),
        (low + (peak - low) * math.cos(math.pi * q / 2), "Use (1 + cos(π q)) / 2, half a wave."),
        (peak * cosine, "min_lr is missing: the cosine runs between min_lr and the peak."),
        (low + peak * cosine, "The cosine's height is peak_lr − min_lr."),
        (low + (peak - low) * (1 + math.cos(q)) / 2, "π is missing in the cosine."),
        (low + (peak - low) * (1 - cosine), "It rises: 1 + cos, not 1 − cos."),
    ]  # fmt: skip
    got = answer(step, *run)
    expect_close(got, wanted, what=f"the rate of step {step} of {total}", mistakes=[
        (value, text) for value, text in mistakes if abs(value - wanted) > 1e-9
    ])  # fmt: skip


RUNS = {
    "11 steps, no warm-up": (11, 0.4, 0, 0.0),
    "12 steps, 3 of warm-up": (12, 0.4, 3, 0.0),
    "10 steps, lowest rate 0.1": (10, 0.4, 2, 0.1),
}


@SCHEDULE.property("the warm-up rises in equal steps to the peak, and never starts at 0")
def _warms_up(answer: Schedule) -> None:
    for step, wanted in enumerate((0.1, 0.2, 0.3, 0.4)):
        _expect_rate(answer, step, (20, 0.4, 3, 0.05), wanted)


@SCHEDULE.property(
    "after the warm-up it is half a cosine, at every step",
    cases=RUNS,
    likely="Put q = 0, 1/2 and 1 into the formula: the peak, the middle, min_lr.",
)
def _half_a_cosine(answer: Schedule, run: tuple) -> None:
    for step, wanted in enumerate(right_rates(*run)):
        _expect_rate(answer, step, run, wanted)


@SCHEDULE.property(
    "beyond the last step it stays at min_lr", likely="q must not pass 1: `min(1.0, …)`."
)
def _stays_low(answer: Schedule) -> None:
    for step in (9, 10, 13, 100):
        expect_close(answer(step, 10, 0.4, 2, 0.1), 0.1, what=f"the rate of step {step} of 10")


@SCHEDULE.property(
    "a warm-up up to the last step ends at the peak",
    likely="total_steps - 1 - warmup_steps is 0 here: don't divide by it.",
)
def _only_warmup(answer: Schedule) -> None:
    for step, wanted in enumerate((0.1, 0.2, 0.3, 0.4)):
        expect_close(answer(step, 4, 0.4, 3, 0.0), wanted, what=f"the rate of step {step} of 4")
    expect_close(answer(6, 4, 0.4, 3, 0.0), 0.4, what="the rate of step 6 of 4")
    expect_close(answer(0, 1, 0.4, 0, 0.0), 0.4, what="the rate of the only step")


CLIP = Exercise(
    "05.4",
    "Clip by the global norm",
    hints=(
        "One norm for all tensors together: the root of the sum of all squares.",
        "Scale only if the norm is above max_norm: by max_norm / norm, every tensor alike.",
        "`grad *= factor` changes the tensor in place. Return the norm from before, a float.",
    ),
    forbidden=(*CLIPPING, f"{OURS}.clipping.clip_grad_norm"),
)


def _expect_clipped(answer: Clip, grads: list[Tensor], max_norm: float) -> None:
    given = [grad.clone() for grad in grads]
    norms = torch.stack([grad.norm() for grad in grads])
    norm = norms.square().sum().sqrt().item()
    came = answer(given, max_norm)
    after = torch.stack([grad.norm() for grad in given]).square().sum().sqrt().item()
    expect(
        isinstance(came, float) and not isinstance(came, bool),
        expected="a float, the norm before clipping",
        came=type(came).__name__ if came is not None else "nothing",
        likely="End with `return norm`; `.item()` makes a float of a tensor.",
    )
    expect_close(
        came,
        norm,
        what="the norm that is returned",
        tolerance=1e-5,
        mistakes=[
            (after, "Return the norm from before the clipping."),
            (norm**2, "That is the sum of squares: take its root."),
            (norms.sum().item(), "Norms don't add up: add the squares of all elements."),
            (norms.max().item(), "That is the largest norm of one tensor: join them all."),
            (norms[-1].item(), "That is the last tensor's norm: join them all."),
        ],
    )
    torchs = [torch.zeros_like(grad).requires_grad_() for grad in grads]
    for tensor, grad in zip(torchs, grads, strict=True):
        tensor.grad = grad.clone()
    torch.nn.utils.clip_grad_norm_(torchs, max_norm)
    for index, (got, tensor) in enumerate(zip(given, torchs, strict=True)):
        own, grad = grads[index].norm().item(), grads[index]
        assert tensor.grad is not None
        wanted = tensor.grad if norm > max_norm else grad
        expect_close(
            got,
            wanted,
            what=f"grads[{index}]",
            mistakes=[
                (grad, "The gradient did not change: scale it in place, with `*=` or `mul_`."),
                (grad.clamp(-max_norm, max_norm), "Clipping each element turns the direction: "
                 "scale all by one factor."),
                (grad * min(1.0, max_norm / own) if own else grad, "Each tensor was clipped by "
                 "itself, which turns the direction: one norm for all."),
                (grad * max_norm / norm if norm else grad, "A gradient below the limit was "
                 "scaled up: leave it as it is."),
                (grad / norm if norm else grad, "The gradient has the norm 1 now: "
                 "multiply by max_norm too."),
                (grad * norm / max_norm, "The factor is upside down: max_norm / norm."),
            ],
        )  # fmt: skip


@CLIP.property("[1, 2] and [2] have the norm 3 together; at 1.5 they become [0.5, 1] and [1]")
def _pythagoras(answer: Clip) -> None:
    _expect_clipped(answer, [torch.tensor([1.0, 2.0]), torch.tensor([2.0])], 1.5)


@CLIP.property(
    "it equals torch's clip_grad_norm_",
    cases={"far above": 0.5, "a bit above": 4.0, "below": 100.0},
    likely="One factor for every tensor: min(1, max_norm / norm).",
)
def _equals_torch_clip(answer: Clip, max_norm: float) -> None:
    _expect_clipped(answer, random_tensors([(3, 2), (5,), (1,), (2, 2, 2)], 3), max_norm)


@CLIP.property("at the limit and below it nothing changes, to the bit")
def _below(answer: Clip) -> None:
    for max_norm in (5.0, 5.5):
        grads = [torch.tensor([3.0]), torch.tensor([4.0])]
        answer(grads, max_norm)
        for index, value in enumerate((3.0, 4.0)):
            same = torch.equal(grads[index], torch.tensor([value]))
            expect(
                same,
                expected=f"grads[{index}] as it was, {value:g}",
                came=f"{grads[index].item():.6g}",
                likely="Scale only if norm > max_norm.",
            )


@CLIP.property("gradients that are all zero stay zero", likely="0 / 0 is nan: compare first.")
def _zeros(answer: Clip) -> None:
    grads = [torch.zeros(2), torch.zeros(3)]
    expect_close(answer(grads, 1.0), 0.0, what="the norm")
    expect_close(grads[0], torch.zeros(2), what="grads[0]")
