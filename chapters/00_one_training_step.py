# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] id="00-title" slideshow={"slide_type": "slide"}
# # 00 · One training step
#
# **What happens in one step of training?**
#
# *About 20 minutes · Python and a little PyTorch are enough · no GPU needed*
#
# data → forward → loss → backward → sync → update

# %% [markdown] id="00-title-notes" slideshow={"slide_type": "notes"}
# (1 min) This chapter is a first look at the whole course. Nothing is explained to the bottom
# here: each of the six stages gets its own chapter later. Ask the room: who has called
# `loss.backward()` without knowing what it does? That is the starting point.

# %% [markdown] id="00-goals" slideshow={"slide_type": "slide"}
# ## What you will be able to do
#
# 1. Name the six stages of a training step (训练步) in order.
# 2. Read a model's answer as probabilities, and compute its loss (损失) by hand.
# 3. Explain a gradient (梯度) as a nudge, and check one that PyTorch has found.
# 4. Compute a parameter update (参数更新), and say why it goes *against* the gradient.
# 5. Show that four processes, each with a quarter of the data, together find the gradient
#    that one process finds with all of it.

# %% [markdown] id="00-goals-notes" slideshow={"slide_type": "notes"}
# (1 min) Goal 5 is what the second half of the course is about: on a cluster the same step is
# taken by many GPUs at once, and they must agree.

# %% [markdown] id="00-recap" slideshow={"slide_type": "skip"}
# ## Before you start
#
# - A **tensor** is an array of numbers with a shape and a dtype.
# - A **model** is a function with many adjustable numbers inside, its **parameters** (参数).
# - To **train** is to adjust them until the function's answers are right.
# - PyTorch calls a model like a function: `model(inputs)`.
# - `parameter.grad` is where PyTorch leaves a gradient. What that is comes in section 4.
#
# If this cell runs, you know enough tensor arithmetic for this chapter:

# %% id="00-recap-check" slideshow={"slide_type": "skip"}
import torch

table = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
assert table.shape == (2, 3)  # two rows, three columns
assert table.mean(dim=1).tolist() == [2.0, 5.0]  # one mean for each row

# %% [markdown] id="00-loop-text" slideshow={"slide_type": "slide"}
# ## Training is homework
#
# A pupil does the exercises, checks the answers, finds out what caused the mistakes, and
# changes how it works. Then come the next exercises. A model trains in the same way. If there are many
# pupils, there is one more stage: the class agrees on **one** correction for all.

# %% id="00-setup" tags=["hide-input"] slideshow={"slide_type": "fragment"}
import math

import torch.distributed as dist
from torch import Tensor

from course_lib.config import preset
from course_lib.data.addition import SYMBOLS, Addition, decode, encode
from course_lib.data.sharding import shard
from course_lib.forward.model import Transformer
from course_lib.loss import cross_entropy
from course_lib.ranks import launch
from course_lib.ranks.runtime import rank, world_size
from course_lib.teach.exercises import check, hint
from course_lib.teach.figures.classroom import classroom
from course_lib.teach.figures.gradients import gradients_of_ranks, slope_at
from course_lib.teach.figures.probabilities import probability_bars
from course_lib.teach.figures.ranks import before_after
from course_lib.teach.figures.stages import stage_seconds, training_loop
from course_lib.teach.figures.training import loss_and_score
from course_lib.teach.widgets.learning_rate import learning_rate_explorer
from course_lib.train.evaluate import evaluate
from course_lib.train.fit import start_run
from course_lib.train.step import StageClock, train_step

_ = training_loop(title="One training step, six stages, again and again")

# %% [markdown] id="00-loop-notes" slideshow={"slide_type": "notes"}
# (2 min) Walk once around the loop. Every later chapter lights up one box of this picture.
# Sync is pink: on one device it does nothing, and on many it is where the network comes in.

