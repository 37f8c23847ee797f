"""Exercises 05.1 and 05.2: a step of SGD with momentum, and a step of AdamW."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.teach.checking import Exercise, Wrong, expect_close, expect_unchanged
from course_lib.teach.checking.forbidden import OPTIMIZERS

OURS = "course_lib.update"
SgdStep = Callable[[list[Tensor], list[Tensor], list[Tensor], float, float], None]
AdamwStep = Callable[..., None]


def random_tensors(shapes: Sequence[tuple[int, ...]], seed: int) -> list[Tensor]:
    """Return normal tensors of these shapes, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


SGD_STEP = Exercise(
    "05.1",
    "SGD with momentum",
    hints=(
        "Two lines for each parameter: first the buffer, then the parameter.",
        "`b *= momentum` then `b += g`: in place, so that the next step finds it.",
        "`p -= lr * b`, with the buffer's new value, not with the gradient.",
    ),
    forbidden=(
        *OPTIMIZERS,
        f"{OURS}.optimizers.SGD",
        f"{OURS}.optimizers.sgd_direction",
        f"{OURS}.flat.apply_direction",
    ),
)


def _sgd_mistakes(p: Tensor, g: Tensor, b: Tensor, lr: float, beta: float) -> list:
    """Return what mistaken rules make of one parameter, with p, b from before the step."""
    new = beta * b + g
    return [
        (p + lr * new, "You went uphill: subtract lr × b."),
        (p - lr * g, "You walked against the gradient alone: walk against the buffer b."),
        (p - lr * b, "You used b from before the step: update it first."),
        (p - new, "The learning rate is missing: the step is lr × b."),
        (p - beta * b - lr * g, "The learning rate has no place in the buffer: "
         "b = momentum × b + g."),
        (p - lr * (beta * b + (1 - beta) * g), "The gradient counts in full: b = momentum × b + g, "
         "without a factor 1 − momentum."),
        (p - lr * (g + beta * new), "That is Nesterov's variant: walk against b itself."),
        (p - lr * (b + g), "momentum is missing: multiply the old b by it."),
        (p - lr * (b + beta * g), "momentum multiplies the old b, not the gradient."),
        (p, "The parameter did not change: change it in place, with `-=` or `sub_`."),
    ]  # fmt: skip


def sgd_reference(p: Tensor, g: Tensor, b: Tensor, lr: float, momentum: float) -> None:
    """Take one step in place, in the words of Sutskever et al. 2013; tests hold it to torch's."""
    b.copy_(momentum * b + g)
    p.copy_(p - lr * b)


def _sgd_case(answer: SgdStep, shapes: Sequence[tuple[int, ...]], beta: float, steps: int) -> None:
    params = random_tensors(shapes, 1)
    right = [param.double() for param in params]
    buffers = [torch.zeros_like(param) for param in params]
    sums = [torch.zeros_like(param) for param in right]
    for step in range(steps):
        grads = random_tensors(shapes, 10 + step)
        lr = 0.1 / (step + 1)
        before = [param.clone() for param in params]
        old = [each.float() for each in sums]
        for p, g, b in zip(right, grads, sums, strict=True):
            sgd_reference(p, g.double(), b, lr, beta)
        answer(params, [grad.clone() for grad in grads], buffers, lr, beta)
        for i, param in enumerate(params):
            mistakes = _sgd_mistakes(before[i], grads[i], old[i], lr, beta)
            what = f"params[{i}] after step {step + 1}"
            expect_close(param, right[i].float(), what=what, mistakes=mistakes)
            kept = (
                "The buffer did not change: `b = …` makes a new tensor; change it in place, with "
                "`*=` and `+=`."
            )
            what = f"buffers[{i}] after step {step + 1}"
            expect_close(buffers[i], sums[i].float(), what=what, mistakes=[(old[i], kept)])


@SGD_STEP.property("0.80 with gradient 0.01, b = 0.06, momentum 0.5, rate 0.1 becomes 0.796")
def _one_number(answer: SgdStep) -> None:
    p, g, b = torch.tensor([0.80]), torch.tensor([0.01]), torch.tensor([0.06])
    mistakes = _sgd_mistakes(p.clone(), g.clone(), b.clone(), 0.1, 0.5)
    answer([p], [g], [b], 0.1, 0.5)
    expect_close(p, torch.tensor([0.796]), mistakes=mistakes)


@SGD_STEP.property(
    "it follows the rule step by step from buffers of zeros, with a rate that changes",
    cases={"one tensor": [(3,)], "three tensors": [(2, 3), (4,), (1, 1)]},
    likely="Every parameter has its own gradient and buffer; lr acts on this step only.",
)
def _follows_the_rule(answer: SgdStep, shapes: list[tuple[int, ...]]) -> None:
    _sgd_case(answer, shapes, 0.9, 4)


