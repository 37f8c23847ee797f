# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] id="03-title" slideshow={"slide_type": "slide"}
# # 03 · Backward pass and gradients
#
# **How does a model find out which of its parameters caused the mistake?**
#
# *About 75 minutes with the exercises · no GPU needed*
#
# data → forward → loss → **backward** → sync → update

# %% [markdown] id="03-title-notes" slideshow={"slide_type": "notes"}
# (1 min) The forward pass answers, the loss says how wrong the answer was. Now the blame is
# handed back, from the loss to every single parameter. Ask: what would you do if you had only
# the forward pass and lots of time? (Nudge each parameter. That is the yardstick all day.)

# %% [markdown] id="03-goals" slideshow={"slide_type": "slide"}
# ## What you will be able to do
#
# 1. Explain a gradient (梯度) as a nudge, and why it points uphill.
# 2. Use the chain rule (链式法则) on one neuron, and read the graph that autograd records.
# 3. Say what is passed back from layer to layer, and why a broadcast becomes a sum.
# 4. Write the backward pass (反向传播) of linear, GELU and softmax with cross-entropy.
# 5. Prove a gradient right, and recognise a check that would accept anything.

# %% [markdown] id="03-goals-notes" slideshow={"slide_type": "notes"}
# (1 min) Everything today is built from one idea: multiply slopes along a way, add up over ways.

# %% [markdown] id="03-recap" slideshow={"slide_type": "skip"}
# ## Before you start
#
# - The **forward pass** turns tokens into logits (scores); softmax turns those into
#   probabilities (chapter 01).
# - The **loss** of one token is $-\ln p$ of the right answer; of a batch, the mean over the
#   tokens that count (chapter 02).
# - A model that knows nothing gives each of V answers the same chance: its loss is $\ln V$.
# - `x @ y` is a matrix product; `x.T` swaps rows and columns.
# - `requires_grad=True` asks PyTorch to record what is done with a tensor.

# %% id="03-recap-check" slideshow={"slide_type": "skip"}
import math

import torch

from course_lib.loss import cross_entropy

no_opinion = torch.zeros(5, 13)  # five tokens, 13 equal logits each
answers = torch.tensor([3, 1, 4, 1, 5])
assert math.isclose(cross_entropy(no_opinion, answers), math.log(13), rel_tol=1e-6)

# %% id="03-setup" tags=["hide-input"] slideshow={"slide_type": "slide"}
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from course_lib.backward.gradcheck import numerical_gradient, relative_errors
from course_lib.backward.layers import (
    cross_entropy_backward,
    gelu_backward,
    linear_backward,
)
from course_lib.config import ModelConfig
from course_lib.data.addition import Addition
from course_lib.forward.layers import EmbeddingSaved, embedding, gelu, linear
from course_lib.forward.model import Transformer
from course_lib.forward.weights import LinearWeights
from course_lib.teach.exercises import check
from course_lib.teach.figures.autograd_graph import autograd_graph
from course_lib.teach.figures.gradient_checks import nudge_errors
from course_lib.teach.figures.loss_gradient import belief_minus_truth
from course_lib.teach.figures.slopes import functions_and_slopes
from course_lib.teach.figures.stages import training_loop
from course_lib.teach.widgets.directions import direction_explorer

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)  # 64-bit numbers, so that checks are sharp
_ = training_loop(here="backward", title="Backward: from the loss to every parameter")

# %% [markdown] id="03-loop-notes" slideshow={"slide_type": "notes"}
# (1 min) One stage of the loop is lit. All arithmetic of this chapter is in float64: then a
# mistake can't hide in the rounding.

# %% [markdown] id="03-uphill-text" slideshow={"slide_type": "slide"}
# ## 1 · A gradient is a nudge, and points uphill
#
# Move one parameter by a hair and look at the loss: *change of the loss ÷ change of the
# parameter* is its **slope**. The **gradient** (梯度) is the list of all parameters' slopes.
#
# A neuron has two parameters, $w$ and $b$. It answers $\tanh(wx + b)$. We can nudge both at
# once, in any direction of the $(w, b)$ map.
#
# **Predict.** In which direction does the loss rise fastest? In which does it stay as it is?

# %% id="03-neuron-loss" slideshow={"slide_type": "subslide"}
xs, targets = torch.tensor([-1.0, 0.5, 2.0]), torch.tensor([-0.8, 0.1, 0.9])


def neuron_loss(w: Tensor, b: Tensor) -> Tensor:
    """The mean squared error of one neuron on three examples."""
    answers = torch.tanh(w[..., None] * xs + b[..., None])
    return ((answers - targets) ** 2).mean(dim=-1)


def slope_towards(degrees: float, hair: float = 1e-5) -> float:
    """The loss's slope in one direction, by a nudge forth and a nudge back."""
    way = torch.tensor(degrees).deg2rad()
    moves = [(sign * hair * way.cos(), sign * hair * way.sin()) for sign in (1, -1)]
    above, below = (neuron_loss(w + dw, b + db) for dw, db in moves)
    return ((above - below) / (2 * hair)).item()


