# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] id="01-title" slideshow={"slide_type": "slide"}
# # 01 · Forward pass (前向计算)
#
# **How does a Transformer get from a problem to an answer?**
#
# *About 60 minutes · chapter 00 comes before · no GPU needed*
#
# data → **forward** → loss → backward → sync → update

# %% [markdown] id="01-title-notes" slideshow={"slide_type": "notes"}
# (1 min) In chapter 00 the model was a function with a hundred thousand parameters. Today we open
# it. Everything inside is a sum, a product, an exponential or a root; nothing else.

# %% [markdown] id="01-goals" slideshow={"slide_type": "slide"}
# ## What you will be able to do
#
# 1. Follow a problem from text to probabilities, and name the shape at every step.
# 2. Build layer norm, causal attention and its heads by hand, each equal to PyTorch's own.
# 3. Say why attention scores are scaled, and prove what the causal mask forbids.
# 4. Say how weights must start, and why.
# 5. Count the parameters, FLOPs and bytes of every piece by a formula.

# %% [markdown] id="01-goals-notes" slideshow={"slide_type": "notes"}
# (1 min) Goal 5 sounds dry. It is what decides, later, how many GPUs one needs.

# %% [markdown] id="01-recap" slideshow={"slide_type": "skip"}
# ## Recap of chapter 00
#
# - A problem such as `347+586=3390` is a row of **tokens** (词元), numbers from 0 to 12.
# - At every place the model gives 13 scores (**logits**), one for each possible next token.
# - **Softmax** turns them into probabilities.
# - The **loss** is −ln of the probability that the right answer got.
# - A model that knows nothing has the loss ln 13.
#
# The last line, on a machine:

# %% id="01-recap-check" slideshow={"slide_type": "skip"}
import math

import torch

no_opinion = torch.zeros(13)  # 13 equal scores
probability = torch.softmax(no_opinion, dim=-1)[3]
assert math.isclose(-math.log(probability), math.log(13), rel_tol=1e-6)

# %% [markdown] id="01-map-text" slideshow={"slide_type": "slide"}
# ## The whole way
#
# A **Transformer** (变换器) turns each token into a vector of D numbers. Blocks change these vectors
# a little, one after another. In a block, **attention** (注意力) lets tokens look at each other,
# and an **MLP** works on each token alone. At the end a vector becomes V scores.

# %% id="01-setup" tags=["hide-input"] slideshow={"slide_type": "subslide"}
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from course_lib.config import preset
from course_lib.cost.formulas import block_costs, model_costs, total
from course_lib.cost.measure import median_time_s
from course_lib.data.addition import Addition, Problems, decode, encode
from course_lib.forward import layers
from course_lib.forward.blocks import block, mlp
from course_lib.forward.model import Transformer
from course_lib.loss import cross_entropy
from course_lib.teach.exercises import check
from course_lib.teach.figures.attention import sharpness
from course_lib.teach.figures.costs import work_and_time
from course_lib.teach.figures.sizes import size_by_layer
from course_lib.teach.figures.transformer import gelu_curve, transformer_map
from course_lib.teach.widgets.attention_explorer import attention_explorer
from course_lib.train.evaluate import evaluate
from course_lib.train.fit import start_run
from course_lib.train.step import train_step

homework = Addition(digits=3, seed=0)
config = preset("addition").model(homework.vocab_size, homework.context)
_ = transformer_map(layers=config.layers, title="From tokens to probabilities")

# %% [markdown] id="01-map-notes" slideshow={"slide_type": "notes"}
# (3 min) Leave the picture up for a moment: every section lights up one box of it. The orange
# line is the residual stream: what a block computes is added to what was there before.

# %% [markdown] id="01-model-text" slideshow={"slide_type": "skip"}
# One set of letters serves the whole course:
#
# | | | ours |
# |---|---|---|
# | B | rows in a batch | 2 |
# | T | tokens in a row | 11 |
# | D | width of a token's vector | 64 |
# | H | heads, each of width K = D ÷ H | 4, K = 16 |
# | F | hidden width of the MLP | 256 |
# | V | symbols in the vocabulary | 13 |
#
# We take the model of chapter 00, untrained, and open it piece by piece. Two choices make our
# checks sharp. All numbers have 64 bits, so that rounding can't hide a mistake. And every
# parameter is moved a little off its start: a fresh model has biases of 0, and with those a
# forgotten bias would go unnoticed.

# %% id="01-model" slideshow={"slide_type": "skip"}
torch.manual_seed(0)
model = Transformer(config).double().requires_grad_(False)
for parameter in model.parameters():
    parameter += 0.1 * torch.randn_like(parameter)
weights = model.weights()
B, T = 2, homework.context
D, H, K, V = config.width, config.heads, config.head_width, config.vocab_size
assert (D, H, K, config.hidden, V) == (64, 4, 16, 256, 13)

# %% [markdown] id="01-embed-text" slideshow={"slide_type": "slide"}
# ## 1 · From symbols to vectors
#
# Token 3 is not "more" than token 2: the numbers are only names. So each token has a row of D
# learnt numbers in a table, its **embedding** (嵌入), and the model looks the row up.
#
# A 3 may stand for hundreds or for ones. So a second table has a row for each *place*, and the
# two are added.
#
# **Predict.** Could looking up be written as a matrix product? And do two 3s get equal vectors?

