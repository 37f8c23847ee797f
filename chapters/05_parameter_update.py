# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] id="05-title" slideshow={"slide_type": "slide"}
# # 05 · Parameter update
#
# **Every parameter has its gradient. How far should each one move?**
#
# *About 60 minutes · chapters 03 and 04 before · no GPU needed*
#
# data → forward → loss → backward → sync → **update**

# %% [markdown] id="05-title-notes" slideshow={"slide_type": "notes"}
# (1 min) The gradient gives a direction for one small step. It does not say how small. All of
# this chapter is about that one question, and about what the answer costs in memory.

# %% [markdown] id="05-goals" slideshow={"slide_type": "slide"}
# ## What you will be able to do
#
# 1. Compute a step of SGD, and say at which rate it diverges.
# 2. Build momentum, Adam and AdamW, each equal to `torch.optim` after 100 steps.
# 3. Say why the rate × gradient is the step of SGD only, and what Adam's step is.
# 4. Explain weight decay (权重衰减), warm-up, cosine and clipping (梯度裁剪) by what goes wrong
#    without them.
# 5. Count the bytes that each optimizer keeps, and say what an update waits for.

# %% [markdown] id="05-goals-notes" slideshow={"slide_type": "notes"}
# (1 min) Parameter update is 参数更新, the learning rate is 学习率, the optimizer 优化器.

# %% [markdown] id="05-recap" slideshow={"slide_type": "skip"}
# ## Recap
#
# - The loss is one number; the backward pass finds its slope for every parameter.
# - A slope is true only nearby: so steps are small.
# - The gradient points uphill, and we walk against it.
# - By hand or by autograd, the gradient is the same. This cell says so for a whole model:

# %% id="05-setup" slideshow={"slide_type": "skip"}
import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.backward.model import gradients_by_hand
from course_lib.config import preset
from course_lib.cost.measure import median_time_s, memory_bytes_per_s
from course_lib.loss import cross_entropy
from course_lib.teach.exercises import check
from course_lib.teach.figures.bounds import times_against_bounds
from course_lib.teach.figures.series import over_steps
from course_lib.teach.figures.surfaces import paths_on_surface
from course_lib.teach.widgets.descent import descent_explorer
from course_lib.train.fit import start_run
from course_lib.update.clipping import clip_grad_norm
from course_lib.update.optimizers import SGD, Adam, AdamW
from course_lib.update.paths import valley
from course_lib.update.schedule import cosine_schedule

run = start_run(preset("addition", batch_size=8, dtype="float64"))
model, batch = run.model, run.data.batch(step=0, batch_size=8)
cross_entropy(model(batch.inputs), batch.targets, batch.mask).backward()
by_hand = gradients_by_hand(model, batch)
for name, parameter in model.named_parameters():
    torch.testing.assert_close(by_hand[name], parameter.grad, rtol=1e-8, atol=1e-12)

# %% [markdown] id="05-sgd-text" slideshow={"slide_type": "slide"}
# ## 1 · The plainest step: SGD
#
# $$\text{new} = \text{old} - \text{learning rate} \times \text{gradient}$$
#
# In Chinese: 旧参数 − 学习率 × 梯度 = 新参数. This is **stochastic gradient descent**
# (随机梯度下降), SGD: "stochastic" since the gradient is that of a random batch.
#
# **Predict.** A parameter is 0.80, its gradient 0.01. People say "so we reduce it by 0.01".
# With the rate 0.1, by how much is it reduced?

# %% id="05-sgd-number" slideshow={"slide_type": "fragment"}
parameter = torch.tensor([0.80], dtype=torch.float64, requires_grad=True)
parameter.grad = torch.tensor([0.01], dtype=torch.float64)
torch.optim.SGD([parameter], lr=0.1).step()
assert math.isclose(parameter.item(), 0.80 - 0.1 * 0.01)
print(f"0.80 - 0.1 x 0.01 = {parameter.item():.3f}")

# %% [markdown] id="05-sgd-answer" slideshow={"slide_type": "skip"}
# **Answer.** By 0.001, not by 0.01: the step is the rate **times** the gradient. The everyday
# wording is loose. And even this holds for SGD only: later in this chapter Adam moves the same
# parameter by 0.1.

# %% [markdown] id="05-sgd-notes" slideshow={"slide_type": "notes"}
# (2 min) Ask for a show of hands: 0.01, 0.001 or 0.1? All three appear in this chapter.

# %% [markdown] id="05-valley-text" slideshow={"slide_type": "subslide"}
# ### A landscape with two parameters
#
# A hundred thousand parameters can't be drawn, two can. This loss is a long valley:
#
# $$L(x, y) = \tfrac12 x^2 + \tfrac12 \cdot 100\, y^2 \qquad \text{gradient} = (x,\; 100\, y)$$
#
# The **curvature** says how fast the slope changes: 1 along the valley, 100 across it. The
# losses of real models look like this too: steep in a few directions, flat in most.