# %% id="03-slopes" slideshow={"slide_type": "subslide"}
w, b = torch.tensor(0.2), torch.tensor(0.8)  # where the neuron stands
measured = [(degrees, slope_towards(degrees)) for degrees in range(0, 361, 15)]

gradient = (slope_towards(0), slope_towards(90))  # nudge w alone, nudge b alone
for degrees, slope in measured:
    u = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    assert abs(slope - (gradient[0] * u[0] + gradient[1] * u[1])) < 1e-8
print("two slopes, along w and along b, give the slope in all 25 directions")

# %% id="03-uphill" tags=["hide-input"] slideshow={"slide_type": "subslide"}
w_axis, b_axis = torch.linspace(-1, 2, 61), torch.linspace(-1.2, 1.8, 61)
grid = neuron_loss(w_axis[None, :], b_axis[:, None])  # rows: b, columns: w
direction_explorer(grid, (-1, 2, -1.2, 1.8), (w.item(), b.item()), gradient, measured)

# %% [markdown] id="03-uphill-answer" slideshow={"slide_type": "skip"}
# **Answer.** Two slopes are enough for every direction: the slope towards a unit vector $u$ is
# $\text{gradient} \cdot u$. That is largest where $u$ points the way the gradient points, zero at
# right angles to it, and most negative the opposite way.
#
# So the gradient points **uphill**, and $-\text{gradient}$ is the steepest way down. "Steepest" is
# only true nearby: turn the slider to the valley in the map and you see that the shortest way
# there is another one.

# %% [markdown] id="03-uphill-notes" slideshow={"slide_type": "notes"}
# (4 min) Left: the map of the loss, dark is low. Right: the slope in every direction. The black
# dots are nudges, the line is gradient · direction. Let them find the two directions in which
# nothing changes: along the contour line.

# %% [markdown] id="03-chain-text" slideshow={"slide_type": "slide"}
# ## 2 · The chain rule on one neuron
#
# Take the neuron apart, for one example $x = 2$ with the target 1:
#
# $$z = wx + b \qquad h = \tanh z \qquad e = h - 1 \qquad L = e^2$$
#
# Each step has a **local slope**, easy on its own: $\frac{dL}{de} = 2e$,
# $\frac{de}{dh} = 1$, $\frac{dh}{dz} = 1 - h^2$, $\frac{dz}{dw} = x$, $\frac{dz}{db} = 1$.
# The **chain rule** (链式法则): *multiply the slopes along the way.*
#
# **Predict.** How many times as large is the slope of $w$ as that of $b$?

# %% id="03-chain" slideshow={"slide_type": "subslide"}
x = torch.tensor(2.0)
w = torch.tensor(0.5, requires_grad=True)
b = torch.tensor(-0.4, requires_grad=True)

z = w * x + b  # forward, and keep each value
h = torch.tanh(z)
e = h - 1
loss = e**2
print(f"z = {z:.3f}   h = {h:.3f}   e = {e:.3f}   loss = {loss:.3f}")

# %% id="03-chain-back" slideshow={"slide_type": "fragment"}
d_e = 2 * e  # d_e means: the slope of the loss by e
d_h = d_e * 1
d_z = d_h * (1 - h**2)
d_w, d_b = d_z * x, d_z * 1

reference = torch.autograd.grad(loss, (w, b), retain_graph=True)
torch.testing.assert_close((d_w, d_b), reference, rtol=1e-12, atol=0)
print(f"d_e = {d_e:.3f}   d_z = {d_z:.3f}   d_w = {d_w:.3f}   d_b = {d_b:.3f}")

# %% [markdown] id="03-chain-answer" slideshow={"slide_type": "skip"}
# **Answer.** Twice, since $x = 2$: what a weight does to the answer is multiplied by its input.
# An input of 0 means that its weight had no part in the mistake.
#
# Two habits of the whole course are in this cell. We write `d_z` for "the gradient of the loss by
# z". And we go **from the end to the start**: each line needs only the line before it and a value
# that the forward pass has kept. Nothing is computed twice, though `d_z` serves both $w$ and $b$.

# %% [markdown] id="03-chain-notes" slideshow={"slide_type": "notes"}
# (4 min) Do it on the blackboard first, from right to left. The number that walks back is
# always "how much would the loss change if this value changed".

# %% [markdown] id="03-graph-text" slideshow={"slide_type": "slide"}
# ### The graph that autograd records
#
# While you compute forward, PyTorch's **autograd** (自动微分) writes down each operation and what
# it was made from: a **computational graph** (计算图). `loss.grad_fn` is the last operation, and
# `next_functions` leads to the ones before it.
#
# **Predict.** Which of $w$, $b$, $x$ and the target will be in the graph?