# %% [markdown] id="00-data-text" slideshow={"slide_type": "slide"}
# ## 1 · The homework: data and tokens
#
# Our model learns to add. `347+586=3390` means 347 + 586 = 0933 (always four digits), with the answer written **from
# right to left**, the way you add by hand: ones first, and carry.
#
# A model reads numbers, not letters. So each of 13 symbols has a number (`_` stands for an
# answer's place that is still empty).
# A piece of text that has a number is called a **token** (词元).
#
# **Predict.** How many tokens is this problem, with its answer? Which of them should the model
# be asked for?

# %% id="00-data-tokens" slideshow={"slide_type": "subslide"}
problem = "347+586=3390"
tokens = encode(problem)
print("symbols:", " ".join(SYMBOLS))
print("tokens: ", tokens.tolist())

question, answer = problem.split("=")
assert decode(tokens) == problem
assert int(answer[::-1]) == 347 + 586  # read backwards, the answer is the sum

# %% [markdown] id="00-data-answer" slideshow={"slide_type": "fragment"}
# **Answer.** 12 tokens. Only the last four, `3390`, are the model's work. The other eight are the
# question: they are given, not asked, so they don't count.

# %% [markdown] id="00-data-notes" slideshow={"slide_type": "notes"}
# (2 min) Written from right to left, each digit depends only on digits already known and a
# carry. Written from left to right, the first digit needs the whole sum (Lee et al. 2023).

# %% [markdown] id="00-batch-text" slideshow={"slide_type": "subslide"}
# ### A batch, and what it hides
#
# The model does many problems at once: a **batch** (批次). In every row, the **target** at each
# place is simply the *next* token of the row: the first 11 tokens are inputs, the last 11 targets.
# A **mask** says which targets count: the four of the answer.
#
# A batch has 256 rows. One problem in ten is never trained on. These **held-out** problems are
# the exam: a model that has merely learnt its homework by heart would fail it. (586+347 is held
# out together with 347+586, or one would give the other away.)

# %% id="00-batch" slideshow={"slide_type": "fragment"}
homework = Addition(digits=3, seed=0)
batch = homework.batch(step=0, batch_size=256)
print("inputs", tuple(batch.inputs.shape), "targets", tuple(batch.targets.shape))
print("reads  ", decode(batch.inputs[0]))
print("next   ", decode(batch.targets[0]))
print("counts ", "".join("#" if counts else "." for counts in batch.mask[0]))
assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])  # moved by one place


# %% id="00-heldout" slideshow={"slide_type": "skip"}
exam = homework.heldout()
exam_texts = {f"{a:03}+{b:03}" for a, b in zip(*exam, strict=True)}
homework_texts = {decode(row).split("=")[0] for row in batch.inputs}
assert len(exam_texts) >= 2000
assert not exam_texts & homework_texts
print(f"{len(exam_texts)} exam problems, none of them in the batch")

# %% [markdown] id="00-forward-text" slideshow={"slide_type": "slide"}
# ## 2 · Doing the exercises: the forward pass (前向计算)
#
# Show a model a picture and it does not say "cat". It says: cat 70 %, dog 20 %, something else
# 10 %. What comes out is a list: one **probability** for each possible answer.

# %% id="00-cat" slideshow={"slide_type": "fragment"}
_ = probability_bars(
    [0.70, 0.20, 0.10], ["cat", "dog", "other"], truth="cat",
    title="A model answers with probabilities", xlabel="what is in the picture?",
)  # fmt: skip

# %% [markdown] id="00-forward-notes" slideshow={"slide_type": "notes"}
# (1 min) This figure returns in the next section: the loss is read off the hatched bar.

# %% [markdown] id="00-model-text" slideshow={"slide_type": "subslide"}
# ### Our model, before any training
#
# Ours is a small **Transformer**: tokens go in, and at each place 13 scores (**logits**) come
# out, one for each symbol that may come next. **Softmax** turns scores into probabilities:
# positive, and 1 in total.
#
# **Predict.** The model has learnt nothing yet. What probability does it give to `3`, the first
# token of the right answer to 347+586?


# %% id="00-model" slideshow={"slide_type": "subslide"}
def new_model() -> Transformer:
    """The same untrained model every time, in 64-bit numbers (to compare well)."""
    torch.manual_seed(0)
    config = preset("addition").model(homework.vocab_size, homework.context)
    return Transformer(config).double()