# %% id="05-descend" tags=["mirrors:course_lib.update.paths.descend"] slideshow={"slide_type": "skip"}
from collections.abc import Sequence

from course_lib.update.paths import MakeOptimizer, Surface


def descend(
    loss: Surface,
    start: Sequence[float],
    make_optimizer: MakeOptimizer,
    steps: int = 80,
) -> Float[Tensor, "steps+1 2"]:
    """Return the points that an optimizer visits, the start first."""
    point = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = make_optimizer([point])
    path = [point.detach().clone()]
    for _ in range(steps):
        optimizer.zero_grad()
        loss(point).backward()
        optimizer.step()
        path.append(point.detach().clone())
    return torch.stack(path)


# %% [markdown] id="05-rate-text" slideshow={"slide_type": "subslide"}
# ### How large may the rate be?
#
# Along one direction of curvature $c$ a step of SGD gives
#
# $$x_{new} = x - \text{rate} \cdot c\, x = (1 - \text{rate} \cdot c)\, x$$
#
# Each step multiplies by the same factor. The path shrinks as long as the factor lies between
# −1 and 1.
#
# **Predict.** Curvature 100 across the valley. Above which rate does the path leave the valley?
# And with 0.018: what is left of the way *along* it after 80 steps?

# %% id="05-rate" slideshow={"slide_type": "subslide"}
start = (-4.0, 0.5)
slow = descend(valley, start, lambda params: SGD(params, lr=0.018))
wild = descend(valley, start, lambda params: SGD(params, lr=0.021))

steps = torch.arange(81, dtype=torch.float64)
assert torch.allclose(
    slow[:, 0], -4.0 * (1 - 0.018) ** steps
)  # along: the factor 0.982
assert torch.allclose(slow[:, 1], 0.5 * (1 - 1.8) ** steps)  # across: the factor -0.8
assert wild[-1, 1].abs() > 1000 * wild[0, 1].abs()  # across: the factor -1.1
print(f"rate 0.018: {(1 - 0.018) ** 80:.0%} of the way along is still to go")

# %% id="05-rate-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
_ = paths_on_surface(
    valley, {"rate 0.018": slow, "rate 0.021": wild[:12]},
    title="Just below 2 ÷ curvature: slow. Just above: gone",
)  # fmt: skip

# %% [markdown] id="05-rate-answer" slideshow={"slide_type": "skip"}
# **Answer.** The border is 2 ÷ 100 = 0.02: above it the factor across is below −1, and every
# step lands higher up the other wall. This is what **divergence** (发散) is, the deliberate
# failure of this chapter. Below the border the steepest direction sets the rate for all, and in
# the flat direction SGD crawls: 23 % of the way is left after 80 steps.

# %% [markdown] id="05-rate-notes" slideshow={"slide_type": "notes"}
# (4 min) The orange path leaves the picture within a few steps. In a real training this is the
# moment when the loss turns to NaN. The cure is nearly always the rate.

# %% [markdown] id="05-momentum-text" slideshow={"slide_type": "slide"}
# ### Momentum (动量)
#
# Across the valley the gradient changes its sign at every step; along it, it always points the
# same way. So **add up** the gradients: what flips cancels, what stays grows.
#
# $$b \leftarrow \beta\, b + g \qquad p \leftarrow p - \text{rate} \cdot b$$
#
# $b$ starts at zero. With $\beta = 0.9$ old gradients fade by a tenth a step.
#
# Where the gradient stays the same, $b$ grows to $g / (1 - \beta)$, ten times $g$.
#
# **Predict.** With the same rate and number of steps: how much lower will the loss be?

# %% [markdown] id="05-ex1-text" slideshow={"slide_type": "skip"}
# ### Exercise 05.1 · SGD with momentum
#
# Write `my_sgd_step(params, grads, buffers, lr, momentum)`, one step for a list of tensors.
#
# - `params`, `grads` and `buffers` are lists of tensors, in the same order, of the same shapes.
#   A buffer is the $b$ of its parameter, zeros before the first step.
# - For each of them: $b \leftarrow \text{momentum} \cdot b + g$, then
#   $p \leftarrow p - \text{lr} \cdot b$.
# - Change the tensors in `params` and `buffers` **in place** (`*=`, `+=`, `mul_`, `add_` …):
#   the model and the next step hold the same tensors. `grads` stay as they are.
# - Return nothing. `lr` may be another number at every step; it has no place inside $b$.
#
# The tensors are plain here. With a model's own parameters the steps would stand under
# `torch.no_grad()`, so that autograd does not record them.
#
# <details><summary>Hint</summary>
#
# `b = momentum * b + g` makes a *new* tensor, and the old buffer keeps its old value. In place
# it is two statements: multiply, then add. `zip(params, grads, buffers)` walks all three lists.
#
# </details>