# %% id="01-embed" slideshow={"slide_type": "subslide"}
tokens = torch.stack([encode("347+586=339"), encode("905+078=389")])  # [2, 11]
table = weights.token_embedding  # [V, D] = [13, 64]
embedded = table[tokens]  # [2, 11, 64]
one_hot = F.one_hot(tokens, V).double()  # [2, 11, 13]: a single 1 in each row
assert torch.equal(one_hot @ table, embedded)
assert torch.equal(F.embedding(tokens, table), embedded)

x = embedded + weights.position_embedding[:T]  # the same places for every row
first, second = 0, 8  # where the 3s of 347+586=339 stand
assert torch.equal(embedded[0, first], embedded[0, second])
assert not torch.allclose(x[0, first], x[0, second])
print("tokens", tuple(tokens.shape), "→ vectors", tuple(x.shape))

# %% [markdown] id="01-embed-notes" slideshow={"slide_type": "notes"}
# (3 min) Yes, a product: a row with a single 1, times the table. Looking up does the same without
# 12 useless products by zero. The two 3s are equal before their places are added, and different
# after. Rotary embeddings tell places apart in another way; a learnt table is the simplest.

# %% [markdown] id="01-norm-text" slideshow={"slide_type": "slide"}
# ## 2 · Layer norm (层归一化)
#
# Before each layer, every token's vector is brought to a common size:
#
# $$y = \frac{x - \text{mean}}{\sqrt{\text{variance} + \varepsilon}} \cdot w + b$$
#
# The variance is the mean of $(x - \text{mean})^2$; $\varepsilon = 10^{-5}$ keeps a constant vector from
# a division by 0; $w$ and $b$, D numbers each, are learnt.
#
# **Predict.** `[1, 2, 3, 4]`: the squared distances from the mean add up to 5. Is the variance 5 ÷ 4
# or 5 ÷ 3?

# %% id="01-norm" slideshow={"slide_type": "fragment"}
vector = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
distances = vector - vector.mean()
variance = (distances**2).mean()  # divided by 4, not by 3
normed = distances / (variance + 1e-5).sqrt()
print("variance", variance.item(), " normed", [f"{v:.4f}" for v in normed])

assert torch.allclose(nn.LayerNorm(4).double()(vector), normed, rtol=0, atol=1e-12)

# %% [markdown] id="01-norm-notes" slideshow={"slide_type": "notes"}
# (3 min) Each token by itself: no token sees another here, and no row of the batch another row.
# That is the difference from batch norm. Ask who has met the two definitions of variance.

# %% [markdown] id="01-ex1-text" slideshow={"slide_type": "skip"}
# **What this proved.** PyTorch's layer norm divides by D, here 4. `torch.var` divides by D − 1
# unless it is told not to (`correction=0`): with D = 4 that would give −1.1619 for −1.3416, a
# large mistake, with D = 64 one of less than 1 %, which training would hide from you.
#
# In a batch each token has a mean of its own. `x.mean(dim=-1, keepdim=True)` takes it over the
# last dimension and keeps that dimension as 1: from `[2, 11, 64]` to `[2, 11, 1]`, so that it can be
# subtracted from `x` again.
#
# ### Exercise 01.1 · Build layer norm
#
# Write `my_layer_norm(x, weight, bias, eps)` by the formula above.
#
# - `x` is `[..., D]`: any number of dimensions, the last one is the token's vector. `weight` and
#   `bias` are `[D]`. The result has the shape and dtype of `x`.
# - Sums, products and roots only: no `layer_norm` of PyTorch's or of the course's.
# - Leave `x` as it is.
#
# <details><summary>Hint</summary>
#
# Do what the cell above does, but over the last dimension only, with `keepdim=True`. The weight
# and the bias come last: the `[D]` of each fits the last dimension of `[..., D]` by itself.
#
# </details>