model = new_model()
logits = model(encode("347+586=").unsqueeze(0))[0, -1]  # the scores after the "="
probabilities = torch.softmax(logits, dim=-1).detach()
assert logits.shape == (13,)
assert abs(probabilities.sum() - 1) < 1e-12

# %% id="00-model-bars" slideshow={"slide_type": "fragment"}
_ = probability_bars(
    probabilities, SYMBOLS, truth="3",
    title="An untrained model finds all 13 symbols about equally likely",
    xlabel="next token after 347+586=",
)  # fmt: skip

# %% [markdown] id="00-model-answer" slideshow={"slide_type": "skip"}
# **Answer.** About 1 in 13, or 8 %, as for every other symbol. It is not wrong on purpose: it
# has hardly any opinion.
#
# How a Transformer gets from tokens to logits is chapter 01. For now it is a function with about
# a hundred thousand parameters.

# %% [markdown] id="00-model-notes" slideshow={"slide_type": "notes"}
# (2 min) Let them say a number first. The usual guess is 10 % (ten digits); the model does not
# even know yet that "+" cannot follow "=".

# %% [markdown] id="00-loss-text" slideshow={"slide_type": "slide"}
# ## 3 · Checking the answers: the loss (损失)
#
# How wrong was the model? Take the probability $p$ that it gave to the **right** answer. The
# loss is
#
# $$\text{loss} = -\ln p$$
#
# Sure and right ($p = 1$): loss 0. The less it believed in the truth, the larger the loss:
# believing only 1 % in it costs 4.6. Over a batch, the loss is the mean over the tokens that count.
# (Because of the natural logarithm its unit has a name, the *nat*.)
#
# **Predict.** The cat at 70 %: is its loss nearer to 0.36, 0.70 or 1.20? And what is the loss of
# a model that gives each of 13 symbols the same chance?

# %% id="00-loss-cat" slideshow={"slide_type": "subslide"}
print(f"the cat at 70 %:      -ln 0.70   = {-math.log(0.70):.3f}")
print(f"no idea, 13 symbols:  -ln (1/13) = {-math.log(1 / 13):.3f}")
assert math.isclose(-math.log(1 / 13), math.log(13))

p_all = torch.softmax(model(batch.inputs), dim=-1)  # [256, 11, 13]
# at each place, the probability of its target: [256, 11]
p_right = p_all.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)
loss_by_hand = -p_right[batch.mask].log().mean()

loss = cross_entropy(model(batch.inputs), batch.targets, batch.mask)
assert torch.isclose(loss, loss_by_hand)
assert abs(loss.item() - math.log(13)) < 0.1
print("the loss starts within 0.1 of ln 13")

# %% [markdown] id="00-loss-notes" slideshow={"slide_type": "notes"}
# (2 min) A loss far above ln V at the start is a sign of a bad initialisation: the model is
# sure of wrong answers before it has seen any. Far below: the answer leaks into the question.

# %% [markdown] id="00-backward-text" slideshow={"slide_type": "slide"}
# ## 4 · Finding what caused the mistakes: the backward pass (反向传播)
#
# Take one parameter, move it by a hair, and look at the loss. If the loss rises, this parameter
# should go the other way. That slope, *change of the loss ÷ change of the parameter*, is the
# **gradient** (梯度) of that parameter.
#
# The backward pass finds the slopes of **all** parameters in one go.
#
# **Predict.** We nudge one parameter by 0.0001 up and down, and compare the slope with what the
# backward pass says. Will they agree in 2 digits, in 4, or in 6?

# %% id="00-backward" slideshow={"slide_type": "subslide"}
loss.backward()  # fills .grad of every parameter

count = sum(parameter.numel() for parameter in model.parameters())
weight = model.head  # the last matrix of the model: [13, 64]
print(f"{count:,} parameters, each with its own gradient")
assert weight.grad.shape == weight.shape

# %% id="00-nudge" slideshow={"slide_type": "subslide"}
place = divmod(
    weight.grad.abs().argmax().item(), weight.shape[1]
)  # row, column of the steepest