# %% id="05-ex1" exercise="05.1" slideshow={"slide_type": "skip"}
def my_sgd_step(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor],
    lr: float,
    momentum: float,
) -> None:
    """Change params and buffers in place by one step of SGD with momentum."""
    ### BEGIN SOLUTION
    for p, g, b in zip(params, grads, buffers, strict=True):
        b *= momentum
        b += g
        p -= lr * b
    ### STUB: ...
    ### END SOLUTION


# %% id="05-ex1-check" slideshow={"slide_type": "skip"}
check("05.1", my_sgd_step)

# %% id="05-momentum" slideshow={"slide_type": "subslide"}
fast = descend(valley, start, lambda params: SGD(params, lr=0.018, momentum=0.9))
torchs = descend(
    valley, start, lambda params: torch.optim.SGD(params, lr=0.018, momentum=0.9)
)
assert (fast - torchs).abs().max() < 1e-12
assert valley(fast[-1]) < valley(slow[-1]) / 50  # the same rate, the same 80 steps
print("equal to torch.optim.SGD at every step; a loss over 50 times lower than without")

# %% id="05-momentum-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
_ = paths_on_surface(
    valley, {"no momentum": slow, "momentum 0.9": fast},
    title="With momentum, the same rate goes much further along the valley",
)  # fmt: skip

# %% [markdown] id="05-momentum-notes" slideshow={"slide_type": "notes"}
# (4 min) Point at the start: the orange path swings over the floor, as a heavy ball does. The
# price is one more number for each parameter, the buffer.

# %% [markdown] id="05-adam-text" slideshow={"slide_type": "slide"}
# ## 2 · Adam: a step with a size of its own
#
# SGD has one rate for all parameters, though some have gradients a thousand times larger than
# others. **Adam** divides each gradient by its own usual size. It keeps two running means:
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1)\, g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2$$
#
# and walks against $m / \sqrt v$. $\sqrt v$ is the usual size of $g$, so the quotient lies near ±1.
#
# **Predict.** The rate is 0.1. How far do parameters with the gradients 0.01, 1 and −100 move in
# the first step?

# %% id="05-adam-step" slideshow={"slide_type": "subslide"}
for gradient in (0.01, 1.0, -100.0):
    p = torch.tensor([0.80], dtype=torch.float64, requires_grad=True)
    p.grad = torch.tensor([gradient], dtype=torch.float64)
    torch.optim.Adam([p], lr=0.1).step()
    moved = p.item() - 0.80
    assert math.isclose(abs(moved), 0.1, rel_tol=1e-5)
    print(f"gradient {gradient:7.2f}: moved by {moved:+.3f}")

# %% [markdown] id="05-adam-answer" slideshow={"slide_type": "fragment"}
# **Answer.** All by 0.1, the rate itself. With Adam the *sign* of a first gradient decides, not
# its size: the same 0.80 with the gradient 0.01 moves a hundred times further than under SGD.

# %% [markdown] id="05-adam-notes" slideshow={"slide_type": "notes"}
# (3 min) So a rate of 0.1, fine for SGD, is enormous for Adam: every parameter of the model would
# move by 0.1 at each step. Typical rates for Adam are 1e-4 to 3e-3.

# %% [markdown] id="05-bias-text" slideshow={"slide_type": "subslide"}
# ### Bias correction (偏差修正)
#
# $m$ and $v$ start at zero, so at first both are too small. After $t$ equal gradients,
# $m = (1 - \beta_1^t)\, g$ and $v = (1 - \beta_2^t)\, g^2$. Adam divides by just these factors:
#
# $$\hat m = m / (1 - \beta_1^t) \qquad \hat v = v / (1 - \beta_2^t) \qquad
# p \leftarrow p - \text{rate} \cdot \hat m / (\sqrt{\hat v} + \epsilon)$$
#
# **Predict.** $\beta_1 = 0.9$, $\beta_2 = 0.999$. Without the correction, would the first step be
# too small or too large?

# %% id="05-bias" slideshow={"slide_type": "subslide"}
g, beta1, beta2 = 0.01, 0.9, 0.999
m, v = (1 - beta1) * g, (1 - beta2) * g**2  # after the first step, from zero
uncorrected = m / math.sqrt(v)
corrected = (m / (1 - beta1)) / math.sqrt(v / (1 - beta2))
assert math.isclose(corrected, 1.0)
assert math.isclose(uncorrected, 0.1 / math.sqrt(0.001))
print(f"corrected: {corrected:.2f} x rate; uncorrected: {uncorrected:.2f} x rate")

# %% [markdown] id="05-bias-answer" slideshow={"slide_type": "skip"}
# **Answer.** Too large, 3.16 times: $m$ is a tenth of what it should be, but $\sqrt v$ only a
# thirty-second part. $\epsilon$, 1e-8, only keeps the division finite where a gradient is zero.
#
# Here is Adam's direction as the package has it. It works on one long vector, and writes over
# memory that it no longer needs: `lerp_` moves `m` a share of the way towards `g`, and `out=`
# names the tensor that takes the result.