# %% id="01-ex1" exercise="01.1" slideshow={"slide_type": "skip"}
def my_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias for each token."""
    ### BEGIN SOLUTION
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = (centred**2).mean(dim=-1, keepdim=True)
    return centred / (variance + eps).sqrt() * weight + bias
    ### STUB: ...
    ### END SOLUTION


# %% id="01-ex1-check" slideshow={"slide_type": "skip"}
check("01.1", my_layer_norm)

# %% [markdown] id="01-qkv-text" slideshow={"slide_type": "slide"}
# ## 3 · Attention (注意力): tokens look at each other
#
# To write the first digit of the sum, the model must look at 7 and at 6. Each token makes three
# vectors from its own:
#
# - a **query** (查询): what am I looking for?
# - a **key** (键): what do I have?
# - a **value** (值): what do I hand over?
#
# Each is a **linear layer** $x W^\top + b$. A query and a key that point the same way give a
# large product: a high **score**.

# %% id="01-qkv" slideshow={"slide_type": "subslide"}
w = weights.blocks[0]  # the first block
n, _ = layers.layer_norm(x, w.norm1)  # [2, 11, 64]; the _ is for the backward pass
query, _ = layers.linear(n, w.attention.query)
key, _ = layers.linear(n, w.attention.key)
value, _ = layers.linear(n, w.attention.value)

q, k, v = query[..., :K], key[..., :K], value[..., :K]  # head 0: the first 16 of 64
scores = q @ k.transpose(-2, -1)  # [2, 11, 16] @ [2, 16, 11] → [2, 11, 11]
by_hand = sum(q[0, 7, i] * k[0, 2, i] for i in range(K))  # how much "=" wants the 7
assert torch.isclose(scores[0, 7, 2], by_hand)
assert torch.allclose(query, F.linear(n, *w.attention.query))

# %% [markdown] id="01-qkv-notes" slideshow={"slide_type": "notes"}
# (4 min) Write the row and the column of scores[0, 7, 2] on the board: row 7 is "=", which must
# predict the ones digit; column 2 is the 7. All T × T scores come from one matrix product.
# Every layer of the course returns two things: its output, and what the backward pass will need.

# %% [markdown] id="01-scale-text" slideshow={"slide_type": "subslide"}
# ### Why scores are scaled
#
# A score is a sum of K products. If the numbers in queries and keys are of size 1 (their standard
# deviation), each product is as well, and a sum of K independent ones has the size √K.
#
# Softmax turns a row of scores into shares. **Predict.** What becomes of the largest share when
# K grows from 1 to 1024 and nothing is done about it?

# %% id="01-scale" tags=["hide-input"] slideshow={"slide_type": "subslide"}
torch.manual_seed(1)
widths = [1, 4, 16, 64, 256, 1024]
plain, scaled = [], []
for width in widths:
    queries, keys = torch.randn(500, 1, width), torch.randn(500, width, 11)
    score = (queries @ keys).squeeze(1)  # 500 rows of 11 scores
    assert abs(score.std() / math.sqrt(width) - 1) < 0.1  # their size is √K
    plain.append(torch.softmax(score, -1).amax(-1).mean())
    scaled.append(torch.softmax(score / math.sqrt(width), -1).amax(-1).mean())
assert plain[-1] > 0.9
assert max(scaled) < 0.5

_ = sharpness(
    widths, plain, scaled,
    title="Without the scale, a wide head looks at one token only",
)  # fmt: skip

# %% [markdown] id="01-scale-notes" slideshow={"slide_type": "notes"}
# (3 min) The "scaled" in scaled dot product attention (Vaswani et al. 2017, section 3.2.1). And where
# softmax is that sure, a small change of the scores changes hardly anything, so there is hardly
# a gradient to learn from (chapter 03).

# %% [markdown] id="01-softmax-text" slideshow={"slide_type": "subslide"}
# ### Softmax: scores become shares
#
# (**Answer.** Towards 100 %: chance decides whom an unscaled head looks at. Divided by √K, scores
# keep the size 1.)
#
# $$p_i = \frac{e^{z_i}}{\sum_j e^{z_j}}$$
#
# Positive, and 1 in total. Adding the same number to all scores changes nothing: it cancels.
# So a bias of the key, which adds the same to all scores of a query, would do nothing: our keys
# have none.
#
# **Predict.** $e^{1000}$ is more than any float can hold. What is the softmax of `[1000, 1000]`
# by the formula, and what should it be?


# %% id="01-softmax" tags=["mirrors:course_lib.forward.layers.softmax"] slideshow={"slide_type": "subslide"}
def softmax(x: Float[Tensor, "... N"]) -> Float[Tensor, "... N"]:
    """exp(x) / sum exp(x), with the largest score taken off first."""
    largest = x.detach().amax(dim=-1, keepdim=True)
    exponential = (x - largest).exp_()
    return exponential / exponential.sum(dim=-1, keepdim=True)


large = torch.tensor([1000.0, 1000.0])
print("by the formula:", (large.exp() / large.exp().sum()).tolist())
print("shifted first: ", softmax(large).tolist())
assert torch.allclose(softmax(scores), torch.softmax(scores, -1))

# %% [markdown] id="01-softmax-notes" slideshow={"slide_type": "notes"}
# (2 min) inf ÷ inf is nan, "not a number". With the largest score at 0, no exponential is above 1.

# %% [markdown] id="01-mask-text" slideshow={"slide_type": "slide"}
# ### The causal mask (因果掩码): no peeking
#
# At every place the model must predict the *next* token, which stands in the very same row. If it
# could look there, it would copy instead of learn. So scores of later tokens are set to −∞
# before the softmax: $e^{-\infty} = 0$.
#
# The shares of a row then say how much of each earlier value the token takes. The sum of those is
# what it gathers.


# %% id="01-mask" tags=["mirrors:course_lib.forward.layers.causal_mask"] slideshow={"slide_type": "subslide"}
def causal_mask(tokens: int, device: torch.device | None = None) -> Bool[Tensor, "T S"]:
    """True where a token must not look: at those after it."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu(diagonal=1)


scores = q @ k.transpose(-2, -1) / math.sqrt(K)
allowed = scores.masked_fill(causal_mask(T), -math.inf)
pattern = softmax(allowed)  # [2, 11, 11]: a row for each token that looks
gathered = pattern @ v  # [2, 11, 11] @ [2, 11, 16] → [2, 11, 16]

reference = F.scaled_dot_product_attention(q, k, v, is_causal=True)
assert torch.allclose(gathered, reference, rtol=0, atol=1e-12)
print("equal to PyTorch's own, within 1e-12")

# %% [markdown] id="01-mask-notes" slideshow={"slide_type": "notes"}
# (4 min) Draw the 11 × 11 table: row "=" takes so much from the 3, so much from the 4; above the
# diagonal all is 0. The first token can only look at itself: its share is 100 %, whatever the
# weights.

# %% [markdown] id="01-leak-text" slideshow={"slide_type": "slide"}
# ### Wrong on purpose: three masks
#
# That every row adds up to 1 proves nothing: it holds for any mask. A mask is right if it has
# this **property**: change the last token, and nothing before it changes.
#
# **Predict.** We change the last token. At how many of the 11 places does the output change with
# the right mask, without one, and with one that is upside down?