@torch.no_grad()
def loss_after_nudge(nudge: float) -> float:
    """The loss with one parameter moved by `nudge`; then it is put back."""
    weight[place] += nudge
    moved = cross_entropy(model(batch.inputs), batch.targets, batch.mask).item()
    weight[place] -= nudge
    return moved


# %% id="00-nudge-check" slideshow={"slide_type": "fragment"}
hair = 1e-4
slope = (loss_after_nudge(hair) - loss_after_nudge(-hair)) / (2 * hair)
gradient = weight.grad[place].item()
assert abs(slope - gradient) < 1e-6 * abs(gradient)
print("the nudge and .grad agree to at least six digits")

# %% id="00-slope" slideshow={"slide_type": "subslide"}
offsets = [tenth / 10 for tenth in range(-10, 11)]
_ = slope_at(
    offsets, [loss_after_nudge(offset) for offset in offsets], gradient,
    title="The gradient of one parameter is the slope of the loss there",
)  # fmt: skip

# %% [markdown] id="00-slope-text" slideshow={"slide_type": "fragment"}
# **What this proved.** `.grad` is no magic: it is what a nudge would have told you. But a
# nudge costs two forward passes for *each* parameter; a backward pass does the arithmetic of about
# two, for *all* of them.

# %% [markdown] id="00-backward-notes" slideshow={"slide_type": "notes"}
# (4 min) The dashed line is the gradient's prediction. Near the dot it lies on the curve, and
# further away it does not: a gradient is true only nearby. That is why steps are small.
# A hundred thousand parameters would need two hundred thousand forward passes by nudging.

# %% [markdown] id="00-update-text" slideshow={"slide_type": "slide"}
# ## 5 · The correction: parameter update (参数更新)
#
# The gradient points **uphill**: that way the loss grows. We want it to shrink, so we go
# against it, by a small share of it, the **learning rate** (学习率):
#
# $$\text{new} = \text{old} - \text{learning rate} \times \text{gradient}$$
#
# **Predict.** A parameter is 0.80, its gradient 0.01, the learning rate 0.1. What is it after
# the update?

# %% id="00-update" slideshow={"slide_type": "fragment"}
old, gradient_here, learning_rate = 0.80, 0.01, 0.1
step = learning_rate * gradient_here
new = old - step
print(f"0.80 - 0.1 x 0.01 = {new:.3f}")
assert math.isclose(new, 0.799)

# %% [markdown] id="00-update-notes" slideshow={"slide_type": "notes"}
# (2 min) The step is the rate times the gradient, 0.001, not 0.1 and not 0.01. With other
# optimizers (Adam) the step has another size; chapter 05 tells why.

# %% [markdown] id="00-ex1-text" slideshow={"slide_type": "skip"}
# ### Exercise 00.1 · Compute an update
#
# Write `my_update(parameter, gradient, learning_rate)`.
#
# - `parameter` and `gradient` are tensors of one shape, `learning_rate` is a number.
# - Return a **new** tensor: old parameter − learning rate × gradient
#   (旧参数 − 学习率 × 梯度).
# - Both tensors that you were given stay as they are. No optimizer, only arithmetic.
#
# <details><summary>Hint</summary>
#
# The gradient points uphill: the loss grows that way. Which sign takes you down? With
# 0.80, 0.01 and 0.1 the answer is 0.799. (`hint("00.1")` gives more, a step at a time.)
#
# </details>


# %% id="00-ex1" exercise="00.1" slideshow={"slide_type": "skip"}
def my_update(parameter: Tensor, gradient: Tensor, learning_rate: float) -> Tensor:
    """Return parameter - learning_rate * gradient as a new tensor."""
    ### BEGIN SOLUTION
    change = learning_rate * gradient
    return parameter - change
    ### STUB: ...
    ### END SOLUTION


# %% id="00-ex1-check" slideshow={"slide_type": "skip"}
check("00.1", my_update)