# %% id="03-graph-walk" slideshow={"slide_type": "subslide"}
def walk(node, indent: str = "") -> list[str]:
    """The operations behind a node, in the order of the backward pass."""
    lines = [indent + type(node).__name__]
    for following, _ in node.next_functions:
        if following is not None:
            lines += walk(following, indent + "  ")
    return lines


steps = walk(loss.grad_fn)
assert sum("AccumulateGrad" in step for step in steps) == 2  # the ends: w and b
print("\n".join(steps))

# %% id="03-graph" slideshow={"slide_type": "subslide"}
_ = autograd_graph(
    loss, {"w": w, "b": b},
    title="The recorded graph of one neuron, and the gradient on each edge",
)  # fmt: skip

# %% [markdown] id="03-graph-answer" slideshow={"slide_type": "skip"}
# **Answer.** Only $w$ and $b$: nobody asked for the gradient of $x$ and of the target. The numbers
# on the edges are those of our cell above, read by hooks from autograd's own nodes. It does what
# we did: one local slope at a time, from the end to the start. `AccumulateGrad` is where a gradient
# is added to `.grad`, which is why a second `backward()` without `zero_grad()` gives the double.

# %% [markdown] id="03-graph-notes" slideshow={"slide_type": "notes"}
# (3 min) Nothing is drawn by hand: nodes and edges come from `next_functions`. Read it from
# right to left and compare with the printed numbers.

# %% [markdown] id="03-twice-text" slideshow={"slide_type": "slide"}
# ### A value used twice: gradients add up
#
# A Transformer keeps what was there and adds something: $y = x + f(x)$, the **residual**
# (残差) connection of chapter 01. So $x$ reaches the loss by two ways.
#
# *Along a way multiply, over all ways add.*
#
# **Predict.** $f(x) = 3x$. What is the slope of $y = x + f(x)$ by $x$? And if one of the ways
# were forgotten?

# %% id="03-twice" slideshow={"slide_type": "subslide"}
x = torch.randn(4, 3, requires_grad=True)
weight = torch.randn(3, 3, requires_grad=True)
y = x + torch.tanh(x @ weight)  # x goes on, and x goes into the layer
loss = y.mean()

_ = autograd_graph(
    loss, {"x": x, "weight": weight},
    title="Two edges end in x: its gradient is their sum",
)  # fmt: skip

# %% id="03-twice-check" slideshow={"slide_type": "skip"}
d_y = torch.full((4, 3), 1 / 12)  # a mean of 12 numbers: each has the slope 1/12
d_through = (d_y * (1 - torch.tanh(x @ weight) ** 2)) @ weight.T  # section 4 says why
reference = torch.autograd.grad(loss, x)[0]
assert torch.allclose(d_y + d_through, reference, rtol=1e-12)
assert not torch.allclose(d_through, reference, rtol=0.1)  # one way alone is wrong
print("the way past f and the way through f, added, are x's gradient")
print("with f(x) = 3x: slope 1 + 3 = 4; one way alone would say 1, or 3")

# %% [markdown] id="03-twice-notes" slideshow={"slide_type": "notes"}
# (3 min) Slope 1 + 3 = 4. The "1" is why residual networks can be deep: whatever the layers do,
# the gradient arrives undiminished by the straight way. On the edges stand shapes here, since
# tensors are handed back.

# %% [markdown] id="03-vjp-text" slideshow={"slide_type": "slide"}
# ## 3 · What is passed back
#
# A layer has many inputs and outputs, so it has many slopes: $J_{oi} = \partial y_o / \partial
# x_i$, its **Jacobian** (雅可比矩阵), one row for each output, one column for each input.
#
# Back comes one number for each output, $d_y$. Input $i$ reaches the loss through every output:
# $d_{x,i} = \sum_o d_{y,o} J_{oi}$. That is a **vector-Jacobian product** (向量-雅可比积):
# $d_x = d_y J$.

# %% id="03-jacobian" slideshow={"slide_type": "subslide"}
A, x, hair = torch.randn(2, 3), torch.tensor([0.3, -0.5, 0.8]), 1e-5


def layer(x: Tensor) -> Tensor:
    """Three inputs, two outputs."""
    return torch.tanh(A @ x)


columns = [
    (layer(x + hair * i) - layer(x - hair * i)) / (2 * hair) for i in torch.eye(3)
]
jacobian = torch.stack(columns, dim=1)  # [2, 3]: outputs by inputs, found by nudges
d_y = torch.tensor([1.0, -2.0])  # what comes back from the layers behind
reference = torch.autograd.grad(layer(x.requires_grad_()), x, d_y)[0]
assert torch.allclose(d_y @ jacobian, reference, atol=1e-8)
print("d_y @ Jacobian is what autograd passes back")