# %% id="01-leak" tags=["hide-input"] slideshow={"slide_type": "subslide"}
def changed_places(forbidden: Tensor) -> list[int]:
    """Attend twice, with another last token the second time: what differs?"""
    outputs = []
    for last in (T - 1, T - 2):  # the second time, the last token is a copy
        order = torch.arange(T)
        order[-1] = last
        score = (q @ k.transpose(-2, -1) / math.sqrt(K))[0][order][:, order]
        outputs.append(softmax(score.masked_fill(forbidden, -math.inf)) @ v[0][order])
    return (outputs[0] != outputs[1]).any(-1).nonzero().flatten().tolist()


none_forbidden = torch.zeros(T, T, dtype=torch.bool)
upside_down = causal_mask(T).T  # forbids the past, allows the future
print("causal     ", changed_places(causal_mask(T)))
print("no mask    ", changed_places(none_forbidden))
print("upside down", changed_places(upside_down))
assert changed_places(causal_mask(T)) == [T - 1]
assert len(changed_places(none_forbidden)) == len(changed_places(upside_down)) == T

# %% [markdown] id="01-leak-notes" slideshow={"slide_type": "notes"}
# (3 min) True and False swapped is the commonest bug here: PyTorch itself uses True for
# "forbidden" in nn.TransformerEncoderLayer and for "allowed" in scaled_dot_product_attention.

# %% [markdown] id="01-ex2-text" slideshow={"slide_type": "skip"}
# **What this proved.** Only the causal mask keeps the future out. The other two would still
# train, and their loss would look splendid: each place may read the very token that it is asked
# for. In use there is no next token to read, and such a model fails.
#
# ### Exercise 01.2 · Build causal attention
#
# Write `my_causal_attention(q, k, v)`.
#
# - All three are `[B, H, T, K]`: B rows, H heads that work side by side, T tokens of width K.
#   So is the result. `@` multiplies the last two dimensions and repeats that over the others.
# - Scores, scale by √K, causal mask, softmax, weighted sum of the values.
# - You may use `softmax` and `causal_mask` from above, but no finished attention.
#
# <details><summary>Hint</summary>
#
# It is the cell that made `gathered`, with T and K taken from `q.shape[-2:]`. Mask before the
# softmax: a share that is set to 0 afterwards leaves a row that no longer adds up to 1.
#
# </details>


