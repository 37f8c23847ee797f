# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] id="04-title" slideshow={"slide_type": "slide"}
# # 04 · The gradients of a Transformer
#
# **How do the gradients of a whole Transformer come about, and what do they cost?**
#
# *About 80 minutes with the exercises · no GPU needed*
#
# data → forward → loss → **backward** → sync → update

# %% [markdown] id="04-title-notes" slideshow={"slide_type": "notes"}
# (1 min) Chapter 03 had the rules and three layers. Two layers are left, layer norm and
# attention; then all is put together, and we look at the bill: memory and time.

# %% [markdown] id="04-goals" slideshow={"slide_type": "slide"}
# ## What you will be able to do
#
# 1. Write the backward pass of layer norm (层归一化) and of attention (注意力).
# 2. Walk back through a whole Transformer, and prove every gradient equal to autograd's.
# 3. Say why a key bias would have the gradient zero.
# 4. Predict how much memory the backward pass needs, and trade it for recomputation (重计算).
# 5. Say why backward costs about twice the forward pass.

# %% [markdown] id="04-goals-notes" slideshow={"slide_type": "notes"}
# (1 min) Goal 4 decides what fits on a GPU: in training, what is kept for the backward pass often
# takes more memory than the model itself.

# %% [markdown] id="04-recap" slideshow={"slide_type": "skip"}
# ## Before you start
#
# - `d_x` means: the gradient of the loss by `x`. It has the shape of `x`.
# - A backward function takes `d_y` and what the forward function has kept, and returns `d_x` and
#   the gradients of the weights.
# - Along a way multiply, over all ways add: a broadcast becomes a sum.
# - Linear, $y = xW^\top + b$: $d_x = d_y W$, $d_W = d_y^\top x$, $d_b = \sum_r d_y$.
# - A check is relative to the size of what it compares: zeros must fail.

# %% id="04-recap-check" slideshow={"slide_type": "skip"}
import math

import torch

x, d_y = torch.randn(5, 3), torch.randn(5, 4)
weight = torch.randn(4, 3, requires_grad=True)
d_weight = torch.autograd.grad(x @ weight.T, weight, d_y)[0]
assert torch.allclose(d_y.T @ x, d_weight, atol=1e-5)  # chapter 03, by hand

# %% id="04-setup" tags=["hide-input"] slideshow={"slide_type": "slide"}
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from course_lib.backward.blocks import attention_backward, block_backward
from course_lib.backward.gradcheck import directional_difference, relative_errors
from course_lib.backward.layers import (
    causal_attention_backward,
    gelu_backward,
    layer_norm_backward,
    linear_backward,
)
from course_lib.backward.model import gradients_by_hand
from course_lib.config import ModelConfig
from course_lib.forward.blocks import BlockSaved, MlpSaved, attention, block, mlp
from course_lib.forward.layers import causal_attention
from course_lib.forward.model import Transformer
from course_lib.forward.weights import BlockWeights, MlpWeights, named
from course_lib.loss import cross_entropy
from course_lib.teach.exercises import check
from course_lib.teach.figures.stages import training_loop

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)  # 64-bit numbers, so that checks are sharp
_ = training_loop(
    here="backward", title="Still backward: now through a whole Transformer"
)

# %% [markdown] id="04-norm-text" slideshow={"slide_type": "slide"}
# ## 1 · Layer norm
#
# For one token, layer norm takes off the mean, divides by the standard deviation, and then
# scales and shifts: $n = (x - \text{mean}) / \text{std}$, $\;y = n w + b$.
#
# $x_i$ reaches $n$ by **three ways**: directly, through the mean, and through the deviation. Each
# of the last two touches every element.
#
# **Predict.** What happens to $y$ if 5 is added to every $x_i$? If all are multiplied by 3? So
# which changes of $x$ can't matter to the loss?

# %% id="04-norm" slideshow={"slide_type": "subslide"}
x, d_y = torch.randn(2, 8, requires_grad=True), torch.randn(2, 8)
y = F.layer_norm(x, (8,), eps=0.0)
assert torch.allclose(F.layer_norm(x + 5, (8,), eps=0.0), y)
assert torch.allclose(F.layer_norm(x * 3, (8,), eps=0.0), y)