# %% [markdown] id="03-size-text" slideshow={"slide_type": "slide"}
# ### Nobody writes the Jacobian down
#
# Each layer brings a **backward function** that takes $d_y$ and returns $d_y J$ without ever
# forming $J$. This chapter writes those functions.
#
# One linear layer of our addition model: a batch of 256 rows with 11 tokens, 64 numbers in and
# 256 numbers out for each token.
#
# **Predict.** How many bytes would its Jacobian take in float32? And what is passed back?

# %% id="03-size" slideshow={"slide_type": "fragment"}
tokens = 256 * 11
inputs, outputs = tokens * 64, tokens * 256
size_bytes = 4 * outputs * inputs
print(f"Jacobian:    {outputs:,} x {inputs:,} numbers, {size_bytes / 1e9:.0f} GB")
print(f"passed back: {inputs:,} numbers, {4 * inputs / 1e6:.2f} MB")

others = 1 - 1 / tokens  # one token's output does not depend on another token's input
print(f"at least {100 * others:.2f} % of the Jacobian would be zeros")
assert size_bytes > 500e9

# %% [markdown] id="03-vjp-notes" slideshow={"slide_type": "notes"}
# (4 min) This is the whole design of autograd: every operation brings a function from d_y to
# d_x. The loss is one number, so one walk from the end gives all gradients. Were there many
# losses and one parameter, walking forward would be cheaper.

# %% [markdown] id="03-broadcast-text" slideshow={"slide_type": "slide"}
# ### A broadcast becomes a sum
#
# `x + b` with `x` of shape [4, 3] and `b` of shape [3] uses each number of `b` **four times**, once
# in each row: a **broadcast** (广播). Used four times means four ways to the loss, and over all
# ways we add.
#
# **Predict.** The loss is the plain sum of `x + b`. What is the gradient of `b`?
#
# (The other way round, too: a sum forward becomes a broadcast backward.)

# %% id="03-broadcast" slideshow={"slide_type": "fragment"}
b = torch.zeros(3, requires_grad=True)
x = torch.randn(4, 3)
d_b = torch.autograd.grad((x + b).sum(), b)[0]
print(d_b.tolist())

d_y = torch.randn(4, 3)  # any gradient that may come back
reference = torch.autograd.grad(x + b, b, d_y)[0]
assert torch.allclose(d_y.sum(dim=0), reference, rtol=1e-12)
assert reference.shape == b.shape  # a gradient has the shape of its tensor

# %% [markdown] id="03-broadcast-notes" slideshow={"slide_type": "notes"}
# (3 min) Broadcast and sum are each other's backward. On many ranks it returns: parameters are
# broadcast to all ranks, so gradients are summed over all ranks. All of part II is this line.

# %% [markdown] id="03-linear-text" slideshow={"slide_type": "slide"}
# ## 4 · Layer by layer
#
# ### Linear
#
# For row $r$ (a token), output $o$, input $i$:
#
# $$y_{ro} = \sum_i x_{ri} W_{oi} + b_o$$
#
# - Nudge $x_{ri}$: it reaches every output $o$ of its row: $d_{x,ri} = \sum_o d_{y,ro} W_{oi}$.
# - Nudge $W_{oi}$: it reaches output $o$ of **every** row: $d_{W,oi} = \sum_r d_{y,ro}\, x_{ri}$.
# - Nudge $b_o$: output $o$ of every row, too: $d_{b,o} = \sum_r d_{y,ro}$.

# %% [markdown] id="03-linear-notes" slideshow={"slide_type": "notes"}
# (3 min) A sum over an index that two factors share is a matrix product. Which factor must be
# transposed, and which comes first? The shapes allow only one answer. Let them find it.

# %% [markdown] id="03-ex1-text" slideshow={"slide_type": "skip"}
# ### Exercise 03.1 · Linear backward
#
# Write `my_linear_backward(x, weight, d_y)`, which returns `(d_x, d_weight, d_bias)` of
# `y = x @ weight.T + bias`.
#
# - `x` is `[..., I]`, `weight` is `[O, I]`, `d_y` is `[..., O]`. The dots are any leading
#   dimensions: none, `T`, or `B, T`. All have one floating-point dtype.
# - Each gradient has the shape and dtype of its tensor; `d_bias` is `[O]`.
# - Leave what you are given as it is. No autograd.
# - `x.reshape(-1, I)` makes one long list of rows of any leading dimensions.
#
# <details><summary>Hint</summary>
#
# Bring `x` and `d_y` into the shapes [R, I] and [R, O] first. The sum over r for `d_weight` is then
# a matrix product whose result is [O, I]. (`hint("03.1")` gives more, a step at a time.)
#
# </details>