# %% id="05-adam-direction" tags=["mirrors:course_lib.update.optimizers.adam_direction"] slideshow={"slide_type": "skip"}
def adam_direction(
    grad: Float[Tensor, "N"],
    exp_avg: Float[Tensor, "N"],
    exp_avg_sq: Float[Tensor, "N"],
    step: int,
    betas: tuple[float, float],
    eps: float,
) -> Float[Tensor, "N"]:
    """Return Adam's direction; exp_avg is m, exp_avg_sq is v, both changed in place."""
    beta1, beta2 = betas
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    # m and v start at zero, so they are too small at first: undo just that.
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    denominator = (
        torch.sqrt(exp_avg_sq, out=grad).div_(math.sqrt(correction2)).add_(eps)
    )
    return torch.div(exp_avg, denominator, out=grad).div_(correction1)


# %% id="05-adam-check" slideshow={"slide_type": "skip"}
torch.manual_seed(0)
gradients = torch.randn(100, 50, dtype=torch.float64)
theirs = torch.zeros(50, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.Adam([theirs], lr=0.01)
ours, m, v = (torch.zeros(50, dtype=torch.float64) for _ in range(3))
for t, gradient in enumerate(gradients, start=1):  # t counts from 1
    theirs.grad = gradient.clone()
    optimizer.step()
    ours -= 0.01 * adam_direction(gradient.clone(), m, v, t, (0.9, 0.999), 1e-8)
assert (ours - theirs).abs().max() < 1e-12
print("100 steps, 50 parameters: equal to torch.optim.Adam")

# %% id="05-widget" slideshow={"slide_type": "subslide"} tags=["hide-input"]
descent_explorer(valley, start, optimizer="Adam", rate=0.1, momentum=0.9)

# %% [markdown] id="05-widget-text" slideshow={"slide_type": "skip"}
# Try it: SGD with 0.0199 and with 0.021. Then momentum 0.9 with 0.021: why does it not diverge
# now? (Momentum moves the border, to $2 (1 + \beta)$ ÷ curvature.) Then Adam with any rate: the
# valley is no longer steep or flat to it, and a large rate makes it circle, not explode.

# %% [markdown] id="05-widget-notes" slideshow={"slide_type": "notes"}
# (5 min) Let the room choose. On a printed page you see the first position only. Adam with rate
# 1 runs past the floor many times and comes back: its steps can't grow with the gradient.

# %% [markdown] id="05-decay-text" slideshow={"slide_type": "slide"}
# ## 3 · AdamW: weight decay (权重衰减)
#
# Large weights make a model that is too sure of too little. So let every weight shrink a bit at
# each step. There are two ways to write that:
#
# - **L2**: add $\lambda\, p$ to the gradient, and let the optimizer go on from there.
# - **decoupled**: shrink the parameter itself, $p \leftarrow (1 - \text{rate} \cdot \lambda)\, p$.
#
# **Predict.** The gradient is zero, $p = 1$, $\lambda = 0.01$, the rate is 0.1. How much does $p$
# shrink in one step: under SGD with L2, under Adam with L2, and decoupled?

# %% id="05-decay" slideshow={"slide_type": "subslide"} tags=["hide-input"]
makers = {
    "SGD with L2 ": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "Adam with L2": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.01),
    "AdamW       ": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01),
}
after = {}
for name, make in makers.items():
    p = torch.ones(1, dtype=torch.float64, requires_grad=True)
    p.grad = torch.zeros_like(p)
    make([p]).step()
    after[name] = p.item()
    print(f"{name}: 1 becomes {after[name]:.3f}")
assert [round(value, 4) for value in after.values()] == [0.999, 0.9, 0.999]

# %% [markdown] id="05-decay-answer" slideshow={"slide_type": "fragment"}
# **Answer.** 0.001, 0.1, 0.001. Adam divides whatever it is given by its usual size, and so the
# decay too: with L2, $\lambda$ hardly matters. **AdamW** keeps the decay out of $m$ and $v$.

# %% [markdown] id="05-decay-notes" slideshow={"slide_type": "notes"}
# (3 min) For plain SGD the two are the same: rate × (g + λp). For Adam they are not, which went
# unnoticed for three years (Loshchilov and Hutter 2019). Biases and norms are not decayed.

