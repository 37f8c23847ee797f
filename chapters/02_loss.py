# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] id="02-title" slideshow={"slide_type": "slide"}
# # 02 · Loss (损失)
#
# **How wrong was the model, in one number?**
#
# *About 40 minutes · chapters 00 and 01 come before · no GPU needed*
#
# data → forward → **loss** → backward → sync → update

# %% [markdown] id="02-title-notes" slideshow={"slide_type": "notes"}
# (1 min) The forward pass gave probabilities. Now they are held against the right answers. All
# that training does later, it does to make this one number smaller.

# %% [markdown] id="02-goals" slideshow={"slide_type": "slide"}
# ## What you will be able to do
#
# 1. Say which token is predicted where, and why one pass is enough for all places.
# 2. Get log-probabilities from logits without an overflow.
# 3. Compute the cross-entropy (交叉熵) of the tokens that count, equal to PyTorch's.
# 4. Read a loss: ln V at the start, perplexity (困惑度), and what it does not tell.
# 5. Join the losses of unequal parts into the loss of the whole.

# %% [markdown] id="02-goals-notes" slideshow={"slide_type": "notes"}
# (1 min) Goal 5 returns on many devices: each rank holds a part, and no two are of one size.

# %% [markdown] id="02-recap" slideshow={"slide_type": "skip"}
# ## Recap of chapter 01
#
# - A Transformer makes V scores, the **logits**, at every place of a row.
# - Attention is causal: a place sees itself and what stands before it.
# - Softmax turns logits into probabilities; a shift of all logits changes nothing.
# - Weights start so that all V answers are about equally likely.
# - Layer norm, attention and heads are a few lines each.
#
# The second line on a machine: with the last token changed, earlier logits stay as they were.

# %% id="02-recap-check" slideshow={"slide_type": "skip"}
import math

import torch

from course_lib.config import preset
from course_lib.data.addition import Addition, decode, encode
from course_lib.forward.model import Transformer

homework = Addition(digits=3, seed=0)
torch.manual_seed(0)
config = preset("addition").model(homework.vocab_size, homework.context)
model = Transformer(config).double().requires_grad_(False)
one, other = encode("347+586=339"), encode("347+586=330")
assert torch.equal(model(one[None])[0, :-1], model(other[None])[0, :-1])

# %% [markdown] id="02-shift-text" slideshow={"slide_type": "slide"}
# ## 1 · What is predicted when
#
# The model reads a row and predicts, at every place, the **next** token. So the targets are
# the row itself, moved by one place.
#
# **Predict.** The row is `347+586=3390`. What is the target at `=`? And at the last place that
# the model reads?

# %% id="02-setup" tags=["hide-input"] slideshow={"slide_type": "skip"}
from torch import Tensor
from torch.nn import functional as F

from course_lib.loss import cross_entropy, cross_entropy_sum, log_softmax, token_losses
from course_lib.teach.exercises import check
from course_lib.teach.figures.surprise import loss_and_goal
from course_lib.teach.widgets.surprise import surprise_explorer

V, T = homework.vocab_size, homework.context
assert (V, T) == (13, 11)

# %% id="02-shift" slideshow={"slide_type": "subslide"}
row = encode("347+586=3390")  # 12 tokens
inputs, targets = row[:-1], row[1:]  # the model reads 11, and predicts 11
mask = torch.arange(T) >= T - 4  # the last four targets are the answer
print("reads  ", decode(inputs))
print("targets", decode(targets))
print("counts ", "".join("#" if counts else "." for counts in mask))

batch = homework.batch(step=0, batch_size=256)
assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])
assert torch.equal(batch.mask[0], mask)

# %% [markdown] id="02-shift-answer" slideshow={"slide_type": "skip"}
# **Answer.** At `=` the target is 3, the ones digit of 933. At the last place, where the model
# reads 9, it is 0. The last token of the row is only ever a target: nothing is predicted from it.

# %% [markdown] id="02-shift-notes" slideshow={"slide_type": "notes"}
# (2 min) The off-by-one mistake here is a classic: without the shift the model learns to copy
# its input, and the loss falls to zero within minutes.

# %% [markdown] id="02-teacher-text" slideshow={"slide_type": "slide"}
# ### Teacher forcing (教师强制)
#
# To predict the second digit, the model reads the *right* first digit, even if it would have
# written a wrong one. Like a teacher who corrects each line before the pupil goes on.
#
# **Predict.** Four digits of the answer. Must the model run four times, once for each, to find
# their losses?