d_x = torch.autograd.grad(y, x, d_y)[0]
assert d_x.sum(dim=-1).abs().max() < 1e-12  # nothing along (1, 1, ..., 1)
assert (d_x * y).sum(dim=-1).abs().max() < 1e-12  # nothing along n itself
print("adding and stretching change nothing, and d_x has no part in either direction")

# %% [markdown] id="04-norm-answer" slideshow={"slide_type": "fragment"}
# **Answer.** Nothing happens, both times. So $d_x$ is $d_n = d_y w$ with two parts **taken out**: its
# mean (shifting), and its part along $n$ (stretching), which is $n \cdot \text{mean}(d_n n)$, since
# the mean of $n^2$ is 1. What is left is divided by std.

# %% [markdown] id="04-norm-notes" slideshow={"slide_type": "notes"}
# (4 min) The geometric view saves half a page of algebra. With eps above 0 the formula stays
# exact, though stretching then changes a little. Taking out a part: v minus n times (v·n)/(n·n).

# %% [markdown] id="04-ex1-text" slideshow={"slide_type": "skip"}
# ### Exercise 04.1 · Layer norm backward
#
# Write `my_layer_norm_backward(normalised, inverse_std, weight, d_y)`, which returns `(d_x,
# d_weight, d_bias)` of `y = normalised * weight + bias`, with
# `normalised = (x - mean) * inverse_std`.
#
# - `normalised` and `d_y` are `[..., D]`, `inverse_std` is `[..., 1]`: 1 / std of each token.
#   `weight` is `[D]`. The dots are any leading dimensions, at least one. One dtype for all.
# - Mean and deviation were taken over the last dimension, of each token by itself.
# - `weight` and `bias` served every token: what follows for their gradients?
# - Leave what you are given as it is. No autograd, no torch or course function for layer norm.
#
# <details><summary>Hint</summary>
#
# Go back in two steps: first through `n * weight + bias` (three gradients), then through the
# normalisation as the answer above says. `mean(dim=-1, keepdim=True)` keeps a shape that fits.
#
# </details>