# %% [markdown] id="05-ex2-text" slideshow={"slide_type": "skip"}
# ### Exercise 05.2 · A step of AdamW
#
# Write `my_adamw_step(p, g, m, v, step, lr, betas, eps, weight_decay)` for one tensor.
#
# - `p`, `g`, `m`, `v` are tensors of one shape; `m` and `v` are zeros before the first step.
#   `step` is $t$, counted from 1; `betas` is the pair $(\beta_1, \beta_2)$.
# - Shrink $p$ by the factor $1 - \text{lr} \cdot \text{weight\_decay}$, update $m$ and $v$, then
#   take Adam's step with the corrected $\hat m$ and $\hat v$. $\epsilon$ is added **after** the root.
# - Change `p`, `m` and `v` in place; `g` stays as it is. Return nothing.
# - Write the arithmetic yourself: don't call `adam_direction` or an optimizer.
#
# <details><summary>Hint</summary>
#
# Seven short lines, in the order of the text. In place: `p *= …`, `m *= beta1`,
# `m += (1 - beta1) * g`. $\hat m$ and $\hat v$ are new tensors: the correction must not
# end up in `m` and `v`.
#
# </details>


# %% id="05-ex2" exercise="05.2" slideshow={"slide_type": "skip"}
def my_adamw_step(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int,
    lr: float, betas: tuple[float, float], eps: float, weight_decay: float,
) -> None:  # fmt: skip
    """Change p, m and v in place by one step of AdamW."""
    ### BEGIN SOLUTION
    b1, b2 = betas
    p *= 1 - lr * weight_decay
    m *= b1
    m += (1 - b1) * g
    v *= b2
    v += (1 - b2) * g * g
    m_hat = m / (1 - b1**step)
    v_hat = v / (1 - b2**step)
    p -= lr * m_hat / (v_hat.sqrt() + eps)
    ### STUB: ...
    ### END SOLUTION


# %% id="05-ex2-check" slideshow={"slide_type": "skip"}
check("05.2", my_adamw_step)


# %% [markdown] id="05-equal-text" slideshow={"slide_type": "subslide"}
# ### All of them, on a Transformer
#
# Four optimizers of ours and four of torch's, 100 steps each on the same batches of additions.
# Every step starts where the last one ended, so a difference would grow.
#
# **Predict.** How far are the two models apart after 100 steps, in 64-bit numbers?


# %% id="05-equal" slideshow={"slide_type": "skip"}
def after_100_steps(make_optimizer) -> Tensor:
    """Train the small Transformer for 100 steps; all its parameters in one vector."""
    run = start_run(preset("addition", dtype="float64", layers=1, width=16))
    optimizer = make_optimizer(run.model.parameters())
    for step in range(100):
        rows = run.data.batch(step, 8)
        logits = run.model(rows.inputs)
        cross_entropy(logits, rows.targets, rows.mask).backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


pairs = {
    "SGD": (SGD, torch.optim.SGD, {"lr": 0.1}),
    "momentum": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "Adam": (Adam, torch.optim.Adam, {"lr": 3e-3}),
    "AdamW": (AdamW, torch.optim.AdamW, {"lr": 3e-3, "weight_decay": 0.1}),
}
for name, (ours, theirs, settings) in pairs.items():
    mine = after_100_steps(partial(ours, **settings))
    torchs = after_100_steps(partial(theirs, **settings))
    assert (mine - torchs).abs().max() < 1e-6
    print(f"{name:8}: equal to torch.optim's after 100 steps, within 1e-6")

# %% [markdown] id="05-equal-notes" slideshow={"slide_type": "notes"}
# (2 min) In 64 bits they are far nearer than that. 1e-6 is what we promise, and the tests hold it
# in float32 too.

# %% [markdown] id="05-schedule-text" slideshow={"slide_type": "slide"}
# ## 4 · Guard rails: the rate over time, and clipping
#
# A batch is a sample, so its gradient is partly **noise**. Two moments need care.
#
# - **At the start** Adam's $m$ and $v$ rest on a gradient or two. A **warm-up** (预热) lets the rate
#   climb to its peak over the first steps.
# - **At the end** the noise keeps the parameters shaking. A **cosine** schedule (余弦退火) lets the
#   rate fall to nearly zero, and they settle.

# %% [markdown] id="05-warmup-text" slideshow={"slide_type": "subslide"}
# ### Why a warm-up?
#
# Give Adam gradients that are nothing but noise: 10,000 parameters that should better not move
# at all. Look at the size of its direction.
#
# **Predict.** How large is the direction at the first step, in mean? And after 200 steps?

# %% id="05-warmup" slideshow={"slide_type": "subslide"} tags=["hide-input"]
torch.manual_seed(0)
m, v = torch.zeros(10_000), torch.zeros(10_000)
sizes = []
for t in range(1, 201):
    direction = adam_direction(torch.randn(10_000), m, v, t, (0.9, 0.999), 1e-8)
    sizes.append(direction.abs().mean().item())
expected = math.sqrt(2 / math.pi) * math.sqrt((1 - 0.9) / (1 + 0.9))  # on paper: 0.18
assert abs(sizes[0] - 1) < 1e-3
assert abs(sizes[-1] - expected) < 0.1 * expected
_ = over_steps(
    {"Adam's direction, mean size": sizes},
    reference=(expected, "in the long run: 0.18"),
    ylabel="share of the full rate",
    title="At first Adam follows pure noise at full speed",
)  # fmt: skip