# %% id="02-teacher" slideshow={"slide_type": "subslide"}
all_at_once = model(inputs[None])[0]  # one pass: [11, 13]
for place in range(T):
    so_far = model(inputs[None, : place + 1])[0]  # a pass over the tokens up to here
    assert torch.allclose(so_far[-1], all_at_once[place], rtol=0, atol=1e-12)
print("11 short passes and one long pass give the same logits, within 1e-12")

# %% [markdown] id="02-teacher-answer" slideshow={"slide_type": "skip"}
# **What this proved.** One pass is enough: thanks to the causal mask, each place computes as if
# the row ended there. In *use* there is no teacher. The model reads its own digits, so it needs
# a pass for each, and an early mistake can lead to more.

# %% [markdown] id="02-teacher-notes" slideshow={"slide_type": "notes"}
# (2 min) This is why Transformers train so well on many processors, and why generating text is
# slow: training sees all places at once, generation goes one by one.

# %% [markdown] id="02-ln-text" slideshow={"slide_type": "slide"}
# ## 2 · The loss of one token
#
# The loss of a token is $-\ln p$ of the right answer: 0 where the model was sure of it, and
# without limit the less it believed in it. Losses add up where probabilities multiply.
#
# **Predict.** The cat at 70 %: which loss? And which at 35 %, half of it?

# %% id="02-ln" slideshow={"slide_type": "fragment"}
print(f"70 %: {-math.log(0.70):.3f}   35 %: {-math.log(0.35):.3f}")
assert math.isclose(-math.log(0.35), -math.log(0.70) + math.log(2))

together = -math.log(0.9 * 0.8)  # two answers, both right
assert math.isclose(together, -math.log(0.9) - math.log(0.8))

# %% id="02-explore" slideshow={"slide_type": "subslide"} tags=["hide-input"]
surprise_explorer(percent=70)

# %% [markdown] id="02-ln-notes" slideshow={"slide_type": "notes"}
# (2 min) Half the probability always costs ln 2 = 0.693 more, wherever one starts. The unit is the
# nat; with the logarithm to base 2 it would be the bit.

# %% [markdown] id="02-log-text" slideshow={"slide_type": "slide"}
# ### From logits to ln p
#
# $$\ln p_i = \ln \frac{e^{z_i}}{\sum_j e^{z_j}} = z_i - \ln \sum_j e^{z_j}$$
#
# A float with 32 bits holds numbers up to about $3 \cdot 10^{38}$, which is $e^{88.7}$.
#
# **Predict.** Logits `[100, 0]`. The true logarithms are 0 and −100, nearly. What do the two
# obvious ways give?

# %% id="02-naive" slideshow={"slide_type": "subslide"}
z = torch.tensor([100.0, 0.0])
by_formula = z - z.exp().sum().log()  # e^100 is more than a float holds
log_of_softmax = torch.softmax(torch.tensor([200.0, 0.0]), -1).log()  # e^-200 is 0
print("z - ln sum exp z, for 100:", by_formula.tolist())
print("ln of softmax, for 200:   ", log_of_softmax.tolist())
assert by_formula.isinf().any()
assert log_of_softmax.isinf().any()

# %% [markdown] id="02-naive-answer" slideshow={"slide_type": "subslide"}
# ### Take the largest off first
#
# **Answer.** Both break, one by an overflow, one by a probability rounded to 0. Such a loss is
# infinite, and no gradient comes of it.
#
# A shift of all logits changes nothing, so shift by the largest, $m$:
#
# $$\ln p_i = (z_i - m) - \ln \sum_j e^{z_j - m}$$
#
# No exponent is above 0, and the sum is at least $e^0 = 1$: its logarithm is safe.

# %% [markdown] id="02-naive-notes" slideshow={"slide_type": "notes"}
# (3 min) This was the deliberate failure of the chapter. A training run that shows nan after
# hours mostly has a line like these somewhere.

# %% [markdown] id="02-ex1-text" slideshow={"slide_type": "skip"}
# ### Exercise 02.1 · Build a stable log_softmax
#
# Write `my_log_softmax(logits)`.
#
# - `logits` is `[..., V]`, any number of leading dimensions; so is the result, of the same dtype.
# - The logarithms of the softmax over the last dimension, without overflow.
# - No `softmax`, `log_softmax` or `logsumexp` of PyTorch's or of the course's. Leave `logits` as they
#   are.
#
# <details><summary>Hint</summary>
#
# `logits.amax(dim=-1, keepdim=True)` is the largest of each row, as `[..., 1]`. Take it off, then
# use the formula for what is left.
#
# </details>