# %% id="03-ex1" exercise="03.1" slideshow={"slide_type": "skip"}
def my_linear_backward(
    x: Tensor, weight: Tensor, d_y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (d_x, d_weight, d_bias) of y = x @ weight.T + bias."""
    ### BEGIN SOLUTION
    x_rows = x.reshape(-1, x.shape[-1])
    d_y_rows = d_y.reshape(-1, d_y.shape[-1])
    d_x = d_y @ weight
    d_weight = d_y_rows.T @ x_rows
    return d_x, d_weight, d_y_rows.sum(dim=0)
    ### STUB: ...
    ### END SOLUTION


# %% id="03-ex1-check" slideshow={"slide_type": "skip"}
check("03.1", my_linear_backward)

# %% [markdown] id="03-proof-text" slideshow={"slide_type": "slide"}
# ### A check that accepts anything, on purpose
#
# Here is a gradient of our Transformer, and somebody's "backward" that returns **zeros**. The
# test: `torch.allclose(zeros, gradient, atol=1e-2)`.
#
# **Predict.** Does the test fail?

# %% id="03-proof" slideshow={"slide_type": "fragment"}
model = Transformer(ModelConfig(13, 11), torch.Generator().manual_seed(0))
batch = Addition(digits=3, seed=0).batch(step=0, batch_size=256)
cross_entropy(model(batch.inputs), batch.targets, batch.mask).backward()
truth = {name: parameter.grad for name, parameter in model.named_parameters()}

zeros = {name: torch.zeros_like(gradient) for name, gradient in truth.items()}
name = "blocks.1.attention.query.weight"
print("allclose says:", torch.allclose(zeros[name], truth[name], atol=1e-2))
assert min(relative_errors(zeros, truth).values()) > 0.99  # ours says: all wrong

# %% [markdown] id="03-proof-answer" slideshow={"slide_type": "skip"}
# **Answer.** It passes: a mean over a thousand answers leaves small gradients, all far below
# 0.01. A tolerance is worth something only **relative** to the size of what is compared. Ours:
#
# $$\text{error} = \frac{\lVert a - b \rVert}{\max(\lVert b \rVert,\; 10^{-6}\, \lVert
# \text{all gradients} \rVert)}$$
#
# with the norm over all elements of a tensor. Zeros get the error 1. The second term in the
# denominator is for a gradient that is truly zero, where rounding noise would be divided by
# rounding noise.

# %% [markdown] id="03-proof-notes" slideshow={"slide_type": "notes"}
# (3 min) This mistake stands in real test suites. Whenever you write a check, ask which wrong
# answers it would refuse, and try one.

# %% [markdown] id="03-nudge-text" slideshow={"slide_type": "slide"}
# ### How small must a nudge be?
#
# The other yardstick is the nudge itself, a **finite difference** (有限差分):
# $\big(L(x + h) - L(x - h)\big) / 2h$.
#
# **Predict.** The smaller $h$, the better. True?

# %% id="03-nudge" slideshow={"slide_type": "subslide"}
sizes, errors = [10.0**-power for power in range(1, 13)], {}
true_slope = 1 - math.tanh(0.6) ** 2
for dtype in (torch.float64, torch.float32):
    at = torch.tensor(0.6, dtype=dtype)
    slopes = [(torch.tanh(at + h) - torch.tanh(at - h)).item() / (2 * h) for h in sizes]
    errors[str(dtype)] = [abs(slope - true_slope) / true_slope for slope in slopes]

assert errors["torch.float64"][4] < 1e-9  # h = 1e-5
assert errors["torch.float32"][7] > 0.1  # h = 1e-8: nothing but rounding
_ = nudge_errors(
    sizes, errors, title="Too large a nudge sees the curve; too small, rounding"
)

# %% [markdown] id="03-nudge-answer" slideshow={"slide_type": "skip"}
# **Answer.** No. A large nudge errs because the curve bends, by about $h^2$. A small one errs because
# two nearly equal numbers are subtracted, and what is left is rounding, divided by $h$. In float64
# the best is near $10^{-5}$. In float32 even the best is a poor check, so `numerical_gradient`,
# the course's version for whole tensors, refuses anything but float64.

# %% [markdown] id="03-nudge-notes" slideshow={"slide_type": "notes"}
# (2 min) Both axes are logarithmic. The straight left branch is rounding, the right one is the
# curve. Independent of autograd and of our formulas, but two forward passes for each number.

# %% [markdown] id="03-gelu-text" slideshow={"slide_type": "slide"}
# ### GELU, and all layers that work element by element
#
# Output $i$ depends on input $i$ alone, so the Jacobian has nothing but its diagonal, and
# $d_x = d_y \cdot f'(x)$, element by element. For $\tanh$: $f' = 1 - y^2$.
#
# GELU is $y = x\,P(x)$. $P(x) = \frac12\big(1 + \operatorname{erf}(x / \sqrt 2)\big)$ is the
# probability that a standard normal number lies below $x$. Its slope is the bell curve,
#
# $$P'(x) = \frac{1}{\sqrt{2\pi}}\, e^{-x^2/2}$$
#
# Both factors of $x \cdot P(x)$ change with $x$: the **product rule**, $(uv)' = u'v + uv'$.

# %% id="03-gelu-curves" tags=["hide-input"] slideshow={"slide_type": "subslide"}
line = torch.linspace(-4, 4, 161, requires_grad=True)
curves = {}
for name, function in {"GELU": F.gelu, "ReLU": F.relu}.items():
    y = function(line)
    slope = torch.autograd.grad(y.sum(), line)[0]
    curves[name] = (y.detach(), slope)
assert curves["GELU"][1].min() < 0  # somewhere, GELU goes down
_ = functions_and_slopes(
    line.detach(), curves, title="GELU's slope is no switch, and dips below 0"
)

# %% [markdown] id="03-gelu-notes" slideshow={"slide_type": "notes"}
# (2 min) ReLU's slope is 0 or 1: a closed gate passes no blame back at all. GELU's gate is
# soft. The curves at the right come from autograd, not from a formula.

# %% [markdown] id="03-ex2-text" slideshow={"slide_type": "skip"}
# ### Exercise 03.2 · GELU backward
#
# Write `my_gelu_backward(x, d_y)`, which returns `d_x` of `y = x * P(x)`, the exact GELU.
#
# - `x` and `d_y` have one shape, any, and one floating-point dtype; so has `d_x`.
# - Use `torch.erf`, `torch.exp` and arithmetic. No autograd, no torch or course function for GELU.
# - Leave `x` and `d_y` as they are.
# - Two values to try it with: at $x = 0$ the slope is exactly ½; far to the right it is 1.
#
# <details><summary>Hint</summary>
#
# First compute `P` and the bell curve as two tensors. Put `u = x` and `v = P(x)` into the product
# rule. The slope is then multiplied with what comes back.
#
# </details>


# %% id="03-ex2" exercise="03.2" slideshow={"slide_type": "skip"}
def my_gelu_backward(x: Tensor, d_y: Tensor) -> Tensor:
    """Return d_x of y = x P(x), P by erf."""
    ### BEGIN SOLUTION
    probability = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return d_y * (probability + x * density)
    ### STUB: ...
    ### END SOLUTION


# %% id="03-ex2-check" slideshow={"slide_type": "skip"}
check("03.2", my_gelu_backward)

# %% [markdown] id="03-embedding-text" slideshow={"slide_type": "slide"}
# ### Embedding: a look-up becomes an addition
#
# An embedding copies row $v$ of a table to every place where token $v$ stands. Used at many
# places means many ways, and they add up: **add** $d_y$ of each place to the row that was
# looked up.
#
# **Predict.** Token 1 occurs in `3 1 4 1 5` twice. What happens with `d_weight[tokens] = d_y`, which
# *writes* instead of adding?


# %% id="03-embedding" slideshow={"slide_type": "subslide"} tags=["mirrors:course_lib.backward.layers.embedding_backward"]
def embedding_backward(
    saved: EmbeddingSaved, d_y: Float[Tensor, "... D"]
) -> Float[Tensor, "V D"]:
    """Add d_y to the row that was looked up."""
    width = d_y.shape[-1]
    d_weight = d_y.new_zeros(saved.rows, width)
    return d_weight.index_add(0, saved.tokens.reshape(-1), d_y.reshape(-1, width))


# %% id="03-embedding-check" slideshow={"slide_type": "subslide"}
table = torch.randn(13, 4, requires_grad=True)
tokens, d_y = torch.tensor([3, 1, 4, 1, 5]), torch.randn(5, 4)
rows, saved = embedding(tokens, table)  # saved: the tokens, the number of rows
reference = torch.autograd.grad(rows, table, d_y)[0]
assert torch.allclose(embedding_backward(saved, d_y), reference, rtol=1e-12)

written = torch.zeros(13, 4)
written[tokens] = d_y  # writes: of two equal tokens, one is lost
wrong_rows = (written - reference).abs().sum(dim=1).nonzero().flatten()
print("rows that are wrong:", wrong_rows.tolist())
assert wrong_rows.tolist() == [1]

# %% [markdown] id="03-embedding-notes" slideshow={"slide_type": "notes"}
# (2 min) The wrong version is right on every test in which no token occurs twice. Tests must
# hold repeated tokens. Rows of tokens that didn't occur have the gradient 0.

# %% [markdown] id="03-ce-text" slideshow={"slide_type": "slide"}
# ## 5 · The start of it all: softmax with cross-entropy
#
# The backward pass begins at the loss. For one token with logits $z$ and the right answer $t$:
#
# $$L = -\ln p_t = -z_t + \ln \sum_v e^{z_v}$$
#
# The first term has the slope $-1$ at $t$ and 0 elsewhere. The second has the slope
# $e^{z_v} / \sum e^{z} = p_v$. Together, with $y$ = 1 at the right answer and 0 elsewhere:
#
# $$d_z = p - y$$
#
# **Predict.** Will the logit of the right answer have a positive or a negative gradient?

# %% id="03-ce" slideshow={"slide_type": "subslide"}
logits = torch.tensor([2.0, 1.0, 0.2, -1.0], requires_grad=True)
target = 1
p = logits.softmax(dim=-1)
y = F.one_hot(torch.tensor(target), 4)

reference = torch.autograd.grad(-p[target].log(), logits)[0]
assert torch.allclose(p - y, reference, rtol=1e-12)
assert abs((p - y).sum()) < 1e-12  # what the others lose, the right answer gains

# %% id="03-ce-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
_ = belief_minus_truth(
    p.detach(), (p - y).detach(), ["cat", "dog", "fox", "owl"], target,
    title="The gradient is what was believed, less what is true",
)  # fmt: skip

# %% [markdown] id="03-ce-answer" slideshow={"slide_type": "skip"}
# **Answer.** Negative: raising the right logit lowers the loss. The gradient is the *error* itself, as
# a probability. An answer held with 99 % and right gets almost no correction; one held with 99 %
# and wrong gets nearly the largest there is. It never exceeds 1 in size, however wrong the model was.

# %% [markdown] id="03-ce-notes" slideshow={"slide_type": "notes"}
# (3 min) One of the nicest formulas of the field: two complicated functions, and the slope of
# both together is a subtraction. It is also why libraries fuse the two.

# %% [markdown] id="03-ex3-text" slideshow={"slide_type": "skip"}
# ### Exercise 03.3 · Softmax + cross-entropy backward
#
# Write `my_cross_entropy_backward(logits, targets, mask)`, which returns `d_logits` of the **mean**
# loss over the tokens that count.
#
# - `logits` is `[..., V]`, floating point; `targets` is `[...]`, int64, from 0 to V − 1; `mask` is
#   `[...]`, bool, True where a token counts. `d_logits` is like `logits`.
# - A token that does not count has the gradient 0, and does not count in the mean.
# - If no token counts at all, everything is 0 (not nan).
# - A logit may be 1000. `torch.softmax` is allowed here; autograd and cross-entropy functions
#   are not. Leave what you are given as it is.
#
# <details><summary>Hint</summary>
#
# `F.one_hot(targets, V)` makes $y$. A mask of shape `[...]` needs a last dimension before it can be
# multiplied with `[..., V]`: `mask.unsqueeze(-1)`. How many tokens share the mean?
#
# </details>


# %% id="03-ex3" exercise="03.3" slideshow={"slide_type": "skip"}
def my_cross_entropy_backward(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the gradient of the masked mean loss by the logits."""
    ### BEGIN SOLUTION
    p = torch.softmax(logits, dim=-1)
    y = F.one_hot(targets, logits.shape[-1])
    counted = max(int(mask.sum()), 1)
    return (p - y) * mask.unsqueeze(-1) / counted
    ### STUB: ...
    ### END SOLUTION


# %% id="03-ex3-check" slideshow={"slide_type": "skip"}
check("03.3", my_cross_entropy_backward)

# %% [markdown] id="03-whole-text" slideshow={"slide_type": "slide"}
# ### All of it together
#
# A small network with every piece of this chapter: embedding → linear → GELU → residual →
# linear → softmax + cross-entropy. Each forward function of `course_lib` returns its output **and what
# its backward needs**.
#
# **Predict.** Read the forward cell from its last line to its first. Which gradient must be a
# sum of two?

# %% id="03-whole-forward" slideshow={"slide_type": "subslide"}
tokens, targets = torch.randint(13, (4, 5)), torch.randint(13, (4, 5))
shapes = {"embedding": (13, 8), "weight": (8, 8), "bias": (8,), "head": (13, 8)}
net = {name: 0.5 * torch.randn(shape) for name, shape in shapes.items()}


def forward(net: dict[str, Tensor]) -> tuple[Tensor, tuple]:
    """Return the logits, and what each layer saved."""
    x, saved_embedding = embedding(tokens, net["embedding"])
    z, saved_layer = linear(x, LinearWeights(net["weight"], net["bias"]))
    a, saved_gelu = gelu(z)
    logits, saved_head = linear(x + a, LinearWeights(net["head"], None))
    return logits, (saved_embedding, saved_layer, saved_gelu, saved_head)


# %% id="03-whole-backward" slideshow={"slide_type": "subslide"}
def gradients(net: dict[str, Tensor]) -> dict[str, Tensor]:
    """All gradients of the mean loss by hand: from the last line to the first."""
    logits, (saved_embedding, saved_layer, saved_gelu, saved_head) = forward(net)
    d_logits = cross_entropy_backward(logits, targets)
    d_sum, d_head = linear_backward(saved_head, d_logits)
    d_z = gelu_backward(saved_gelu, d_sum)
    d_through, d_layer = linear_backward(saved_layer, d_z)
    d_x = d_sum + d_through  # the way past the layer, and the way through it
    d_table = embedding_backward(saved_embedding, d_x)
    return dict(zip(net, (d_table, *d_layer, d_head.weight), strict=True))


# %% id="03-whole-check" slideshow={"slide_type": "subslide"}
def loss_now() -> Tensor:
    """The mean loss, by torch's own function."""
    return F.cross_entropy(forward(net)[0].flatten(0, 1), targets.flatten())


by_hand = gradients(net)
by_nudge = {name: numerical_gradient(loss_now, net[name]) for name in net}
assert max(relative_errors(by_hand, by_nudge).values()) < 1e-7

leaves = [tensor.requires_grad_() for tensor in net.values()]
by_autograd = dict(zip(net, torch.autograd.grad(loss_now(), leaves), strict=True))
assert max(relative_errors(by_hand, by_autograd).values()) < 1e-12
print("by hand = by nudges (within 1e-7) = autograd's (within 1e-12)")

# %% id="03-whole-train" slideshow={"slide_type": "subslide"}
with torch.no_grad():  # autograd is switched off
    start = loss_now().item()
    for _step in range(200):
        for name, gradient in gradients(net).items():
            net[name] -= 0.5 * gradient  # old - learning rate x gradient
    end = loss_now().item()
assert end < 0.5 * start
print("200 updates without autograd: the loss is less than half")

# %% [markdown] id="03-whole-after" slideshow={"slide_type": "skip"}
# **What this proved.** `x` goes into the layer and past it, so its gradient is a sum of two. Nothing
# in `gradients` is more than a line per layer, in reverse order, and it equals two independent
# references: autograd, and the loss itself under nudges. The loss falls without autograd.

# %% [markdown] id="03-whole-notes" slideshow={"slide_type": "notes"}
# (5 min) Put the forward and the backward cell side by side: the same names, the reverse order.
# The whole Transformer (chapter 04) is the same with two more layers.

# %% [markdown] id="03-summary" slideshow={"slide_type": "slide"}
# ## Summary
#
# 1. A gradient is what a nudge would tell, for all parameters. It points uphill; the slope
#    towards $u$ is gradient · $u$.
# 2. Along a way multiply, over all ways add. Autograd walks its recorded graph backwards.
# 3. Each layer takes $d_y$ and returns $d_y J$, without ever forming $J$. What was broadcast
#    forward is summed backward.
# 4. Linear, GELU, embedding, residual: one or two lines each. The loss starts with $p - y$.
# 5. A check must be relative, independent, and refuse zeros.

# %% [markdown] id="03-formulas" slideshow={"slide_type": "skip"}
# ## Formula sheet
#
# | forward | backward |
# |---|---|
# | broadcast $b$ over the rows | sum over the rows |
# | sum over the rows | broadcast over the rows |
# | $y = x + c$ | $d_x = d_y$ and $d_c = d_y$ |
# | $y = x \cdot c$, element by element | $d_x = d_y \cdot c$ and $d_c = d_y \cdot x$ |
# | $y = f(x)$, element by element | $d_x = d_y \cdot f'(x)$ |
# | reshape, transpose | reshape, transpose back |
# | $y = x W^\top + b$ | $d_x = d_y W$, $\;d_W = d_y^\top x$, $\;d_b = \sum_r d_y$ |
# | $y = x P(x)$ | $d_x = d_y\,(P + x P')$, $\;P' = e^{-x^2/2} / \sqrt{2\pi}$ |
# | $y = $ rows of a table | add $d_y$ to the rows that were looked up |
# | $y = x + f(x)$ | $d_x = d_y + $ what comes back through $f$ |
# | mean of $-\ln p_t$ over $n$ tokens | $d_z = (p - y) / n$ |
# | slope by a nudge $h$ | $\big(L(x + h) - L(x - h)\big) / 2h$, $\;h \approx 10^{-5}$ in float64 |
#
# ## Words of this chapter
#
# backward pass 反向传播 · gradient 梯度 · chain rule 链式法则 · autograd (automatic
# differentiation) 自动微分 · computational graph 计算图 · Jacobian 雅可比矩阵 ·
# vector-Jacobian product 向量-雅可比积 · broadcast 广播 · residual 残差 · finite difference
# 有限差分
#
# ## To read
#
# - D. Rumelhart, G. Hinton, R. Williams, *Learning representations by back-propagating errors*,
#   1986 (Nature 323): four pages that began it.
# - A. Karpathy, *micrograd*: an autograd engine of about a hundred lines.
# - A. Baydin et al., *Automatic Differentiation in Machine Learning: a Survey*, 2018
#   (arXiv:1502.05767): forward and reverse mode, and why not nudges.
#
# **Next:** 04 · The gradients of a Transformer: layer norm, attention, and then all of it.