# %% [markdown] id="05-warmup-answer" slideshow={"slide_type": "skip"}
# **Answer.** Exactly 1: a single gradient divided by its own size is ±1, be it signal or noise.
# After some ten steps the noise averages out in $m$, and what is left of it is 0.18. So the first
# steps are the blindest and, without a warm-up, among the largest.

# %% [markdown] id="05-warmup-notes" slideshow={"slide_type": "notes"}
# (3 min) 0.18: the deviation of m is sqrt((1-b1)/(1+b1)) of the noise's, and the mean size of a
# normal number is sqrt(2/pi) of its deviation.

# %% [markdown] id="05-cosine-text" slideshow={"slide_type": "subslide"}
# ### Warm-up, then cosine
#
# For step $s$, counted from 0, with $W$ warm-up steps of $S$ in all:
#
# $$\text{rate} = \begin{cases} \text{peak} \cdot \dfrac{s + 1}{W + 1} & s < W \\[2ex]
# \text{min} + (\text{peak} - \text{min}) \cdot \dfrac{1 + \cos(\pi\, q)}{2} & s \ge W
# \end{cases} \qquad q = \frac{s - W}{S - 1 - W}$$
#
# $q$ runs from 0 at the peak to 1 at the last step, and stays 1 after it.

# %% id="05-cosine-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
steps, warmup = 500, 50
rates = [cosine_schedule(step, steps, 3e-3, warmup) for step in range(steps)]
assert max(rates) == rates[warmup] == 3e-3
assert rates[0] > 0 == rates[-1]
_ = over_steps(
    {"learning rate": rates}, ylabel="learning rate", first=0,
    title="A short way up, a long way down: 500 steps, 50 of warm-up",
)  # fmt: skip

# %% id="05-settle" slideshow={"slide_type": "skip"}
# Predict: 1,000 parameters, each with noise as large as its slope. How near to the
# best value, 0, do they come with a constant rate of 0.2, and with a cosine from 0.2?
torch.manual_seed(0)
constant, falling = torch.full((1000,), 5.0), torch.full((1000,), 5.0)
for step in range(300):
    noise = torch.randn(1000)
    constant -= 0.2 * (constant + noise)  # the true gradient is the parameter itself
    falling -= cosine_schedule(step, 300, 0.2) * (falling + noise)

distance = [p.square().mean().sqrt().item() for p in (constant, falling)]
assert abs(distance[0] - math.sqrt(0.2 / (2 - 0.2))) < 0.03  # on paper: 0.33
assert distance[1] < distance[0] / 3
print("constant: stays a third of the noise away; cosine: over three times nearer")

# %% [markdown] id="05-ex3-text" slideshow={"slide_type": "skip"}
# ### Exercise 05.3 · The cosine schedule
#
# Write `my_cosine_schedule(step, total_steps, peak_lr, warmup_steps, min_lr)`, which returns the
# rate of one step as a number, by the formula above.
#
# - `step` counts from 0 and may lie beyond the last one, `total_steps - 1`: then the rate is `min_lr`.
# - `warmup_steps` may be 0, and may be as large as `total_steps - 1`: then no step is left to go
#   down, and from there on the rate is `peak_lr`.
# - Only arithmetic and `math.cos`.
#
# <details><summary>Hint</summary>
#
# Return early for the warm-up. Then compute how many steps lead down, `total_steps - 1 -
# warmup_steps`; if there is none, return the peak. `min(1.0, …)` keeps $q$ from passing 1.
#
# </details>


# %% id="05-ex3" exercise="05.3" slideshow={"slide_type": "skip"}
def my_cosine_schedule(
    step: int, total_steps: int, peak_lr: float, warmup_steps: int, min_lr: float
) -> float:
    """Return the learning rate of a step, counted from 0."""
    ### BEGIN SOLUTION
    if step < warmup_steps:
        return peak_lr * (step + 1) / (warmup_steps + 1)
    steps_down = total_steps - 1 - warmup_steps
    if steps_down == 0:
        return peak_lr
    q = min(1.0, (step - warmup_steps) / steps_down)
    return min_lr + (peak_lr - min_lr) * (1 + math.cos(math.pi * q)) / 2
    ### STUB: ...
    ### END SOLUTION


# %% id="05-ex3-check" slideshow={"slide_type": "skip"}
check("05.3", my_cosine_schedule)

# %% [markdown] id="05-clip-text" slideshow={"slide_type": "subslide"}
# ### Clipping (梯度裁剪)
#
# One bad batch can have a gradient a thousand times the usual one, and a single step then undoes
# hours. So look at the length of the **whole** gradient, all parameters as one vector, and if it is
# above a limit, shorten it to the limit:
#
# $$\text{norm} = \sqrt{\textstyle\sum g^2} \qquad g \leftarrow g \cdot \min\!\left(1,\;
# \frac{\text{max\_norm}}{\text{norm}}\right)$$
#
# The direction stays. The order is: sync, **clip**, step.
#
# **Predict.** Two tensors have the norms 3 and 4. What is the norm of all? And what does one gradient
# of eighty that is 1,000 times too large do to SGD in the valley?