# %% id="02-ex1" exercise="02.1" slideshow={"slide_type": "skip"}
def my_log_softmax(logits: Tensor) -> Tensor:
    """Return ln softmax over the last dimension, without overflow."""
    ### BEGIN SOLUTION
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    return shifted - shifted.exp().sum(dim=-1, keepdim=True).log()
    ### STUB: ...
    ### END SOLUTION


# %% id="02-ex1-check" slideshow={"slide_type": "skip"}
check("02.1", my_log_softmax)

# %% [markdown] id="02-ce-text" slideshow={"slide_type": "slide"}
# ## 3 · Cross-entropy: the mean of the tokens that count
#
# At each place, pick ln p of the target out of V numbers. `gather` does that: along a
# dimension it takes the element with a given index.
#
# The question's tokens don't count: nobody can guess which numbers will be added. A **mask**
# says which do. The loss of a batch is the mean over those.

# %% id="02-gather" slideshow={"slide_type": "subslide"}
log_p = log_softmax(model(batch.inputs))  # [256, 11, 13]
index = batch.targets.unsqueeze(-1)  # [256, 11, 1]: which of the 13
losses = -log_p.gather(-1, index).squeeze(-1)  # [256, 11]
assert losses[5, 7] == -log_p[5, 7, batch.targets[5, 7]]
assert torch.equal(losses, token_losses(model(batch.inputs), batch.targets))

loss = losses[batch.mask].mean()  # 4 of 11 places in each row
ignored = batch.targets.masked_fill(~batch.mask, -100)  # PyTorch's way to say it
reference = F.cross_entropy(model(batch.inputs).flatten(0, 1), ignored.flatten())
assert torch.isclose(loss, reference, rtol=0, atol=1e-12)

# %% [markdown] id="02-ce-predict" slideshow={"slide_type": "subslide"}
# ### Multiply by the mask, or pick?
#
# Two ways to leave tokens out: pick those that count, or multiply all losses by 0 or 1 and
# divide by how many count.
#
# **Predict.** Where a token that does *not* count has an infinite loss, do both still give the
# same?

# %% id="02-pick" slideshow={"slide_type": "fragment"}
some = torch.tensor([0.5, 1.5, math.inf])
counts = torch.tensor([True, True, False])
print("picked:    ", some[counts].mean().item())
print("multiplied:", ((some * counts).sum() / counts.sum()).item())
assert some[counts].mean() == 1.0
assert (some * counts).sum().isnan()  # inf x 0 is nan

# %% [markdown] id="02-ce-notes" slideshow={"slide_type": "notes"}
# (3 min) No: infinity times 0 is nan. A token that doesn't count must not be able to spoil the
# loss. Another common slip: `.mean()` over all places after multiplying, which divides by 11
# where 4 count.

# %% [markdown] id="02-ex2-text" slideshow={"slide_type": "skip"}
# ### Exercise 02.2 · Build masked cross-entropy
#
# Write `my_cross_entropy(logits, targets, mask)`: the mean loss of the tokens that count.
#
# - `logits` is `[..., V]`, `targets` `[...]` with whole numbers below V, `mask` `[...]` with True
#   where a token counts. The result is a tensor without dimensions.
# - If no token counts, return 0 and not nan.
# - A token that doesn't count may have logits of any size, nan even: it must not matter.
# - `log_softmax` may be used; a finished `cross_entropy` or `nll_loss` may not.
#
# <details><summary>Hint</summary>
#
# Pick first: `logits[mask]` is `[N, V]` and `targets[mask]` is `[N]`, with N the number of tokens that
# count. Then gather, add up, and divide by N, or by 1 where N is 0.
#
# </details>