@SGD_STEP.property("it does so for other momenta too", cases={"0.5": 0.5, "0": 0.0})
def _other_momenta(answer: SgdStep, beta: float) -> None:
    _sgd_case(answer, [(2,), (3,)], beta, 3)


@SGD_STEP.property("the gradients stay as they are")
def _grads_stay(answer: SgdStep) -> None:
    grads = [torch.tensor([1.0, -2.0])]
    buffers = [torch.ones(2)]
    answer([torch.zeros(2)], grads, buffers, 0.5, 0.5)
    expect_unchanged(grads[0], torch.tensor([1.0, -2.0]), "grads[0]")


ADAMW_STEP = Exercise(
    "05.2",
    "A step of AdamW",
    hints=(
        "Order: shrink p, update m, update v, correct both, take the step.",
        "m_hat = m / (1 - beta1**step) is a new tensor; m itself keeps its value.",
        "p -= lr * m_hat / (v_hat.sqrt() + eps).",
    ),
    forbidden=(
        *OPTIMIZERS,
        "torch.optim.adamw.adamw",
        f"{OURS}.optimizers.AdamW",
        f"{OURS}.optimizers.Adam",
        f"{OURS}.optimizers.adam_direction",
        f"{OURS}.flat.apply_direction",
    ),
)
IS_L2 = "The decay went into the gradient, as L2 does: shrink p itself."
SETTINGS = {
    "the usual settings": (0.1, (0.9, 0.999), 1e-8, 0.1),
    "others": (0.05, (0.8, 0.95), 1e-3, 0.5),
    "no decay": (0.1, (0.9, 0.99), 1e-8, 0.0),
}


def _adam_candidates(p, g, m, v, t, lr, betas, eps, decay) -> list:  # type: ignore[no-untyped-def]
    """Return what mistaken rules make of p; m and v are those from before the step."""
    b1, b2 = betas

    def step(p=p, g=g, c1=1 - b1**t, c2=1 - b2**t, b1=b1, b2=b2):  # type: ignore[no-untyped-def]
        m_new, v_new = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        return p - lr * (m_new / c1) / ((v_new / c2).sqrt() + eps)

    small = p * (1 - lr * decay)
    m_new, v_new = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    m_hat, v_hat = m_new / (1 - b1**t), v_new / (1 - b2**t)
    plain = lr * m_hat / (v_hat.sqrt() + eps)
    return [
        (step(p=p), "The decay is missing: first p ← (1 − lr × weight_decay) p."),
        (step(p=p * (1 + lr * decay)), "The decay makes p larger: the factor is "
         "1 − lr × weight_decay."),
        (step(p=p * (1 - decay)), "The decay lacks the learning rate: the factor is "
         "1 − lr × weight_decay."),
        (step(p=small, c1=1.0, c2=1.0), "The bias correction is missing: divide m by 1 − beta1^t "
         "and v by 1 − beta2^t."),
        (step(p=small, c1=1.0), "m is not corrected: divide it by 1 − beta1^t."),
        (step(p=small, c2=1.0), "v is not corrected: divide it by 1 − beta2^t."),
        (step(p=small, c1=1 - b1 ** (t + 1), c2=1 - b2 ** (t + 1)), "step counts from 1 already: "
         "don't add 1."),
        (step(p=small, c1=1 - b1, c2=1 - b2), "The correction uses beta^t, t being the step: yours "
         "is that of the first step."),
        (step(p=small, c1=1 - b1 * t, c2=1 - b2 * t), "beta to the power of t, not times t."),
        (step(p=small, b1=b2, b2=b1, c1=1 - b2**t, c2=1 - b1**t), "The betas have changed places: "
         "beta1 belongs to m, beta2 to v."),
        (small + plain, "You went uphill: subtract the step."),
        (p - plain - lr * decay * (p - plain), "The decay comes first, and acts on the old p."),
        (small - m_hat / (v_hat.sqrt() + eps), "The learning rate is missing in the step."),
        (small - lr * m_hat / (v_hat + eps), "Take the root of v: v is a mean of squares."),
        (small - lr * m_hat / (v_hat + eps).sqrt(), "eps is added after the root, not under it."),
        (small - lr * g / (v_hat.sqrt() + eps), "Walk along m, the running mean, not along g."),
    ]  # fmt: skip