# %% id="05-clip" slideshow={"slide_type": "subslide"}
one, other = torch.zeros(2), torch.zeros(1)
one.grad, other.grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
norm = clip_grad_norm([one, other], max_norm=1.0)
print(f"norm {norm:.0f} before; after: {one.grad[0]:.1f} and {other.grad[0]:.1f}")
assert torch.allclose(
    one.grad[0] / other.grad[0], torch.tensor(3 / 4)
)  # same direction

grads = [p.grad.clone() for p in model.parameters()]
norm = clip_grad_norm(model.parameters(), max_norm=0.1)
for parameter, grad in zip(model.parameters(), grads, strict=True):
    assert torch.allclose(parameter.grad, grad * (0.1 / norm))


# %% id="05-accident" slideshow={"slide_type": "subslide"} tags=["hide-input"]
def with_accident(max_norm: float) -> Tensor:
    """SGD down the valley; at step 40 the gradient is a thousand times too large."""
    point = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer, path = SGD([point], lr=0.018), []
    for step in range(80):
        optimizer.zero_grad()
        (valley(point) * (1000 if step == 40 else 1)).backward()
        clip_grad_norm([point], max_norm)
        optimizer.step()
        path.append(valley(point).item())
    return torch.tensor(path)


unclipped, clipped = with_accident(math.inf), with_accident(5.0)
assert unclipped[40] > 100 * unclipped[39]  # thrown far up the other side
assert clipped[40] < clipped[39]  # not even a bump

_ = over_steps(
    {"no clipping": unclipped.tolist(), "clipped at 5": clipped.tolist()}, log=True,
    ylabel="loss", title="One bad gradient of eighty, with and without clipping",
)  # fmt: skip

# %% [markdown] id="05-clip-notes" slideshow={"slide_type": "notes"}
# (3 min) With P ranks the norm is that of the averaged gradient, so every rank finds the same
# norm and cuts by the same factor. Clipping before the sync would cut each rank differently.

# %% [markdown] id="05-ex4-text" slideshow={"slide_type": "skip"}
# ### Exercise 05.4 · Clip by the global norm
#
# Write `my_clip(grads, max_norm)`.
#
# - `grads` is a list of tensors of any shapes, `max_norm` a number above 0.
# - Compute one norm over **all** elements of all tensors. If it is above `max_norm`, scale every
#   tensor by `max_norm / norm`, in place. Otherwise leave them as they are, to the bit.
# - Return the norm **before** clipping, as a float. All gradients may be zero.
#
# <details><summary>Hint</summary>
#
# Add the squares of all elements over all tensors, take one root at the end. `.item()` makes a
# float of a tensor with one element.
#
# </details>


# %% id="05-ex4" exercise="05.4" slideshow={"slide_type": "skip"}
def my_clip(grads: list[Tensor], max_norm: float) -> float:
    """Shorten all gradients together to max_norm, in place; return the old norm."""
    ### BEGIN SOLUTION
    squares = sum(grad.square().sum().item() for grad in grads)
    norm = math.sqrt(squares)
    if norm > max_norm:
        for grad in grads:
            grad *= max_norm / norm
    return norm
    ### STUB: ...
    ### END SOLUTION


# %% id="05-ex4-check" slideshow={"slide_type": "skip"}
check("05.4", my_clip)

# %% [markdown] id="05-cost-text" slideshow={"slide_type": "slide"}
# ## 5 · What an update costs
#
# In float32 a parameter takes 4 bytes, its gradient 4 more. On top comes what the optimizer
# remembers.
#
# **Predict.** How many bytes for each parameter does each optimizer keep? And how much memory do
# parameters, gradients and state of a model of 7 billion parameters take with AdamW?

# %% id="05-bytes" slideshow={"slide_type": "subslide"} tags=["hide-input"]
settings = {
    "SGD": (SGD, {}),
    "momentum": (SGD, {"momentum": 0.9}),
    "AdamW": (AdamW, {}),
}
for name, (kind, extra) in settings.items():
    weight = torch.zeros(1000, requires_grad=True)
    weight.grad = torch.ones(1000)
    optimizer = kind([weight], lr=0.1, **extra)
    optimizer.step()
    kept = [t for t in optimizer.state[weight].values() if isinstance(t, Tensor)]
    state = sum(t.numel() * t.element_size() for t in kept) // 1000
    assert state == {"SGD": 0, "momentum": 4, "AdamW": 8}[name]
    total = 4 + 4 + state
    print(f"{name:8}: state {state} B, in all {total:2} B, {7 * total:3} GB for 7 B")