# %% id="02-ex2" exercise="02.2" slideshow={"slide_type": "skip"}
def my_cross_entropy(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of -ln p(target) over the tokens that count."""
    ### BEGIN SOLUTION
    log_p = log_softmax(logits[mask])
    picked = log_p.gather(-1, targets[mask].unsqueeze(-1))
    return -picked.sum() / max(picked.numel(), 1)
    ### STUB: ...
    ### END SOLUTION


# %% id="02-ex2-check" slideshow={"slide_type": "skip"}
check("02.2", my_cross_entropy)

# %% [markdown] id="02-start-text" slideshow={"slide_type": "slide"}
# ## 4 · Reading a loss
#
# A model that knows nothing gives each of V answers 1/V and has the loss ln V: for 13 symbols
# 2.565.
#
# The **perplexity** (困惑度) is $e^{\text{loss}}$: among how many equally likely answers the model
# seems to choose.
#
# **Predict.** Which perplexity has the untrained model? And one that gives the truth 70 % every
# time?

# %% id="02-start" slideshow={"slide_type": "fragment"}
assert abs(loss - math.log(V)) < 0.1
assert abs(loss.exp() - V) < 1
print("untrained: perplexity within 1 of 13")

always_70 = -math.log(0.70)
print(f"70 %: perplexity {math.exp(always_70):.3f} = 1 / 0.70")
assert math.isclose(math.exp(always_70), 1 / 0.70)

# %% [markdown] id="02-start-answer" slideshow={"slide_type": "skip"}
# **What this proved.** The first loss of a run is a free test. Far above ln V: the model is
# sure of wrong answers, the weights start badly (chapter 01). Far below: the answer leaks into
# the question, mostly through a mask or a shift. Losses of different vocabularies can't be
# compared: ln 13 and ln 50,000 both mean "knows nothing".

# %% [markdown] id="02-start-notes" slideshow={"slide_type": "notes"}
# (2 min) A language model with 50,000 tokens starts at 10.8. Ask: at what loss does our model
# start if we leave out the symbol `_`? ln 12 = 2.485.

# %% [markdown] id="02-means-text" slideshow={"slide_type": "slide"}
# ## 5 · Why the mean of means is not the mean
#
# Batches are cut into parts: for several devices, or because one is too small. Parts hold
# different numbers of tokens that count.
#
# **Predict.** One part has the losses 1, 2 and 3, the other 10 and 20. Is the mean of the two
# means the mean of the five?

# %% id="02-means" slideshow={"slide_type": "fragment"}
first, second = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0])
of_means = (first.mean() + second.mean()) / 2
of_all = torch.cat([first, second]).mean()
print(f"mean of means {of_means:.1f}, mean of all {of_all:.1f}")
joined = (first.sum() + second.sum()) / (first.numel() + second.numel())
assert joined == of_all != of_means

# %% [markdown] id="02-means-answer" slideshow={"slide_type": "subslide"}
# ### Keep sums and counts apart
#
# **Answer.** No: 8.5 against 7.2. In the mean of means, a token in a small part weighs more than
# a token in a large one.
#
# Sums and counts can be added; means can't. So `cross_entropy_sum` returns both, and the
# division comes last.

# %% id="02-parts" slideshow={"slide_type": "fragment"}
lengths = torch.arange(256) % 5  # rows with 0 to 4 tokens that count
uneven = batch.mask & (torch.arange(T) < 7 + lengths[:, None])
whole = cross_entropy(model(batch.inputs), batch.targets, uneven)

rows = (slice(0, 250), slice(250, 256))
parts = [
    cross_entropy_sum(model(batch.inputs[r]), batch.targets[r], uneven[r]) for r in rows
]
joined = sum(part.total for part in parts) / sum(part.counted for part in parts)
assert torch.isclose(joined, whole, rtol=0, atol=1e-12)
print(
    "tokens that count:", [part.counted for part in parts], "joined: equal to the whole"
)

# %% [markdown] id="02-means-notes" slideshow={"slide_type": "notes"}
# (3 min) This bug has been in widely used training libraries: with accumulation over parts of
# unequal length, the loss differed from the whole batch's. Chapters 06 and 11 meet it again.

# %% [markdown] id="02-ex3-text" slideshow={"slide_type": "skip"}
# ### Exercise 02.3 · Join the losses of unequal parts
#
# Four ranks report the **mean** loss of their tokens and how many those were. Write
# `my_joined_loss(means, counts)`: the mean loss of all tokens, a plain number.
#
# - `means` is a list of numbers, `counts` a list of whole numbers of the same length.
# - A rank may have no token that counts. Its mean is then **nan** (0 ÷ 0), and must not matter.
# - If no rank has any, return 0.0.
# - Predict first: mean 2.0 over 1 token and mean 4.0 over 3. Is it 3.0?
#
# <details><summary>Hint</summary>
#
# A mean times its count is a sum. Skip parts with the count 0 before you multiply: nan × 0 is nan.
#
# </details>


# %% id="02-ex3" exercise="02.3" slideshow={"slide_type": "skip"}
def my_joined_loss(means: list[float], counts: list[int]) -> float:
    """Return the mean loss of all tokens, from each part's mean and count."""
    ### BEGIN SOLUTION
    total, counted = 0.0, 0
    for mean, count in zip(means, counts, strict=True):
        if count > 0:
            total = total + mean * count
            counted = counted + count
    return total / max(counted, 1)
    ### STUB: ...
    ### END SOLUTION


# %% id="02-ex3-check" slideshow={"slide_type": "skip"}
check("02.3", my_joined_loss)

# %% [markdown] id="02-goal-text" slideshow={"slide_type": "slide"}
# ## 6 · The loss is a number, the goal is another
#
# We want sums that are right in **every** digit: the exact match. Training can't follow that
# downhill: it jumps, and a small nudge of a parameter leaves it as it is. So training follows
# the loss, and we watch the goal beside it.
#
# **Predict.** Model A gives each of four digits 60 %. Model B gives three digits 99.9 % and the
# last one 40 %, with another digit at 60 %. Which has the lower loss? Which one is right?

# %% id="02-goal" slideshow={"slide_type": "subslide"}
models = {"A": [0.6, 0.6, 0.6, 0.6], "B": [0.999, 0.999, 0.999, 0.4]}
judged = {}
for name, p_right in models.items():
    mean_loss = -sum(math.log(p) for p in p_right) / 4
    is_right = all(p > 0.5 for p in p_right)  # above one half: the likeliest digit
    judged[name] = (mean_loss, float(is_right))
    print(f"{name}: loss {mean_loss:.2f}, all four digits right: {is_right}")
assert judged["B"][0] < judged["A"][0]
assert judged["A"][1] > judged["B"][1]

# %% id="02-goal-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
_ = loss_and_goal(judged, title="B has half the loss, and is wrong")

# %% [markdown] id="02-goal-answer" slideshow={"slide_type": "skip"}
# **What this proved.** A lower loss is not always a better answer. Over a whole training the two
# go together (look at the two curves of chapter 00), but not step by step, and not model by model.
# Report both.

# %% [markdown] id="02-goal-notes" slideshow={"slide_type": "notes"}
# (3 min) In chapter 00 the loss fell at once while the score stayed near zero for a long time. Here
# is why: all four digits must be right, and each is only as good as the weakest.

# %% [markdown] id="02-summary" slideshow={"slide_type": "slide"}
# ## Summary
#
# 1. Targets are the row moved by one place; with teacher forcing one pass does all places.
# 2. ln p = z − m − ln Σ exp(z − m): with the largest logit taken off, nothing overflows.
# 3. Cross-entropy: the mean of −ln p(target) over the tokens that count; pick, don't multiply.
# 4. It starts at ln V; its exponential is the perplexity.
# 5. Add sums and counts, divide last: the mean of means is not the mean.

# %% [markdown] id="02-formulas" slideshow={"slide_type": "skip"}
# ## Formula sheet
#
# | | |
# |---|---|
# | loss of a token | $-\ln p_{\text{target}}$, e.g. $-\ln 0.70 = 0.357$ |
# | log-softmax | $(z_i - m) - \ln \sum_j e^{z_j - m}$, $m = \max_j z_j$ |
# | cross-entropy | $-\frac1N \sum \ln p_{\text{target}}$ over the N tokens that count |
# | no opinion | $\ln V$, here $\ln 13 = 2.565$ |
# | perplexity | $e^{\text{loss}}$ |
# | joined parts | $\sum_r n_r \text{mean}_r \,/\, \sum_r n_r$ |
#
# ## Words of this chapter
#
# loss 损失 · teacher forcing 教师强制 · cross-entropy 交叉熵 · perplexity 困惑度
#
# ## To read
#
# - C. Shannon, *A Mathematical Theory of Communication*, 1948: where −ln p comes from.
# - I. Goodfellow, Y. Bengio, A. Courville, *Deep Learning*, 2016, sections 3.13 and 4.1: information,
#   and overflow.
# - PyTorch's documentation of `torch.nn.CrossEntropyLoss`: the same with weights and smoothing.
#
# **Next:** 03 · Backward pass, which finds out which parameters caused the loss.