# %% [markdown] id="00-uphill-text" slideshow={"slide_type": "slide"}
# ### The wrong way, on purpose
#
# **Predict.** One step against the gradient, for all parameters. Then the same step *with* it.
# What happens to the loss each time?
#
# How large may a step be? Move the slider below: each curve takes seven steps with one rate. (On a
# slide or a printed page you see its first position.)


# %% id="00-uphill" slideshow={"slide_type": "fragment"}
@torch.no_grad()
def loss_after_step(rate: float) -> float:
    """The loss on this batch after one update of all parameters; then undo it."""
    for parameter in model.parameters():
        parameter -= rate * parameter.grad
    after = cross_entropy(model(batch.inputs), batch.targets, batch.mask).item()
    for parameter in model.parameters():
        parameter += rate * parameter.grad
    return after


downhill, uphill = loss_after_step(0.1), loss_after_step(-0.1)
assert downhill < loss.item() < uphill
print("against the gradient: the loss is lower; with the gradient: it is higher")


# %% id="00-rate" slideshow={"slide_type": "subslide"} tags=["hide-input"]
def losses_on_the_way(rate: float, steps: int = 8) -> list[float]:
    """Start afresh and update again and again on one batch; the loss before each."""
    walker, losses = new_model(), []
    for _ in range(steps):
        walker.zero_grad()
        now = cross_entropy(walker(batch.inputs), batch.targets, batch.mask)
        losses.append(now.item())
        now.backward()
        with torch.no_grad():
            for parameter in walker.parameters():
                parameter -= rate * parameter.grad
    return losses


ways = {rate: losses_on_the_way(rate) for rate in (0.02, 0.1, 0.2, 0.5, 1.0)}
assert ways[0.1][-1] < ways[0.02][-1] < ways[0.1][0] < ways[1.0][-1]
learning_rate_explorer(ways, start=0.1)

# %% [markdown] id="00-rate-after" slideshow={"slide_type": "skip"}
# **Answer.** With 0.02 the loss falls surely, but slowly; with 0.1 faster. With 0.5 the first step
# is the best of all, and then it jumps about; with 1 it explodes. The gradient is right only
# nearby, and a large step leaves the place that it told of.

# %% [markdown] id="00-uphill-notes" slideshow={"slide_type": "notes"}
# (3 min) Let the room choose rates. Nobody can tell the best rate beforehand: it depends on the
# model and on the moment, which is why real training changes it over time.

# %% [markdown] id="00-ranks-text" slideshow={"slide_type": "slide"}
# ## 6 · Many pupils, one correction: sync
#
# On a cluster (many computers joined by a network) many programs train one model together. Each
# is called a **rank** and has a number, from 0 on. Nothing is shared: each has its own memory, and
# they can only send each other messages.
#
# Four ranks hold 10, 20, 30 and 40. **AllReduce** (全归约) adds up what all hold and gives
# **everyone** the sum.
#
# **Predict.** What does rank 3 hold after AllReduce? And after dividing by four?


# %% id="00-allreduce" slideshow={"slide_type": "subslide"}
def meet(values: list[int]) -> float:
    """Runs on every rank: take my own value, and average it with the others'."""
    mine = torch.tensor(float(values[rank()]))
    dist.all_reduce(mine)  # adds up over all ranks, in place
    return (mine / world_size()).item()


before = [10, 20, 30, 40]
after = launch(meet, before, world_size=4)  # four real processes
assert after == [25.0, 25.0, 25.0, 25.0]  # everyone had the sum, 100; then ÷ 4

# %% id="00-allreduce-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
_ = before_after(
    before, after, "all_reduce ÷ 4", title="All ranks end with the same number"
)

# %% [markdown] id="00-allreduce-notes" slideshow={"slide_type": "notes"}
# (3 min) These are four real operating-system processes, started from this notebook, and the
# same code runs on four GPUs. `launch` runs the function on each and returns the four results.

# %% [markdown] id="00-sync-text" slideshow={"slide_type": "slide"}
# ### Gradient synchronisation (梯度同步)
#
# Now the values are gradients. Each rank takes a quarter of the batch: rank 0 the rows 0, 4, 8,
# …, rank 1 the rows 1, 5, 9, … Each finds the gradient of *its* rows. Then they average.
#
# **Predict.** Are the four gradients equal before they meet? And is their average the gradient
# that a single process finds with the whole batch?