# %% id="01-ex2" exercise="01.2" slideshow={"slide_type": "skip"}
def my_causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q k^T / sqrt(K), later tokens forbidden) v."""
    ### BEGIN SOLUTION
    tokens, head_width = q.shape[-2:]
    scores = q @ k.transpose(-2, -1) / math.sqrt(head_width)
    scores = scores.masked_fill(causal_mask(tokens), -math.inf)
    return softmax(scores) @ v
    ### STUB: ...
    ### END SOLUTION


# %% id="01-ex2-check" slideshow={"slide_type": "skip"}
check("01.2", my_causal_attention)

# %% [markdown] id="01-heads-text" slideshow={"slide_type": "slide"}
# ### Heads: looking at several things at once
#
# With one softmax a token looks mostly at one thing. So the D numbers are cut into H parts of
# K = D ÷ H, and each part, a **head** (头), attends by itself. Afterwards the parts are put side by
# side again.
#
# Head 0 takes numbers 0 to K − 1 of *every* token, head 1 the next K. From `[B, T, D]` we need
# `[B, H, T, K]`.

# %% id="01-heads" slideshow={"slide_type": "subslide"}
small = torch.tensor([[[1, 2, 3, 4], [5, 6, 7, 8]]])  # one row, two tokens, D = 4
cut = small.unflatten(-1, (2, 2))  # D becomes H, K
print("cut   ", tuple(cut.shape), cut.tolist())

heads = cut.transpose(1, 2)  # tokens and heads change places
print("heads ", tuple(heads.shape), heads.tolist())
assert heads[0, 0].tolist() == [[1, 2], [5, 6]]  # head 0: both tokens, first half

wrong = small.view(1, 2, 2, 2)  # the right shape, the wrong numbers
assert wrong[0, 0].tolist() == [[1, 2], [3, 4]]  # one token, cut in two

# %% [markdown] id="01-heads-notes" slideshow={"slide_type": "notes"}
# (3 min) Here T = H = 2 on purpose: both shapes agree, and only the numbers show the mistake.
# The way back: transpose again, then flatten the last two dimensions into D.

# %% [markdown] id="01-ex3-text" slideshow={"slide_type": "skip"}
# ### Exercise 01.3 · Split into heads, and join them
#
# Write `my_in_heads(q, k, v, heads, attend)`: it cuts three tensors into heads, lets a given
# function attend, and joins what comes out.
#
# - `q`, `k`, `v` are `[B, T, D]`; `heads` is H, which divides D.
# - Call `attend(q, k, v)` **once**, each argument as `[B, H, T, K]`. It returns `[B, H, T, K]`.
# - Return `[B, T, D]`: head 0's numbers first, then head 1's, and so on.
# - `tensor.flatten(-2)` makes one dimension of the last two.
#
# <details><summary>Hint</summary>
#
# There: `unflatten`, then `transpose(1, 2)`. Back: the same two steps undone in the opposite
# order. If `attend` returned its first argument, you would have to return `q` exactly.
#
# </details>


# %% id="01-ex3" exercise="01.3" slideshow={"slide_type": "skip"}
def my_in_heads(q: Tensor, k: Tensor, v: Tensor, heads: int, attend) -> Tensor:
    """Cut q, k and v into heads, let `attend` work on them, join the result."""
    ### BEGIN SOLUTION
    parts = [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v)]
    gathered = attend(*parts)
    return gathered.transpose(1, 2).flatten(-2)
    ### STUB: ...
    ### END SOLUTION


# %% id="01-ex3-check" slideshow={"slide_type": "skip"}
check("01.3", my_in_heads)

# %% [markdown] id="01-mlp-text" slideshow={"slide_type": "slide"}
# ## 4 · A block, and the whole model
#
# Attention only mixes vectors. The **MLP** works on each token alone: a linear layer up to F
# numbers, a bend, a linear layer down to D. Without the bend, two linear layers would be one.
# The bend is **GELU**: $x \cdot P(Z \le x)$ for a normally distributed $Z$: large inputs pass,
# very negative ones become almost 0.

# %% id="01-gelu" slideshow={"slide_type": "subslide"} tags=["hide-input"]
inputs = torch.linspace(-4, 4, 81, dtype=torch.float64)
outputs = inputs * 0.5 * (1 + torch.erf(inputs / math.sqrt(2)))  # P(Z <= x) by erf
assert torch.allclose(outputs, F.gelu(inputs), rtol=0, atol=1e-12)
assert torch.allclose(outputs, layers.gelu(inputs)[0], rtol=0, atol=1e-12)
_ = gelu_curve(inputs, outputs, title="GELU: a smooth bend at zero")

# %% [markdown] id="01-mlp-notes" slideshow={"slide_type": "notes"}
# (2 min) Two linear layers in a row: (x A) B = x (A B), one matrix. The bend is what makes depth
# worth anything. erf is the error function; PyTorch's default GELU uses it, too.

# %% [markdown] id="01-block-text" slideshow={"slide_type": "subslide"}
# ### A block, and its residual sums (残差)
#
# What attention finds is *added* to the vector that went in; so is what the MLP finds. A layer that
# has nothing to say adds about 0, and nothing is lost on the way. The vectors that run through all
# these sums are called the **residual stream**.


# %% id="01-block" slideshow={"slide_type": "fragment"}
def block_by_hand(x: Tensor, w) -> Tensor:
    """One block: x + attention(norm(x)), then x + mlp(norm(x))."""
    n, _ = layers.layer_norm(x, w.norm1)
    projections = (w.attention.query, w.attention.key, w.attention.value)
    q, k, v = (layers.split_heads(layers.linear(n, p)[0], H) for p in projections)
    joined = layers.join_heads(layers.causal_attention(q, k, v)[0])
    x = x + layers.linear(joined, w.attention.output)[0]
    n, _ = layers.layer_norm(x, w.norm2)
    return x + mlp(n, w.mlp)[0]


# %% id="01-torch" slideshow={"slide_type": "subslide"} tags=["hide-input"]
def torch_block(x: Tensor, w) -> Tensor:
    """The same block by nn.TransformerEncoderLayer, with our weights poured in."""
    a, zeros = w.attention, torch.zeros(D).double()  # theirs has a key bias, ours not
    state = {
        "self_attn.in_proj_weight": torch.cat([part.weight for part in a[:3]]),
        "self_attn.in_proj_bias": torch.cat([a.query.bias, zeros, a.value.bias]),
    }
    theirs = ("self_attn.out_proj", "linear1", "linear2", "norm1", "norm2")
    ours = (a.output, w.mlp.up, w.mlp.down, w.norm1, w.norm2)
    for name, part in zip(theirs, ours, strict=True):
        state |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    layer = nn.TransformerEncoderLayer(
        D, H, config.hidden, dropout=0.0, activation="gelu",
        batch_first=True, norm_first=True, dtype=torch.float64,
    )  # fmt: skip
    layer.load_state_dict(state)
    return layer(x, src_mask=causal_mask(x.shape[1]), is_causal=True)


for w in weights.blocks:
    assert torch.allclose(block_by_hand(x, w), torch_block(x, w), rtol=0, atol=1e-10)
    assert torch.allclose(block_by_hand(x, w), block(x, w, H)[0], rtol=0, atol=1e-10)
print("equal to nn.TransformerEncoderLayer and to the package, within 1e-10")

# %% [markdown] id="01-block-notes" slideshow={"slide_type": "notes"}
# (4 min) The check of the chapter: a whole block, every bias off zero, equal to the one that PyTorch
# ships when it is given our weights. PyTorch's has a key bias, which ours leaves out: it would add the
# same number to all scores of a row, and softmax ignores that. So there it is set to 0.

# %% [markdown] id="01-logits-text" slideshow={"slide_type": "slide"}
# ### From vectors to probabilities
#
# After the last block: one more layer norm, then the **head**, a linear layer without bias
# from D numbers to V scores (not to be mixed up with the heads of attention). Softmax makes
# probabilities of them.


# %% id="01-forward" slideshow={"slide_type": "fragment"}
def forward_by_hand(tokens: Tensor) -> Tensor:
    """The whole model: tokens [B, T] to logits [B, T, V]."""
    x = weights.token_embedding[tokens] + weights.position_embedding[: tokens.shape[1]]
    for w in weights.blocks:
        x = block_by_hand(x, w)
    x, _ = layers.layer_norm(x, weights.final_norm)
    return x @ weights.head.T


logits = forward_by_hand(tokens)
assert logits.shape == (B, T, V)
assert torch.allclose(logits, model(tokens), rtol=0, atol=1e-10)

# %% [markdown] id="01-logits-notes" slideshow={"slide_type": "notes"}
# (2 min) These eight lines are the model of chapter 00, and of every GPT: larger ones have more blocks
# and wider vectors. There is a prediction at *every* place: one pass does the homework of all 11.
# Today's large models change details (rotary places, RMS norm, gated MLPs); the plan is the same.

# %% [markdown] id="01-init-text" slideshow={"slide_type": "slide"}
# ## 5 · How the weights start
#
# A layer's output is a sum over D inputs. Inputs of size 1 and weights of size $s$ give a sum of
# size $s \sqrt D$. After ten layers that is $(s \sqrt D)^{10}$.
#
# Residual sums add up as well, so the matrices that add to the stream start smaller, by
# 1/√(2 × layers). The head starts at 0.02: small logits, no opinion yet.
#
# **Predict.** D = 64, so √D = 8. How large are the numbers after ten layers for $s$ = 1/16,
# 1/8 and 1/4?

# %% id="01-init" tags=["hide-input"] slideshow={"slide_type": "subslide"}
torch.manual_seed(2)
sizes = {}
for name, deviation in (("0.5 / √D", 1 / 16), ("1 / √D", 1 / 8), ("2 / √D", 1 / 4)):
    h = torch.randn(1000, D)
    sizes[name] = [h.std().item()]
    for _layer in range(10):
        h = h @ (deviation * torch.randn(D, D))
        sizes[name].append(h.std().item())
assert sizes["0.5 / √D"][-1] < 1 / 500
assert 1 / 3 < sizes["1 / √D"][-1] < 3
assert sizes["2 / √D"][-1] > 500

_ = size_by_layer(sizes, title="Only 1 / √D keeps the size through ten layers")

# %% id="01-init-loss" slideshow={"slide_type": "subslide"}
batch = homework.batch(step=0, batch_size=256)
torch.manual_seed(0)
fresh = Transformer(config)
good = cross_entropy(fresh(batch.inputs), batch.targets, batch.mask).item()
# A head tied to a table that nn.Embedding drew, with deviation 1, starts like this:
with torch.no_grad():
    fresh.head.copy_(torch.randn(V, D))
bad = cross_entropy(fresh(batch.inputs), batch.targets, batch.mask).item()

assert abs(good - math.log(13)) < 0.1
assert bad > 6
print("head of size 0.02: the loss starts within 0.1 of ln 13")
print("head of size 1:    it starts above 6, more than twice as high")

# %% [markdown] id="01-init-notes" slideshow={"slide_type": "notes"}
# (4 min) A loss far above ln V at the first step is a bug report: the model is sure of wrong
# answers before it has seen one. With 0.02 for *all* matrices, our narrow model may learn nothing
# for hundreds of steps: its attention starts too weak.

# %% [markdown] id="01-conv-text" slideshow={"slide_type": "slide"}
# ### Aside: convolution (卷积) is a matrix product, too
#
# (**Answer.** About 1/1024, 1 and 1024: $s \sqrt D$ is 1/2, 1 and 2, ten times over.)
#
# For images one often looks at neighbours only, with the same weights at every place: a 3 × 3
# window slides over the picture, and each position gives a weighted sum of 9 pixels. Write every
# window as a row (`unfold`), and it is one matrix product.
#
# Attention instead may look anywhere, with weights made from the content.

# %% id="01-conv" slideshow={"slide_type": "subslide"}
torch.manual_seed(3)
image = torch.randn(1, 3, 8, 8)  # one picture, 3 colours, 8 x 8 pixels
filters = torch.randn(5, 3, 3, 3)  # 5 filters, each over 3 colours of a 3 x 3 window

windows = F.unfold(image, kernel_size=3)  # [1, 27, 36]: 36 windows of 3 x 3 x 3 numbers
product = filters.flatten(1) @ windows  # [5, 27] @ [27, 36]
assert torch.allclose(product.view(1, 5, 6, 6), F.conv2d(image, filters), atol=1e-5)
print("windows", tuple(windows.shape), "→ outputs", tuple(product.shape))

# %% [markdown] id="01-conv-notes" slideshow={"slide_type": "notes"}
# (2 min) Convolutions are used for pictures, sound, and other data where near things belong
# together. Nothing else in the course needs them: the loop around the model is the same.

# %% [markdown] id="01-cost-text" slideshow={"slide_type": "slide"}
# ## 6 · What a forward pass costs
#
# A product of `[n, k]` and `[k, m]` has n · m sums of k products: **2 n k m FLOPs**, counting each
# multiplication and each addition (a FLOP is one floating-point operation, 浮点运算).
#
# A formula can be wrong. So we hold it against PyTorch's counter, which sees matrix products.
#
# **Predict.** Which piece costs most FLOPs: the projections to Q, K and V, the attention between
# tokens, or the MLP?

# %% id="01-cost" slideshow={"slide_type": "subslide"} tags=["hide-input"]
costs = model_costs(config, batch=256, tokens=T)
print(f"{'piece':18}{'parameters':>11}{'MFLOPs':>9}{'MB':>7}{'FLOPs/byte':>12}")
for piece, cost in {**costs, "all": total(costs.values())}.items():
    row = f"{cost.parameters:11,}{cost.flops / 1e6:9.1f}{cost.bytes_moved / 1e6:7.1f}"
    print(f"{piece:18}{row}{cost.intensity_flops_per_byte:12.1f}")
assert total(costs.values()).parameters == model.parameter_count()

# %% id="01-counted" slideshow={"slide_type": "subslide"}
with FlopCounterMode(display=False) as readable:
    block(x, weights.blocks[0], H)
with FlopCounterMode(display=False) as fused:
    block(x, weights.blocks[0], H, kernels="fused")

formula = total(block_costs(B, T, D, H, config.hidden).values())
assert readable.get_total_flops() == formula.matmul_flops
unseen = formula.matmul_flops - fused.get_total_flops()
print(f"matrix products: {formula.matmul_flops:,} FLOPs, counted: the same")
print(f"norms, GELU, softmax, sums: {formula.other_flops:,}, never counted")
print(f"PyTorch's own attention on a CPU: {unseen:,}, not seen by the counter")

# %% [markdown] id="01-cost-notes" slideshow={"slide_type": "notes"}
# (4 min) A counter that silently leaves things out is worse than none: know what yours sees.
# Ask: what happens to each row of the table with twice the tokens? (Twice, but scores four times.)

# %% [markdown] id="01-seconds-text" slideshow={"slide_type": "subslide"}
# ### Where the seconds go
#
# (**Answer.** The MLP: for each token and layer 2 D F = 8 D² multiplications, as F = 4 D, and only
# 3 D² for Q, K, V. With 11 tokens there is little to attend to.)
#
# Bytes are the least that must travel to and from memory. Norms, softmax, GELU and sums do about
# one FLOP for each byte, the large products more than ten.
#
# **Predict.** Norms, GELU and softmax are a small part of the FLOPs. Are they a small part of the
# time?

# %% id="01-seconds" tags=["hide-input"] slideshow={"slide_type": "subslide"}
w = fresh.requires_grad_(False).weights().blocks[0]  # 32-bit numbers, as in training
h, up = torch.randn(256, T, D), torch.randn(256, T, config.hidden)
q4, some = torch.randn(256, H, T, K), torch.randn(256, H, T, T)
work = {
    "norms": lambda: (layers.layer_norm(h, w.norm1), layers.layer_norm(h, w.norm2)),
    "query, key, value": lambda: [layers.linear(h, p) for p in w.attention[:3]],
    "scores": lambda: q4 / math.sqrt(K) @ q4.transpose(-2, -1),
    "softmax": lambda: layers.softmax(some),
    "weighted sum": lambda: some @ q4,
    "output": lambda: layers.linear(h, w.attention.output),
    "mlp up": lambda: layers.linear(h, w.mlp.up),
    "gelu": lambda: layers.gelu(up),
    "mlp down": lambda: layers.linear(up, w.mlp.down),
    "residual sums": lambda: (h + h, h + h),
}
flops = {n: c.flops for n, c in block_costs(256, T, D, H, config.hidden).items()}
assert set(work) == set(flops)
seconds = {name: median_time_s(run_it, repeats=15) for name, run_it in work.items()}
_ = work_and_time(flops, seconds, title="Small in FLOPs is not small in time")

# %% [markdown] id="01-seconds-notes" slideshow={"slide_type": "notes"}
# (3 min) Point at GELU: a few percent of the FLOPs, and often the longest orange bar or near it.

# %% [markdown] id="01-ex4-text" slideshow={"slide_type": "skip"}
# **Answer.** No. A processor does many more operations in the time in which it fetches one number
# from memory. Pieces with about one FLOP for each byte wait for memory, so they take a far larger
# share of the seconds than of the FLOPs. That is why fused kernels, which read the data once
# for several steps, are worth writing. (Your picture is of your machine; chapter 06 measures its
# limits.)
#
# ### Exercise 01.4 · Count the FLOPs of a block
#
# Write `my_block_flops(B, T, D, H, F)`: the FLOPs of all **matrix products** of one block in one
# forward pass, as a whole number.
#
# - Products: three projections to Q, K and V, scores, the weighted sum of values, the output
#   projection, MLP up and down. No biases, norms, softmax, GELU or sums.
# - A product of `[n, k]` and `[k, m]` counts 2 n k m. The mask saves nothing: forbidden scores are
#   computed, then thrown away.
# - All five are whole numbers; H divides D.
#
# <details><summary>Hint</summary>
#
# The projections are products of `[B T, D]` with `[D, D]`. In each of the B · H heads, the scores are a
# product of `[T, K]` with `[K, T]`. What does H do to the sum, with K = D ÷ H?
#
# </details>


# %% id="01-ex4" exercise="01.4" slideshow={"slide_type": "skip"}
def my_block_flops(B: int, T: int, D: int, H: int, F: int) -> int:
    """Return the FLOPs of the matrix products of one block's forward pass."""
    ### BEGIN SOLUTION
    projections = 4 * 2 * B * T * D * D
    scores_and_sum = 2 * 2 * B * H * T * T * (D // H)
    up_and_down = 2 * 2 * B * T * D * F
    return projections + scores_and_sum + up_and_down
    ### STUB: ...
    ### END SOLUTION


# %% id="01-ex4-check" slideshow={"slide_type": "skip"}
check("01.4", my_block_flops)

# %% [markdown] id="01-train-text" slideshow={"slide_type": "slide"}
# ## 7 · What attention has learnt
#
# So far the weights were random. Now we train the model on additions, as in chapter 00, with 400
# steps, and look at its attention.
#
# **Predict.** After `=` it must write the *ones* digit of 347 + 586. Which two tokens should it
# look at? And at the place after that?

# %% [markdown] id="01-choose-text" slideshow={"slide_type": "skip"}
# There are 2 layers with 4 heads: 8 maps. One could always find a nice one by looking long
# enough. So we say beforehand what we look for, and choose by a number over 512 exam problems:
# when the model writes the digits for ones, tens and hundreds, how much of a head's attention
# goes to the two digits to be added *at that place*? Attention spread evenly would give
# 2 ÷ 8, 2 ÷ 9 and 2 ÷ 10: 0.22 in the mean.

# %% id="01-train" tags=["hide-input"] slideshow={"slide_type": "subslide"}
run = start_run(preset("addition", steps=400, kernels="fused"))
for step in range(run.config.steps):
    train_step(run.model, run.data, step, run.optimizer, run.sync, run.config)
score = evaluate(run.model, run.data, run.sync).exact_match
assert score > 0.9
print("over 90 % of the exam is right in every digit")

exam = run.data.heldout(512)
with torch.no_grad():
    _, saved = run.model.forward_saved(run.data.to_batch(exam).inputs)
maps = torch.stack([each.attention.core.pattern_BHTS for each in saved.blocks])
mean_map = maps.mean(dim=1)  # [layers, heads, T, T], over 512 problems

digits = [(7 + i, column - i) for i in range(3) for column in (2, 6)]  # (row, column)
on_digits = sum(mean_map[..., row, column] for row, column in digits) / 3
layer, head = divmod(on_digits.argmax().item(), H)
assert on_digits.max() > 0.75
assert on_digits.min() < 0.3
print("the best head has over 75 % of its attention on the two digits to be added")

# %% id="01-explore" slideshow={"slide_type": "subslide"} tags=["hide-input"]
one = Problems(exam.a[:1], exam.b[:1])
row = decode(run.data.to_batch(one).inputs[0])
attention_explorer(maps[:, 0], list(row), start=(layer, head), marks=digits)

# %% [markdown] id="01-learnt-after" slideshow={"slide_type": "skip"}
# **What this proved.** Nobody told the model where to look. The frames stand where we said we would
# look: from `=`, which must predict the ones, at the two ones; from the next token at the two tens,
# then at the two hundreds. Rows before `=` count for nothing in the loss, so read nothing from
# them. (On a page you see one problem and the chosen head; in the notebook choose others.)
#
# The number adds both digits of a pair up. A head may prefer one of the two; then look for
# another head that takes the other. And a warning: a map shows where a head *takes from*. It does
# not prove what the model does with it.

# %% [markdown] id="01-learnt-notes" slideshow={"slide_type": "notes"}
# (5 min) Let the room choose heads. In the second layer the maps are harder to read: there the
# vectors already hold what the first layer has gathered.

# %% [markdown] id="01-summary" slideshow={"slide_type": "slide"}
# ## Summary
#
# 1. Tokens → embedding + place → blocks of attention and MLP, each added to the stream → norm →
#    logits → probabilities. `[B, T]` becomes `[B, T, D]`, then `[B, T, V]`.
# 2. Layer norm, causal attention and heads are a few lines each, equal to PyTorch's own.
# 3. √K keeps softmax from deciding by chance; the mask keeps the future out.
# 4. Weights start at 1/√inputs, the head small: the first loss is near ln V.
# 5. A product costs 2 n k m; cheap pieces wait for memory.

# %% [markdown] id="01-formulas" slideshow={"slide_type": "skip"}
# ## Formula sheet
#
# | | |
# |---|---|
# | linear layer | $x W^\top + b$ |
# | layer norm | $(x - \text{mean}) / \sqrt{\text{variance} + \varepsilon} \cdot w + b$, variance by D |
# | softmax | $e^{z_i} / \sum_j e^{z_j}$, with the largest $z$ taken off first |
# | attention | $\text{softmax}(q k^\top / \sqrt K,\ \text{later} = -\infty)\, v$ |
# | GELU | $x\, P(Z \le x) = \frac{x}{2} (1 + \text{erf}(x / \sqrt 2))$ |
# | block | $x + \text{attention}(\text{norm}(x))$, then $x + \text{mlp}(\text{norm}(x))$ |
# | start of a matrix | deviation $1 / \sqrt{\text{inputs}}$ |
# | product $[n, k] \times [k, m]$ | $2 n k m$ FLOPs |
# | a block's products | $8 B T D^2 + 4 B T^2 D + 4 B T D F$ FLOPs |
#
# ## Words of this chapter
#
# Transformer 变换器 · embedding 嵌入 · layer norm 层归一化 · attention 注意力 · query 查询 · key 键 · value 值 ·
# causal mask 因果掩码 · head 头 · residual 残差 · convolution 卷积 · FLOP 浮点运算
#
# ## To read
#
# - A. Vaswani et al., *Attention Is All You Need*, 2017 (arXiv:1706.03762): the source.
# - A. Rush et al., *The Annotated Transformer*: the same paper, line by line in code.
# - J. Ba, J. Kiros, G. Hinton, *Layer Normalization*, 2016 (arXiv:1607.06450).
# - J. Kaplan et al., *Scaling Laws for Neural Language Models*, 2020, section 2.1: counting FLOPs.
#
# **Next:** 02 · Loss, where the probabilities are held against the right answers.