# %% id="04-ex1" exercise="04.1" slideshow={"slide_type": "skip"}
def my_layer_norm_backward(
    normalised: Tensor, inverse_std: Tensor, weight: Tensor, d_y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (d_x, d_weight, d_bias)."""
    ### BEGIN SOLUTION
    d_n = d_y * weight
    shift = d_n.mean(dim=-1, keepdim=True)
    stretch = normalised * (d_n * normalised).mean(dim=-1, keepdim=True)
    d_x = (d_n - shift - stretch) * inverse_std
    d_weight = (d_y * normalised).flatten(0, -2).sum(dim=0)
    d_bias = d_y.flatten(0, -2).sum(dim=0)
    return d_x, d_weight, d_bias
    ### STUB: ...
    ### END SOLUTION


# %% id="04-ex1-check" slideshow={"slide_type": "skip"}
check("04.1", my_layer_norm_backward)

# %% [markdown] id="04-matmul-text" slideshow={"slide_type": "slide"}
# ## 2 · Attention
#
# Attention is three steps: scores $S = QK^\top / \sqrt{K}$, pattern $P = \text{softmax}(S)$, output
# $Y = PV$. Two are products of **two** matrices that both depend on the parameters:
#
# $$C = AB: \qquad d_A = d_C B^\top \qquad d_B = A^\top d_C$$
#
# It is the rule of the linear layer, for both factors. With heads and batches in front, transpose the
# last two dimensions: `B.transpose(-2, -1)`.

# %% id="04-matmul" slideshow={"slide_type": "fragment"}
A = torch.randn(2, 4, 5, requires_grad=True)  # a batch of two matrices
B = torch.randn(2, 5, 3, requires_grad=True)
d_C = torch.randn(2, 4, 3)
d_A, d_B = torch.autograd.grad(A @ B, (A, B), d_C)
assert torch.allclose(d_C @ B.transpose(-2, -1), d_A, rtol=1e-12)
assert torch.allclose(A.transpose(-2, -1) @ d_C, d_B, rtol=1e-12)

# %% [markdown] id="04-softmax-text" slideshow={"slide_type": "slide"}
# ### Softmax on its own
#
# Raise one score, and its share $p_i$ grows, while all shares shrink with the new total:
# $\partial p_j / \partial s_i = p_j (\mathbb{1}[i = j] - p_i)$. Summed over all ways,
#
# $$d_{s,i} = p_i \Big( d_{p,i} - \sum_j p_j\, d_{p,j} \Big)$$
#
# **Predict.** A mask has set a score to $-\infty$. What is its gradient? And what is the sum of all
# $d_s$ in a row?


# %% id="04-softmax" slideshow={"slide_type": "subslide"}
def back_through_softmax(p: Tensor, d_p: Tensor) -> Tensor:
    """From the gradient of the shares to that of the scores, row by row."""
    return p * (d_p - (p * d_p).sum(dim=-1, keepdim=True))


scores = torch.tensor([[0.5, 2.0, -1.0, -math.inf]], requires_grad=True)
d_p = torch.randn(1, 4)
p = torch.softmax(scores, dim=-1)
d_scores = back_through_softmax(p, d_p)
assert torch.allclose(d_scores, torch.autograd.grad(p, scores, d_p)[0], rtol=1e-12)
assert d_scores[0, 3] == 0
assert abs(d_scores.sum()) < 1e-12

# %% [markdown] id="04-softmax-answer" slideshow={"slide_type": "skip"}
# **Answer.** Both are 0. A forbidden score has the share 0, and with it the gradient 0: no mask is
# needed on the way back. And as the shares always add up to 1, what one wins the others lose.

# %% [markdown] id="04-softmax-notes" slideshow={"slide_type": "notes"}
# (4 min) The backward pass needs the pattern P, not the scores: so the pattern is what is kept,
# T numbers for each token and head. Remember that for the memory section.

# %% [markdown] id="04-ex2-text" slideshow={"slide_type": "skip"}
# ### Exercise 04.2 · Attention backward
#
# Write `my_attention_backward(q, k, v, pattern, d_y)`, which returns `(d_q, d_k, d_v)` of
# `pattern = softmax(q @ k^T / sqrt(K), later tokens forbidden)` and `y = pattern @ v`.
#
# - `q`, `k`, `v` and `d_y` are `[B, H, T, K]`; `pattern` is `[B, H, T, T]`, kept from the forward
#   pass. One dtype for all.
# - Every head of every row works by itself.
# - Leave what you are given as it is. No autograd, no course function for attention's backward.
#   You may use `back_through_softmax` from above, or write it again.
#
# <details><summary>Hint</summary>
#
# Three steps, from the end: `y = pattern @ v` gives `d_v` and `d_pattern`; softmax gives `d_scores`;
# `scores = q @ k.transpose(-2, -1) / sqrt(K)` gives `d_q` and `d_k`. Which step has the $\sqrt K$?
#
# </details>


# %% id="04-ex2" exercise="04.2" slideshow={"slide_type": "skip"}
def my_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, pattern: Tensor, d_y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (d_q, d_k, d_v)."""
    ### BEGIN SOLUTION
    d_v = pattern.transpose(-2, -1) @ d_y
    d_pattern = d_y @ v.transpose(-2, -1)
    total = (pattern * d_pattern).sum(dim=-1, keepdim=True)
    d_scores = pattern * (d_pattern - total) / math.sqrt(q.shape[-1])
    return d_scores @ k, d_scores.transpose(-2, -1) @ q, d_v
    ### STUB: ...
    ### END SOLUTION


# %% id="04-ex2-check" slideshow={"slide_type": "skip"}
check("04.2", my_attention_backward)

# %% [markdown] id="04-key-text" slideshow={"slide_type": "slide"}
# ### Why our keys have no bias
#
# Queries and values have a bias, keys have none. Suppose they had one, $c$: every key becomes
# $k_s + c$, so every score of a query $q$ grows by the same $q \cdot c / \sqrt{K}$.
#
# **Predict.** What does that change in the pattern? So what is the gradient of $c$?

# %% id="04-key" slideshow={"slide_type": "fragment"}
q, k, v = torch.randn(3, 2, 4, 6, 5).unbind()  # three tensors [B=2, H=4, T=6, K=5]
c = torch.randn(5, requires_grad=True)
y, saved = causal_attention(q, k + c, v)
assert torch.allclose(y, causal_attention(q, k, v)[0])  # the same answer without c

d_c = torch.autograd.grad(y, c, d_y := torch.randn_like(y))[0]
d_k = causal_attention_backward(saved, d_y)[1]
assert d_c.norm() < 1e-12 * d_k.norm()
print("a key bias changes nothing, and its gradient is 0 but for rounding")

# %% [markdown] id="04-key-answer" slideshow={"slide_type": "skip"}
# **Answer.** Nothing: softmax ignores what is added to a whole row. The true gradient is 0, and what is
# computed is rounding noise. Adam divides a gradient by its own size (chapter 05): it would turn that
# noise into real steps, different on every machine. So the key has no bias.

# %% [markdown] id="04-key-notes" slideshow={"slide_type": "notes"}
# (2 min) Many models carry this useless bias. It also is why our measure of error has a floor:
# 1e-17 compared with another 1e-17 says nothing.

# %% [markdown] id="04-mlp-text" slideshow={"slide_type": "slide"}
# ## 3 · A whole block
#
# Now layers are put together. The forward pass of the MLP is `up`, GELU, `down`; each kept what its
# backward needs. The backward pass reads **from the last line to the first**, and passes one gradient
# from line to line.


# %% id="04-mlp" slideshow={"slide_type": "fragment"} tags=["mirrors:course_lib.backward.blocks.mlp_backward"]
def mlp_backward(
    saved: MlpSaved, d_y: Float[Tensor, "B T D"]
) -> tuple[Float[Tensor, "B T D"], MlpWeights]:
    """Return d_x and the weights' gradients."""
    d_active, d_down = linear_backward(saved.down, d_y)
    d_hidden = gelu_backward(saved.gelu, d_active)
    d_x, d_up = linear_backward(saved.up, d_hidden)
    return d_x, MlpWeights(d_up, d_down)


# %% id="04-parts-check" slideshow={"slide_type": "subslide"}
model = Transformer(ModelConfig(13, 11), torch.Generator().manual_seed(0))
weights = model.weights().blocks[0]
x, d_y = torch.randn(4, 11, 64, requires_grad=True), torch.randn(4, 11, 64)

y_mlp, saved_mlp = mlp(x, weights.mlp)
y_attention, saved_attention = attention(x, weights.attention, heads=4)
with torch.no_grad():  # what we do by hand is not recorded
    by_mlp, _ = mlp_backward(saved_mlp, d_y)
    by_attention, _ = attention_backward(saved_attention, d_y)  # by q, by k and by v
for y, d_x in ((y_mlp, by_mlp), (y_attention, by_attention)):
    assert torch.allclose(d_x, torch.autograd.grad(y, x, d_y)[0], rtol=1e-9)

# %% [markdown] id="04-block-text" slideshow={"slide_type": "slide"}
# ### The block, forward
#
# ```python
# normed, saved_norm1 = layer_norm(x, weights.norm1)
# change, saved_attention = attention(normed, weights.attention, heads)
# x = x + change
# normed, saved_norm2 = layer_norm(x, weights.norm2)
# change, saved_mlp = mlp(normed, weights.mlp)
# x = x + change
# ```
#
# **Predict.** Twice `x` is used twice. Where do gradients add up on the way back?

# %% [markdown] id="04-block-notes" slideshow={"slide_type": "notes"}
# (3 min) Draw the two forks. At each fork the gradient of the stream is "what came down the
# straight way" plus "what came back through the layer". Exercise 04.3 is exactly that.

# %% [markdown] id="04-ex3-text" slideshow={"slide_type": "skip"}
# ### Exercise 04.3 · One whole block
#
# Write `my_block_backward(saved, d_y)`, which returns `(d_x, BlockWeights(norm1, attention, norm2,
# mlp))` for the block above, each gradient in the place of its weight.
#
# - `saved.norm1`, `saved.attention`, `saved.norm2`, `saved.mlp` hold what the four layers kept
#   (dropout is off here).
# - Use the course's `layer_norm_backward`, `attention_backward` and `mlp_backward`. Each takes
#   `(saved, d_y)` and returns `(d_x, gradients of its weights)`.
# - Leave `d_y` as it is. No autograd, and not the course's `block_backward`.
#
# <details><summary>Hint</summary>
#
# Begin with the last line: `d_y` goes into `x` as it is, and into `change` as it is. Through
# `change` it passes the MLP, then norm 2, and comes out at the same `x`: add. Then the same again
# for the first half.
#
# </details>


# %% id="04-ex3" exercise="04.3" slideshow={"slide_type": "skip"}
def my_block_backward(saved: BlockSaved, d_y: Tensor) -> tuple[Tensor, BlockWeights]:
    """Return d_x and the gradients of a block's weights."""
    ### BEGIN SOLUTION
    d_normed, d_mlp = mlp_backward(saved.mlp, d_y)
    d_through, d_norm2 = layer_norm_backward(saved.norm2, d_normed)
    d_middle = d_y + d_through
    d_normed, d_attention = attention_backward(saved.attention, d_middle)
    d_through, d_norm1 = layer_norm_backward(saved.norm1, d_normed)
    return d_middle + d_through, BlockWeights(d_norm1, d_attention, d_norm2, d_mlp)
    ### STUB: ...
    ### END SOLUTION


# %% id="04-ex3-check" slideshow={"slide_type": "skip"}
check("04.3", my_block_backward)

# %% [markdown] id="04-whole-text" slideshow={"slide_type": "slide"}
# ## 4 · The whole model
#
# Head, final norm, blocks in reverse order, the two embeddings: `gradients_by_hand` does nothing else
# (`course_lib/backward/model.py`, about 20 lines). It starts with $p - y$ at the logits.
#
# It claims a hundred thousand gradients. The reference: torch's own layer norm, GELU and attention
# (`kernels="fused"`), and autograd through all of it.
#
# **Predict.** How near can two different orders of the same sums come in float64? In float32?

# %% id="04-whole" slideshow={"slide_type": "subslide"}
from course_lib.data.addition import Addition

batch = Addition(digits=3, seed=0).batch(step=0, batch_size=64)


def errors_of(dtype: torch.dtype) -> dict[str, float]:
    """The relative error of every parameter's gradient by hand, against autograd's."""
    model = Transformer(ModelConfig(13, 11, kernels="fused")).to(dtype)
    cross_entropy(model(batch.inputs), batch.targets, batch.mask).backward()
    autograd = {name: parameter.grad for name, parameter in model.named_parameters()}
    return relative_errors(gradients_by_hand(model, batch), autograd)


# %% id="04-whole-check" slideshow={"slide_type": "subslide"} tags=["hide-input"]
from course_lib.teach.figures.gradient_checks import errors_by_parameter

errors = {"float64": errors_of(torch.float64), "float32": errors_of(torch.float32)}
limits = {"float64": 1e-10, "float32": 1e-5}
for dtype, limit in limits.items():
    assert max(errors[dtype].values()) < limit
    print(f"{dtype}: all parameters within {limit:g} of autograd")
_ = errors_by_parameter(errors, limits, title="Every gradient equals autograd's")

# %% id="04-direction" slideshow={"slide_type": "skip"}
by_hand = gradients_by_hand(model, batch)
tensors = {name: parameter.data for name, parameter in model.named_parameters()}
direction = {name: torch.randn_like(tensor) for name, tensor in tensors.items()}


def loss_now() -> Tensor:
    """The loss at the model's present parameters."""
    return cross_entropy(model(batch.inputs), batch.targets, batch.mask)


slope = directional_difference(loss_now, tensors, direction)  # two forward passes
expected = sum((by_hand[name] * direction[name]).sum() for name in tensors)
assert math.isclose(slope, expected, rel_tol=1e-6)
print("nudged in a random direction, the loss changes as all gradients together say")

# %% [markdown] id="04-whole-answer" slideshow={"slide_type": "skip"}
# **Answer.** Float64 keeps 16 digits, float32 about 7; a long sum loses one or two of them.
#
# **What this proved.** No line of our layers took part in the reference, and all gradients agree. A
# nudge of all parameters at once, in a random direction, needs neither autograd nor our formulas and
# says the same. The backward pass is no magic, and it is yours.

# %% [markdown] id="04-whole-notes" slideshow={"slide_type": "notes"}
# (4 min) Each row of the picture is one parameter tensor. The dashed lines are the limits. A
# forgotten factor, sign or way would put a dot near 1, at the far right.

# %% [markdown] id="04-wrong-text" slideshow={"slide_type": "slide"}
# ### A wrong backward pass, on purpose
#
# Somebody forgets the way through the pattern: query and key get the gradient 0, all else is
# right. They train, and watch the loss.
#
# **Predict.** Will the loss fall?

# %% id="04-wrong" slideshow={"slide_type": "fragment"}
start = loss_now().item()
for _step in range(40):
    gradients = gradients_by_hand(model, batch)
    for name in gradients:
        if "query" not in name and "key" not in name:  # forgotten
            tensors[name] -= 0.2 * gradients[name]
assert loss_now().item() < start - 0.2
print("with a wrong backward pass, the loss falls")

# %% [markdown] id="04-wrong-answer" slideshow={"slide_type": "skip"}
# **Answer.** It falls: the other parameters learn around the mistake. **A falling loss proves
# nothing about the gradients.** Such a model ends a little worse than it could, and nobody ever
# knows why. The relative error of the forgotten gradients is 1: our picture would have shown it at
# once.

# %% [markdown] id="04-wrong-notes" slideshow={"slide_type": "notes"}
# (2 min) The most dangerous mistakes in training code are those that only cost a little
# quality. Compare gradients, not curves.

# %% [markdown] id="04-memory-text" slideshow={"slide_type": "slide"}
# ## 5 · What must be kept
#
# Every backward line above used something from the forward pass: inputs, patterns, normalised
# vectors. All of it stays in memory from the forward pass to the backward pass: the
# **activations** (激活值).
#
# For one block and one token: $8D$ numbers of width, $3F$ of the MLP, $HT$ of the pattern, and 2.
#
# **Predict.** Which of these grows fastest with longer texts?

# %% id="04-memory" slideshow={"slide_type": "subslide"}
from course_lib.backward.memory import block_saved_bytes, saved_bytes

model = Transformer(ModelConfig(13, 11, layers=4)).float()
x = torch.randn(256, 11, 64, dtype=torch.float32)
weights = model.weights().blocks

with torch.no_grad():
    _, saved = block(x, weights[0], heads=4)
predicted = block_saved_bytes(batch=256, tokens=11, width=64, heads=4, hidden=256)
assert sum(predicted.values()) == 4 * 256 * 11 * (8 * 64 + 3 * 256 + 4 * 11 + 2)
assert saved_bytes(saved) == sum(predicted.values())  # counted = predicted, to the byte
print(
    f"one block keeps {saved_bytes(saved) / 1e6:.1f} MB, the formula's number exactly"
)

# %% id="04-memory-explorer" slideshow={"slide_type": "subslide"} tags=["hide-input"]
from course_lib.teach.widgets.saved_memory import saved_memory_explorer

saved_memory_explorer()

# %% [markdown] id="04-memory-answer" slideshow={"slide_type": "skip"}
# **Answer.** The pattern: $HT$ numbers for each of $T$ tokens, so it grows with $T^2$. With 11 tokens it
# is nothing, with thousands it is nearly everything. FlashAttention (Dao et al. 2022) never stores it:
# it computes the pattern again, piece by piece, in the backward pass.

# %% [markdown] id="04-memory-notes" slideshow={"slide_type": "notes"}
# (3 min) Move the slider to 4096 tokens. Also compare with the weights: one block of width 64
# has 50 thousand parameters, 0.2 MB; it keeps over 70 times that for a batch of 256.

# %% [markdown] id="04-recompute-text" slideshow={"slide_type": "slide"}
# ### Recomputation (重计算): memory for time
#
# Keep only each block's **input**, a $D$-vector a token. On the way back, run the block's forward
# pass **again**, just before its backward needs what it keeps. Also known as *activation
# checkpointing*.
#
# **Predict.** How do the gradients differ? How much more work is it?


# %% id="04-recompute" slideshow={"slide_type": "subslide"}
def keep_all(x: Tensor, d_y: Tensor) -> tuple[Tensor, int]:
    """Return d_x of four blocks, and the bytes kept in between."""
    kept = []
    for each in weights:
        x, saved = block(x, each, heads=4)
        kept.append(saved)
    size_bytes = saved_bytes(kept)
    while kept:
        d_y, _ = block_backward(kept.pop(), d_y)
    return d_y, size_bytes


# %% id="04-recompute-inputs" slideshow={"slide_type": "subslide"}
def keep_inputs(x: Tensor, d_y: Tensor) -> tuple[Tensor, int]:
    """The same, but keep only each block's input, and run the block again."""
    inputs = []
    for each in weights:
        inputs.append(x)
        x, _ = block(x, each, heads=4)  # what it saves is thrown away
    largest = saved_bytes(inputs)
    for each in reversed(weights):
        _, saved = block(inputs.pop(), each, heads=4)  # again
        largest = max(largest, saved_bytes((inputs, saved)))
        d_y, _ = block_backward(saved, d_y)
    return d_y, largest


# %% id="04-recompute-check" slideshow={"slide_type": "subslide"}
d_y = torch.randn_like(x)
with torch.no_grad():
    d_x, size_bytes = keep_all(x, d_y)
    d_x_again, size_bytes_again = keep_inputs(x, d_y)
assert torch.equal(d_x, d_x_again)  # the same bits
assert size_bytes == 4 * sum(predicted.values())
assert size_bytes_again < 0.4 * size_bytes
print(
    "equal bits, less than 40 % of the bytes; one block's activations and four inputs"
)

# %% id="04-autograd-bytes" slideshow={"slide_type": "subslide"}
from course_lib.backward.memory import autograd_saves

kept_bytes = {"ours, all kept": size_bytes, "ours, recomputed (peak)": size_bytes_again}
leaf = x.clone().requires_grad_()
known = [tensor for _, tensor in named(model.weights())]
for kernels in ("readable", "fused"):
    with autograd_saves(known) as kept:
        y = leaf
        for each in weights:
            y, _ = block(y, each, 4, kernels)
    kept_bytes[f"autograd, {kernels} layers"] = saved_bytes(kept)
reference = torch.autograd.grad(y, leaf, d_y)[0]
assert relative_errors({"x": d_x}, {"x": reference})["x"] < 1e-5

# %% id="04-torch-checkpoint" slideshow={"slide_type": "subslide"}
from torch.utils.checkpoint import checkpoint

with autograd_saves(known) as kept:
    y = leaf
    for each in weights:
        y = checkpoint(
            lambda x, w: block(x, w, 4, "fused")[0], y, each, use_reentrant=False
        )
    kept_bytes["torch's checkpoint (inputs)"] = saved_bytes([*kept, leaf])
d_x_torch = torch.autograd.grad(y, leaf, d_y)[0]
assert relative_errors({"x": d_x_torch}, {"x": reference})["x"] < 1e-5

# %% id="04-memory-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
from course_lib.teach.figures.memory import bytes_kept

_ = bytes_kept(
    kept_bytes, title="Four blocks: what waits for the backward pass",
    xlabel="kept by four blocks, batch of 256",
)  # fmt: skip

# %% [markdown] id="04-recompute-answer" slideshow={"slide_type": "skip"}
# **Answer.** Not in a single bit: the same arithmetic is done twice. The work grows by one more forward
# pass. Autograd on our readable layers keeps more than we do: what each small operation needs, not
# what each layer needs. Torch's fused layers bring backward functions of their own, as ours do, and keep
# the least. The deeper the model, the more recomputation
# saves: with $L$ blocks it keeps $L$ inputs and one block instead of $L$ blocks.

# %% [markdown] id="04-recompute-notes" slideshow={"slide_type": "notes"}
# (4 min) torch.utils.checkpoint does what `keep_inputs` does. The bar shows what it holds after
# the forward pass; one block's activations come on top during the backward pass, as in ours.

# %% [markdown] id="04-cost-text" slideshow={"slide_type": "slide"}
# ## 6 · What it costs
#
# Forward, a linear layer does **one** matrix product. Backward it does two of the same size: one for
# $d_x$, one for $d_W$. In attention, too, each product brings two.
#
# **Predict.** Let torch count all FLOPs (multiplications and additions) of matrix products. How many
# times the forward pass is the backward pass, exactly? And with recomputation?


# %% id="04-flops" slideshow={"slide_type": "subslide"}
from torch.utils.flop_counter import FlopCounterMode


def flops_of(run) -> int:
    """Count the FLOPs of the matrix products in one call."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return counter.get_total_flops()


y, saved = block(x, weights[0], heads=4)
forward = flops_of(lambda: block(x, weights[0], heads=4))
backward = flops_of(lambda: block_backward(saved, d_y))
assert flops_of(lambda: keep_inputs(x, d_y)) == 4 * (forward + forward + backward)
print(f"backward / forward = {backward / forward}")

# %% id="04-seconds" slideshow={"slide_type": "subslide"} tags=["hide-input"]
from course_lib.cost.measure import median_time_s
from course_lib.teach.figures.backward_ratio import backward_over_forward


def seconds_ratio(width: int, batch: int, tokens: int) -> float:
    """How many times the forward pass of one block is its backward pass, in seconds."""
    model = Transformer(ModelConfig(13, tokens, layers=1, width=width)).float()
    each, x = model.weights().blocks[0], torch.randn(batch, tokens, width).float()
    with torch.no_grad():
        d_y, saved = block(x, each, heads=4)
        forward_s = median_time_s(lambda: block(x, each, heads=4), repeats=7)
        return median_time_s(lambda: block_backward(saved, d_y), repeats=7) / forward_s


ratios = {
    "width 64 (ours)": seconds_ratio(64, 256, 11),
    "width 256": seconds_ratio(256, 8, 64),
}
ratios["width 512"] = seconds_ratio(512, 4, 64)
_ = backward_over_forward(ratios, title="What the clock says: one block, by hand")

# %% [markdown] id="04-cost-answer" slideshow={"slide_type": "skip"}
# **Answer.** Exactly 2 in matrix products; so a training step costs about 3 forward passes, and 4
# with recomputation, a third more. Your picture shows this machine's **seconds**. There GELU, softmax and
# the norms count, too, which cost about the same both ways, and products of other shapes run at other
# speeds. So the clock says *about* 2, mostly between 1 and 2½. With $2N$ FLOPs forward for each token
# and $N$ parameters, a step costs $6N$: that number returns in chapter 06.

# %% [markdown] id="04-cost-notes" slideshow={"slide_type": "notes"}
# (3 min) Nudging would cost two forward passes for each of a hundred thousand parameters. The
# backward pass costs two for all of them: that is what makes training possible.

# %% [markdown] id="04-summary" slideshow={"slide_type": "slide"}
# ## Summary
#
# 1. Layer norm backward takes two parts out of the gradient: its mean, and its part along $n$.
#    Attention backward is two matrix products for each product, and softmax in between.
# 2. A Transformer's backward pass is its forward pass read from the end, one line a layer. All
#    gradients equal autograd's; a falling loss would not have proved it.
# 3. Softmax ignores a shift, so a key bias has the gradient 0.
# 4. Kept for each block and token: $8D + 3F + HT + 2$ numbers. Recomputation keeps $D$.
# 5. Backward is 2 × forward in matrix products; a step is 3, with recomputation 4.

# %% [markdown] id="04-formulas" slideshow={"slide_type": "skip"}
# ## Formula sheet
#
# | forward | backward |
# |---|---|
# | $y = nw + b$ | $d_n = d_y w$, $\;d_w = \sum_r d_y n$, $\;d_b = \sum_r d_y$ |
# | $n = (x - \text{mean}) / \text{std}$ | $d_x = \big(d_n - \text{mean}(d_n) - n\,\text{mean}(d_n n)\big) / \text{std}$ |
# | $C = AB$ | $d_A = d_C B^\top$, $\;d_B = A^\top d_C$ |
# | $p = \text{softmax}(s)$ | $d_s = p\,(d_p - \sum_j p_j d_{p,j})$ |
# | $S = QK^\top / \sqrt K$ | $d_Q = d_S K / \sqrt K$, $\;d_K = d_S^\top Q / \sqrt K$ |
# | kept by a block, a token | $8D + 3F + HT + 2$ numbers |
# | FLOPs of matrix products | forward 1, backward 2, recomputation 1 more |
#
# ## Words of this chapter
#
# layer norm 层归一化 · attention 注意力 · activations 激活值 · recomputation (activation
# checkpointing) 重计算
#
# ## To read
#
# - J. Ba, J. Kiros, G. Hinton, *Layer Normalization*, 2016 (arXiv:1607.06450).
# - T. Chen et al., *Training Deep Nets with Sublinear Memory Cost*, 2016 (arXiv:1604.06174):
#   recomputation.
# - T. Dao et al., *FlashAttention*, 2022 (arXiv:2205.14135): attention that never stores the pattern.
#
# **Next:** 05 · Parameter update: what is done with all these gradients.