# %% id="00-sync" slideshow={"slide_type": "subslide"}
def gradient_of(rows) -> Tensor:
    """The gradient of these rows' mean loss, all parameters in one long vector."""
    fresh = new_model()
    cross_entropy(fresh(rows.inputs), rows.targets, rows.mask).backward()
    return torch.cat([parameter.grad.flatten() for parameter in fresh.parameters()])


def on_each_rank() -> tuple[Tensor, Tensor]:
    """Find my own gradient, then agree with the others on one."""
    own = gradient_of(shard(batch, rank(), world_size()))
    agreed = own.clone()
    dist.all_reduce(agreed)
    return own, agreed / world_size()


# %% id="00-sync-run" slideshow={"slide_type": "subslide"}
own, agreed = zip(*launch(on_each_rank, world_size=4), strict=True)
whole = gradient_of(batch)  # one process, all 256 rows

assert all((own[r] - whole).abs().max() > 1e-3 for r in range(4))  # alone: all wrong
assert all(
    torch.equal(agreed[r], agreed[0]) for r in range(4)
)  # together: all the same
assert (agreed[0] - whole).abs().max() < 1e-6  # and right
print("four different gradients; their average is the whole batch's, within 1e-6")

# %% id="00-sync-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
few = whole.abs().topk(8).indices
_ = gradients_of_ranks(
    [gradient[few] for gradient in own], agreed[0][few], whole[few],
    title="Alone each rank is off; their average is right (8 steepest parameters)",
)  # fmt: skip

# %% [markdown] id="00-sync-after" slideshow={"slide_type": "skip"}
# **What this proved.** With a quarter of the work each, four ranks got the correction that one
# process would have made, up to rounding. This is **data parallel** (数据并行) training. Had each
# rank corrected itself by its own gradient, there would now be four different models. The plain
# mean was right because the quarters are equally large; what if they are not?

# %% [markdown] id="00-sync-notes" slideshow={"slide_type": "notes"}
# (4 min) Point at one column: four markers, the black dash is their mean, the grey bar what one
# process finds. The chapters 07 to 11 build all of this by hand, message by message.

# %% [markdown] id="00-ex2-text" slideshow={"slide_type": "skip"}
# ### Exercise 00.2 · Average gradients of unequal batches
#
# Rank `r` read `counts[r]` rows and holds `gradients[r]`, the **mean** gradient of its own rows.
# Write `my_average(gradients, counts)`, which returns the mean gradient of all rows together.
#
# - `gradients` is a list of P tensors of one shape, `counts` a list of P whole numbers.
# - Predict first: rank 0 has 3 rows with mean 2, rank 1 has 2 rows with mean 15. Is the mean of
#   all five rows 8.5?
# - A rank may hold no row at all; its gradient is then a tensor of zeros.
# - Only arithmetic, no ranks needed; leave the inputs as they are. `hint("00.2")` helps.
#
# <details><summary>Hint</summary>
#
# A mean times its count is a sum. Add the sums, then divide once, by the number of all rows.
#
# </details>


# %% id="00-ex2" exercise="00.2" slideshow={"slide_type": "skip"}
def my_average(gradients: list[Tensor], counts: list[int]) -> Tensor:
    """Return the mean gradient of all rows, from each rank's mean and count."""
    ### BEGIN SOLUTION
    total = torch.zeros_like(gradients[0])
    for gradient, rows in zip(gradients, counts, strict=True):
        total = total + rows * gradient
    return total / sum(counts)
    ### STUB: ...
    ### END SOLUTION


# %% id="00-ex2-check" slideshow={"slide_type": "skip"}
check("00.2", my_average)