def adamw_reference(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    t: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> None:
    """Take one step in place: Loshchilov and Hutter 2019, algorithm 2; tests hold it to torch's."""
    p.copy_(p - lr * decay * p)
    m.copy_(betas[0] * m + (1 - betas[0]) * g)
    v.copy_(betas[1] * v + (1 - betas[1]) * g**2)
    p.copy_(p - lr * (m / (1 - betas[0] ** t)) / ((v / (1 - betas[1] ** t)) ** 0.5 + eps))


def _adamw_case(answer: AdamwStep, settings: tuple, steps: int = 4) -> None:
    lr, betas, eps, decay = settings
    p, m, v = torch.tensor([1.0, -2.0, 0.5]), torch.zeros(3), torch.zeros(3)
    right = [each.double() for each in (p, m, v)]
    for t in range(1, steps + 1):
        g = random_tensors([(3,)], t)[0] * torch.tensor([0.01, 1.0, 30.0])
        before = p.clone(), m.clone(), v.clone()
        adamw_reference(right[0], g.double(), right[1], right[2], t, lr, betas, eps, decay)
        answer(p, g.clone(), m, v, t, lr, betas, eps, decay)
        mistakes = _adam_candidates(before[0], g, *before[1:], t, lr, betas, eps, decay)
        mistakes.append((before[0], "p did not change: change it in place, with `-=` or `sub_`."))
        wanted, mean, square = (each.float() for each in right)
        l2 = (betas[0] * before[1] + (1 - betas[0]) * (g + decay * before[0]), IS_L2)
        _expect_running_mean(m, mean, before[1], g, betas[0], f"m after step {t}", l2)
        _expect_running_mean(v, square, before[2], g * g, betas[1], f"v after step {t}")
        expect_close(p, wanted, what=f"p after step {t}", tolerance=1e-5, mistakes=mistakes)


def _expect_running_mean(
    got: Tensor,
    wanted: Tensor,
    before: Tensor,
    new: Tensor,
    beta: float,
    what: str,
    *more: tuple[Tensor, str],
) -> None:
    name = what[0]
    mistakes = [
        *more,
        (before, f"{name} did not change: `{name} = …` makes a new tensor; change it in place."),
        (beta * before + new, f"The new value comes with the factor 1 − beta in {name}."),
        ((1 - beta) * before + beta * new, f"beta is the share of the old {name} that is kept."),
    ]
    if name == "v":
        grad = new.sqrt()
        mistakes.append((beta * before + (1 - beta) * grad, "v is a mean of g², so that it is "
                         "never negative."))  # fmt: skip
        if not bool((got >= 0).all()):
            raise Wrong("v of squares, never negative", "negative numbers", "v is a mean of g × g.")
    expect_close(
        got / (1 - beta),
        wanted / (1 - beta),
        what=f"{what}, divided by 1 − beta",
        tolerance=1e-4,
        mistakes=[(value / (1 - beta), text) for value, text in mistakes],
    )


@ADAMW_STEP.property(
    "the first step is lr, whatever the gradient's size",
    cases={"gradient 0.01": 0.01, "gradient -100": -100.0},
    likely="The bias correction makes m / sqrt(v) of the first step ±1.",
)
def _first_step(answer: AdamwStep, gradient: float) -> None:
    p, m, v = torch.tensor([0.8]), torch.zeros(1), torch.zeros(1)
    g = torch.tensor([gradient])
    answer(p, g.clone(), m, v, 1, 0.1, (0.9, 0.999), 1e-8, 0.0)
    mistakes = [
        (torch.tensor([0.8]), "p did not change: change it in place, with `-=` or `sub_`."),
        (0.8 + 0.1 * g.sign(), "You went uphill: subtract the step."),
        (0.8 - 0.1 * g, "That is SGD's step: divide by the root of v."),
    ]
    expect_close(p, 0.8 - 0.1 * g.sign(), tolerance=1e-4, mistakes=mistakes)


@ADAMW_STEP.property("p, m and v follow AdamW's rule, step by step", cases=SETTINGS)
def _follows_adamw(answer: AdamwStep, settings: tuple) -> None:
    _adamw_case(answer, settings)


@ADAMW_STEP.property("with a gradient of zero, only the decay acts")
def _only_decay(answer: AdamwStep) -> None:
    p, m, v = torch.tensor([1.0, -4.0]), torch.zeros(2), torch.zeros(2)
    answer(p, torch.zeros(2), m, v, 1, 0.1, (0.9, 0.999), 1e-8, 0.01)
    expect_close(
        p,
        torch.tensor([0.999, -3.996]),
        mistakes=[
            (torch.tensor([0.9, -3.9]), "The decay went through Adam, as L2 does: shrink p itself.")
        ],
    )


@ADAMW_STEP.property("the gradient stays as it is")
def _gradient_stays(answer: AdamwStep) -> None:
    g = torch.tensor([3.0, -2.0])
    p, m, v = torch.ones(2), torch.zeros(2), torch.zeros(2)
    answer(p, g, m, v, 1, 0.1, (0.9, 0.999), 1e-8, 0.1)
    expect_unchanged(g, torch.tensor([3.0, -2.0]), "g")