# %% [markdown] id="05-traffic-text" slideshow={"slide_type": "subslide"}
# ### What does an update wait for?
#
# **Answer.** 0, 4 and 8 bytes; 112 GB for AdamW, more than an 80 GB GPU has.
#
# AdamW must at least read $p, g, m, v$ and write $p, m, v$: 7 × 4 = 28 bytes a parameter, for some
# 15 operations. Half an operation a byte is little: an arithmetic unit could do dozens in the time
# that the memory takes for one byte. The update is **bound by memory traffic**.
#
# **Predict.** By the bytes alone, SGD (12), momentum (20) and AdamW (28): how many times longer
# should AdamW take than SGD?


# %% id="05-traffic" slideshow={"slide_type": "subslide"} tags=["hide-input"]
def update_time_s(kind, **settings) -> float:
    """The seconds of one update of eight million parameters."""
    weight = torch.zeros(8_000_000, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    return median_time_s(kind([weight], lr=1e-3, **settings).step, repeats=3)


torchs = torch.optim
times_s = {
    "SGD, ours": update_time_s(SGD),
    "SGD, torch fused": update_time_s(torchs.SGD, fused=True),
    "AdamW, ours": update_time_s(AdamW),
    "AdamW, torch fused": update_time_s(torchs.AdamW, fused=True),
}
bandwidth = memory_bytes_per_s(128 << 20, repeats=3)
minimum_bytes = [12, 12, 28, 28]
bounds_s = {
    name: b * 8e6 / bandwidth for name, b in zip(times_s, minimum_bytes, strict=True)
}
_ = times_against_bounds(
    times_s,
    bounds_s,
    title="An update of 8 M parameters, held against its memory traffic",
)

# %% [markdown] id="05-traffic-answer" slideshow={"slide_type": "skip"}
# **Answer.** 28 ÷ 12 = 2.3 times. The mark is what the bytes alone take at the bandwidth of
# this machine's memory. A *fused* update does all its arithmetic in one pass, and comes near its
# mark. Ours reads and writes the same numbers several times, once for each operation: it takes
# longer, and is still made of memory traffic. (A bar may end before its mark: some of the data may
# still lie in a cache.) Ours also keeps a flat copy of the gradients, 4 bytes a parameter, so that
# one operation can serve the whole model.

# %% [markdown] id="05-traffic-notes" slideshow={"slide_type": "notes"}
# (3 min) Chapter 06 puts the update on a roofline beside the other stages. Halving the bytes
# (bfloat16 state, 8-bit Adam) is what makes updates faster, not faster arithmetic.

# %% [markdown] id="05-summary" slideshow={"slide_type": "slide"}
# ## Summary
#
# 1. SGD: step = rate × gradient. It diverges above 2 ÷ curvature, and crawls where it is flat.
# 2. Momentum adds up gradients; Adam also divides by their usual size. Both equal torch's.
# 3. Adam's step is about the rate itself, whatever the gradient's size.
# 4. AdamW decays the parameter, not the gradient. Warm-up guards the start, cosine the end,
#    clipping every step between.
# 5. AdamW keeps 8 bytes a parameter beside the 8 of parameter and gradient; its time is
#    memory traffic.

# %% [markdown] id="05-formulas" slideshow={"slide_type": "skip"}
# ## Formula sheet
#
# | | |
# |---|---|
# | SGD | $p \leftarrow p - \text{rate} \cdot g$ |
# | momentum | $b \leftarrow \beta b + g,\quad p \leftarrow p - \text{rate} \cdot b$ |
# | Adam | $m \leftarrow \beta_1 m + (1-\beta_1) g,\; v \leftarrow \beta_2 v + (1-\beta_2) g^2$ |
# | | $p \leftarrow p - \text{rate} \cdot \dfrac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \epsilon}$ |
# | AdamW | before it: $p \leftarrow (1 - \text{rate} \cdot \lambda)\, p$ |
# | SGD converges | rate $< 2\,/\,$curvature |
# | clipping | $g \leftarrow g \cdot \min(1, \text{max\_norm} / \lVert g \rVert)$, over all parameters |
# | bytes a parameter, float32 | SGD 8, momentum 12, AdamW 16 |
#
# ## Words of this chapter
#
# parameter update 参数更新 · optimizer 优化器 · learning rate 学习率 ·
# stochastic gradient descent 随机梯度下降 · divergence 发散 · momentum 动量 ·
# bias correction 偏差修正 · weight decay 权重衰减 · warm-up 预热 · cosine schedule 余弦退火 ·
# gradient clipping 梯度裁剪
#
# ## To read
#
# - D. Kingma and J. Ba, *Adam*, 2015 (arXiv:1412.6980): algorithm 1 is this chapter's section 2.
# - I. Loshchilov and F. Hutter, *Decoupled Weight Decay Regularization*, 2019 (arXiv:1711.05101).
# - G. Goh, *Why Momentum Really Works*, Distill 2017: the valley, with more mathematics.
#
# **Next:** 06 · The training loop, in which all six stages run again and again.