# %% [markdown] id="00-train-text" slideshow={"slide_type": "slide"}
# ## 7 · Again and again: the training loop (训练循环)
#
# One step makes the model a little less wrong, so it is repeated. `train_step` holds the six
# stages that you have just seen. An **optimizer** makes the updates; ours, AdamW, also goes against
# the gradient, in steps that it sizes for each parameter (chapter 05). With one process there is
# nobody to agree with, and the sync does nothing.
#
# **Predict.** 500 steps of 256 problems are 128,000, of a million that there are. What share of the
# 4,096 exam problems will be right, in every digit? (The cell takes about half a minute.)

# %% id="00-train" slideshow={"slide_type": "subslide"}
# a fresh model, with torch's own fast ("fused") layers, and all that training needs
run = start_run(preset("addition", kernels="fused"))
losses, exam_scores = [], {0: evaluate(run.model, run.data, run.sync).exact_match}

for step in range(run.config.steps):
    report = train_step(run.model, run.data, step, run.optimizer, run.sync, run.config)
    losses.append(report.loss_sum / report.counted)
    if (step + 1) % 50 == 0:
        score = evaluate(run.model, run.data, run.sync)
        exam_scores[step + 1] = score.exact_match

# %% id="00-train-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
assert exam_scores[0] < 0.01, "before training, nothing is right"
assert score.heldout_problems >= 2000
assert score.exact_match >= 0.99
print("over 99 % of the exam is right in every digit")

_ = loss_and_score(losses, exam_scores, title="From knowing nothing to over 99 % right")

# %% [markdown] id="00-train-after" slideshow={"slide_type": "skip"}
# **What this proved.** The exam problems were never in a batch, so the model has learnt to *add*
# three-digit numbers, not to remember. Look at both curves: the loss falls from the first step, as
# the model learns what answers look like. Then it hardly moves, until the model finds out how to
# add, and in all that time hardly an answer is right in all four digits. The loss is what training
# can follow downhill; the score is what we want.

# %% id="00-trained-bars" slideshow={"slide_type": "subslide"} tags=["hide-input"]
logits = run.model(encode("347+586=").unsqueeze(0))[0, -1].detach()
_ = probability_bars(
    torch.softmax(logits, dim=-1), SYMBOLS, truth="3",
    title="The trained model: sure, and right",
    xlabel="next token after 347+586=",
)  # fmt: skip

# %% [markdown] id="00-train-notes" slideshow={"slide_type": "notes"}
# (4 min) The loop runs for about 20 seconds. Ask while it runs: if training were on four ranks,
# which line would be another? Only `run.sync`: NoSync here, one all_reduce there.

# %% [markdown] id="00-cost-text" slideshow={"slide_type": "slide"}
# ## 8 · Where the time goes
#
# | stage | what comes out | what it needs most |
# |---|---|---|
# | data | the next problems | little |
# | forward | logits | arithmetic |
# | loss | one number | little |
# | backward | a gradient for every parameter | arithmetic: about twice the forward's |
# | sync | one gradient for all ranks | the **network** |
# | update | new parameters | memory traffic |
#
# **Predict.** On two ranks of this machine, which stage takes the most time?


# %% id="00-cost" slideshow={"slide_type": "subslide"} tags=["hide-input"]
def seconds_per_stage(steps: int = 30) -> dict[str, float]:
    """Train a few steps on every rank; the seconds of each stage in one step."""
    run, clock = start_run(preset("addition")), StageClock()
    for step in range(steps):
        train_step(run.model, run.data, step, run.optimizer, run.sync, run.config,
                   clock.stage)  # fmt: skip
    return {stage: time_s / steps for stage, time_s in clock.time_s.items()}


seconds = launch(seconds_per_stage, world_size=2)[0]
assert list(seconds) == ["data", "forward", "loss", "backward", "sync", "update"]
_ = stage_seconds(seconds, title="The time of one step on two ranks, by stage")

# %% [markdown] id="00-cost-notes" slideshow={"slide_type": "notes"}
# (2 min) A 7 B model has 7 billion gradients, 14 GB in bfloat16, to be averaged in every step.

# %% [markdown] id="00-cost-after" slideshow={"slide_type": "skip"}
# Your picture will differ from your neighbour's: it is this machine's. Backward is usually the
# longest, with about twice the forward's arithmetic. Sync is a small part here, because two ranks
# of one machine send each other a few hundred kilobytes through its memory. On a thousand GPUs it
# is gigabytes over cables, in every step, and a GPU that waits for them does no useful work. That
# is why AI clusters are built around their networks, which the last chapters are about.
#
# ### Exercise 00.3 · Put the six stages in order
#
# Bring the six stages of one training step into the order in which they run.
#
# <details><summary>Hint</summary>
#
# Ask of each stage what it needs: the loss needs an answer, a gradient needs a loss, the class
# can only agree on gradients that exist, and the correction comes last.
#
# </details>

# %% id="00-ex3" exercise="00.3" slideshow={"slide_type": "skip"}
# The stages, shuffled: "update", "loss", "sync", "data", "backward", "forward"
### BEGIN SOLUTION
my_order = ["data", "forward", "loss", "backward", "sync", "update"]
### STUB: my_order = [...]
### END SOLUTION

# %% id="00-ex3-check" slideshow={"slide_type": "skip"}
check("00.3", my_order)

# %% [markdown] id="00-class-text" slideshow={"slide_type": "slide"}
# ## From forward to update in one picture
#
# Each pupil works alone, and the answers are checked. Each finds its own mistake: that is its
# gradient (0 for the pupil who was right). The class agrees on the mean of all four gradients, −1,
# and every pupil takes the same step against it. So they all stay equal.

# %% id="00-class" slideshow={"slide_type": "fragment"} tags=["hide-input"]
_ = classroom(title="A class of four that learns as one")

# %% [markdown] id="00-class-notes" slideshow={"slide_type": "notes"}
# (1 min) −4, +2, 0 and −2 have the mean −1: look for it in the fourth and fifth scene.

# %% [markdown] id="00-summary" slideshow={"slide_type": "slide"}
# ## Summary
#
# 1. One step: **data → forward → loss → backward → sync → update**.
# 2. A model answers with a probability for every token; its loss is $-\ln p$(right answer), and
#    starts near $\ln V$, with $V$ symbols.
# 3. A gradient is the slope that a nudge would find; backward finds all of them at once.
# 4. The gradient points uphill: new = old − learning rate × gradient.
# 5. Ranks that average their gradients make the step that one process would have made.

# %% [markdown] id="00-formulas" slideshow={"slide_type": "skip"}
# ## Formula sheet
#
# $p$: probability of the right answer · $V$: symbols · $L$: loss · $w$: a parameter · $P$: ranks ·
# $n_r$: rows of rank $r$
#
# | | |
# |---|---|
# | loss of one token | $-\ln p$, e.g. $-\ln 0.70 = 0.357$ |
# | loss of a model that knows nothing | $\ln V$, here $\ln 13 = 2.565$ |
# | gradient by a nudge $h$ | $\dfrac{L(w + h) - L(w - h)}{2h}$ |
# | update | $w \leftarrow w - \text{rate} \times \text{gradient}$ |
# | agreement of $P$ ranks, equal shares | $\frac{1}{P} \sum_r \text{gradient}_r$ |
# | … unequal shares | $\sum_r n_r\, \text{gradient}_r \,/\, \sum_r n_r$ |
#
# ## Words of this chapter
#
# training step 训练步 · token 词元 · batch 批次 · parameter 参数 · forward pass 前向计算 ·
# loss 损失 · backward pass 反向传播 · gradient 梯度 · learning rate 学习率 ·
# parameter update 参数更新 · AllReduce 全归约 · gradient synchronisation 梯度同步 ·
# data parallel 数据并行 · training loop 训练循环
#
# ## To read
#
# - N. Lee et al., *Teaching Arithmetic to Small Transformers*, 2023 (arXiv:2307.03381): why the
#   sum is written backwards.
# - M. Nielsen, *Neural Networks and Deep Learning*, chapter 1: gradient descent, told slowly.
# - S. Li et al., *PyTorch Distributed*, 2020 (arXiv:2006.15704): the sync of a real library.
#
# **Next:** 01 · Forward pass, in which the Transformer stops being a black box.
