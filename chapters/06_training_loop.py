# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] id="06-title" slideshow={"slide_type": "slide"}
# # 06 · The training loop
#
# **How do six stages become a training that can be trusted?**
#
# *About 60 minutes · chapters 01 to 05 before · no GPU needed*
#
# **data → forward → loss → backward → sync → update**, again and again

# %% [markdown] id="06-title-notes" slideshow={"slide_type": "notes"}
# (1 min) Every stage is known by now. Today we put them together, and look for the mistakes that
# don't show: a loop can be wrong in five places while its loss falls nicely.

# %% [markdown] id="06-goals" slideshow={"slide_type": "slide"}
# ## What you will be able to do
#
# 1. Write the training loop (训练循环), and train the addition model to over 99 %.
# 2. Accumulate gradients (梯度累积) over micro-batches so that they equal the large batch's.
# 3. Evaluate without dropout, and say what bfloat16 changes.
# 4. Stop a run, and go on with exactly the same run (断点续训).
# 5. Find bugs in a loop whose loss still falls.
# 6. Predict the FLOPs of a step, and say which stages wait for arithmetic and which for memory.

# %% [markdown] id="06-goals-notes" slideshow={"slide_type": "notes"}
# (1 min) Goals 2 and 4 return on many ranks: the same scale, the same checkpoint.

# %% [markdown] id="06-recap" slideshow={"slide_type": "skip"}
# ## Recap
#
# - Forward gives logits, the loss is $-\ln p$ of the right token, averaged over what the mask
#   names.
# - Backward finds a gradient for every parameter.
# - Sync does nothing on one device.
# - Update: clip, set the rate, take the optimizer's step.
# - Our AdamW is torch's. This cell says so for one step:

# %% id="06-recap-check" slideshow={"slide_type": "skip"}
import copy
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.update.optimizers import AdamW

mine, theirs = (torch.ones(3, requires_grad=True) for _ in range(2))
for weight, kind in ((mine, AdamW), (theirs, torch.optim.AdamW)):
    weight.grad = torch.tensor([0.01, 1.0, -100.0])
    kind([weight], lr=0.1, weight_decay=0.1).step()
assert torch.allclose(mine, theirs)

# %% id="06-setup" tags=["hide-input"] slideshow={"slide_type": "skip"}
from course_lib.checkpoint import load_checkpoint
from course_lib.config import preset
from course_lib.cost.measure import matmul_flops_per_s, measure_machine
from course_lib.cost.step import StageWork, step_flops
from course_lib.data.batch import Batch
from course_lib.loss import cross_entropy, cross_entropy_sum
from course_lib.paths import data_file
from course_lib.teach.exercises import check
from course_lib.teach.figures.bounds import roofline
from course_lib.teach.figures.curves import loss_curve
from course_lib.teach.figures.series import over_steps
from course_lib.teach.figures.stages import stage_seconds
from course_lib.teach.figures.training import loss_and_score
from course_lib.teach.widgets.accumulation import accumulation_explorer
from course_lib.train import StageClock, fit, train_step
from course_lib.train.evaluate import evaluate, samples
from course_lib.train.fit import start_run
from course_lib.train.step import learning_rate, micro_batches
from course_lib.update.clipping import clip_grad_norm

# %% [markdown] id="06-step-text" slideshow={"slide_type": "slide"}
# ## 1 · All six stages in one loop
#
# Here is the loop as most people write it, with torch's own loss, clipping and optimizer. Each
# stage is a line or two. The weight decay acts on matrices only, not on biases and norms.
#
# **Predict.** The package's `train_step` does the same with our own parts. After 20 steps from the
# same start, how far are the two models apart?


# %% id="06-plain-loop" slideshow={"slide_type": "skip"}
def plain_loop(config, steps: int):
    """Train on one device with torch's own parts; return the model."""
    run = start_run(
        config
    )  # data, a fresh model, an optimizer (which is not used here)
    model, params = run.model, list(run.model.parameters())
    matrices, vectors = ([p for p in params if (p.dim() >= 2) == big] for big in (1, 0))
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    decay, betas = config.weight_decay, config.betas
    optimizer = torch.optim.AdamW(groups, betas=betas, weight_decay=decay)
    for step in range(steps):
        batch = run.data.batch(step, config.batch_size)  # data
        logits = model(batch.inputs)  # forward
        loss = F.cross_entropy(logits[batch.mask], batch.targets[batch.mask])  # loss
        loss.backward()  # backward; sync: nothing to do on one device
        torch.nn.utils.clip_grad_norm_(params, config.clip_norm)  # update
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        optimizer.step()
        optimizer.zero_grad()  # .grad adds up: begin anew
    return model


# %% id="06-step-equal" slideshow={"slide_type": "subslide"}
config = preset("addition", batch_size=32, dtype="float64", warmup_steps=5)
plain = plain_loop(config, steps=20)

run = start_run(config)
for step in range(20):
    train_step(run.model, run.data, step, run.optimizer, run.sync, run.config)

for one, other in zip(run.model.parameters(), plain.parameters(), strict=True):
    assert (one - other).abs().max() < 1e-6
print("train_step equals the plain loop after 20 steps, within 1e-6")

# %% [markdown] id="06-step-answer" slideshow={"slide_type": "skip"}
# **What this proved.** Our loss, clipping, schedule and AdamW together make the steps that torch's
# make. The order matters: gradients add up in `.grad`, so they are reset once for each update;
# clipping stands after backward (and sync) and before the step.

# %% [markdown] id="06-step-notes" slideshow={"slide_type": "notes"}
# (3 min) Open course_lib/train/step.py beside it: the same lines, plus accumulation, sync and
# clocks. It has under 30 lines, and runs on 1 and on 1,000 ranks.

# %% [markdown] id="06-train-text" slideshow={"slide_type": "subslide"}
# ### Train it to over 99 %
#
# 500 steps of 256 additions. We keep three curves: the loss (损失), the exam's score on problems
# that were never trained on, and the norm of the gradient before clipping.
#
# **Predict.** Draw the loss curve (学习曲线) before you run it: a straight line, a smooth bend, or
# stairs? And at which step does the score leave 0 %?

# %% id="06-train" slideshow={"slide_type": "subslide"}
run = start_run(preset("addition", kernels="fused"))
losses, norms, scores = [], [], {}

for step in range(run.config.steps):
    report = train_step(run.model, run.data, step, run.optimizer, run.sync, run.config)
    losses.append(report.loss_sum / report.counted)
    norms.append(report.grad_norm)
    if (step + 1) % 50 == 0:
        scores[step + 1] = evaluate(run.model, run.data, run.sync).exact_match
assert scores[run.config.steps] >= 0.99
print("over 99 % of the exam right")

# %% id="06-train-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
_ = loss_and_score(losses, scores, title="First the look of an answer, then how to add")

# %% id="06-norms" slideshow={"slide_type": "subslide"} tags=["hide-input"]
_ = over_steps(
    {"norm of the gradient": norms}, log=True, ylabel="global norm, before clipping",
    reference=(run.config.clip_norm, "clipped above this"),
    title="The second curve to watch: how long the gradient is",
)  # fmt: skip

# %% [markdown] id="06-train-answer" slideshow={"slide_type": "skip"}
# **Answer.** Stairs. The loss falls at once while the model learns which symbols answers are made
# of; then it rests; then it falls again as digit after digit is understood. The score stays near 0
# until nearly every digit is right, since one wrong digit spoils the answer. A flat loss is not
# always the end, and a falling one is not yet success: look at the score too.

# %% [markdown] id="06-train-notes" slideshow={"slide_type": "notes"}
# (5 min) What curves tell: NaN or a jump: rate too high. Flat from the start: a bug, or a rate far
# too low. Training falls, exam doesn't: learning by heart (section 5 shows it on a text).

# %% [markdown] id="06-accum-text" slideshow={"slide_type": "slide"}
# ## 2 · A batch that doesn't fit: accumulation (梯度累积)
#
# The forward pass keeps numbers for the backward pass, for every row. If a batch of 256 rows needs
# too much memory, work through 4 **micro-batches** of 64, let `.grad` add up, and update once.
#
# **Predict.** Which of these shrinks to a quarter: parameters, gradients, optimizer state,
# activations (激活值, what forward keeps)?


# %% id="06-saved" slideshow={"slide_type": "skip"}
def saved_bytes(model, batch: Batch) -> int:
    """The bytes that autograd keeps from forward for backward, each tensor once."""
    kept = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.mask)
    assert (
        loss.requires_grad
    )  # the graph is alive, so nothing was freed and counted twice
    return sum(size for place, size in kept.items() if place not in own)


# %% id="06-widget" slideshow={"slide_type": "subslide"} tags=["hide-input"]
small = start_run(preset("addition", kernels="fused"))
batch = small.data.batch(0, 256)
whole, quarter = (
    saved_bytes(small.model, batch),
    saved_bytes(small.model, batch.rows(slice(64))),
)
assert abs(whole / quarter - 4) < 0.1  # a quarter of the rows, a quarter of the bytes
parameter_bytes = sum(p.numel() * 4 for p in small.model.parameters())
fixed = {"parameters": parameter_bytes, "gradients": parameter_bytes,
         "AdamW's state": 2 * parameter_bytes}  # fmt: skip
accumulation_explorer(fixed, whole, rows=256)

# %% [markdown] id="06-accum-notes" slideshow={"slide_type": "notes"}
# (3 min) In large models it is the other way round: parameters, gradients and state take 16 bytes
# a parameter, and have to be cut over ranks. That is another course's chapter.

# %% [markdown] id="06-scale-text" slideshow={"slide_type": "subslide"}
# ### With which scale?
#
# (**Answer** to the last question: the activations alone, but here they are nearly everything.)
#
# Part A counts 1 token and has the loss sum 4; part B counts 3 tokens and has the sum 6.
#
# $$\frac{4 + 6}{1 + 3} = 2.5 \qquad\text{but}\qquad \frac12\left(\frac41 + \frac63\right) = 3$$
#
# The mean of the means is another number. So divide every part's **sum** by the count of the
# **whole** batch; then the parts' gradients add up to the right one.
#
# **Predict.** What happens to the gradient if each part's mean is used, and not divided by
# anything?

# %% id="06-scale" slideshow={"slide_type": "subslide"} tags=["hide-input"]
big = start_run(preset("addition", dtype="float64", batch_size=8, clip_norm=1e9))
cut = start_run(preset("addition", dtype="float64", batch_size=8, clip_norm=1e9,
                       grad_accum_steps=3))  # fmt: skip
for each in (big, cut):
    report = train_step(
        each.model, each.data, 0, each.optimizer, each.sync, each.config
    )
    each.norm = report.grad_norm

rows = [len(part.inputs) for part, _ in micro_batches(big.data.batch(0, 8), 3)]
assert rows == [3, 3, 2]  # a short last part
assert math.isclose(big.norm, cut.norm, rel_tol=1e-12)
for one, other in zip(big.model.parameters(), cut.model.parameters(), strict=True):
    assert (one - other).abs().max() < 1e-9
print("3 + 3 + 2 rows: the same gradient and the same step as 8 rows at once")

# %% [markdown] id="06-scale-answer" slideshow={"slide_type": "skip"}
# **Answer.** Unscaled, three parts give about three times the gradient. Under Adam that hardly
# shows, since Adam divides by the usual size; clipping, though, now cuts nearly every step, and
# under SGD the rate is three times too high. It is the kind of bug that costs weeks.

# %% [markdown] id="06-scale-notes" slideshow={"slide_type": "notes"}
# (2 min) This bug sat in a widely used library until 2024: with unequal token counts, accumulated
# training differed from the large batch, and nobody saw it in the loss curve.

# %% [markdown] id="06-ex1-text" slideshow={"slide_type": "skip"}
# ### Exercise 06.1 · Accumulate with the right scale
#
# Write `my_accumulate(model, parts)`.
#
# - `parts` is a list of `Batch`: `part.inputs` and `part.targets` are tokens `[B, T]`, `part.mask`
#   says which targets count. Parts differ in rows and in how much they count; one may count nothing.
# - Afterwards `.grad` of each parameter holds the gradient of the mean loss over **all** targets
#   that count in all parts. It was empty before.
# - One forward and one backward for each part, in order. Don't join parts.
# - Return that mean loss as a float.
#
# `cross_entropy_sum(logits, targets, mask).total` is the sum of the losses that count.
#
# <details><summary>Hint</summary>
#
# You need the count of all parts before the first backward: `part.mask.sum()` of each. `.item()`
# turns the sum of a part into a float.
#
# </details>


# %% id="06-ex1" exercise="06.1" slideshow={"slide_type": "skip"}
def my_accumulate(model, parts: list[Batch]) -> float:
    """Leave the whole batch's gradient in .grad; return its mean loss."""
    ### BEGIN SOLUTION
    counted = sum(int(part.mask.sum()) for part in parts)
    mean = 0.0
    for part in parts:
        total = cross_entropy_sum(model(part.inputs), part.targets, part.mask).total
        (total / counted).backward()
        mean += total.item() / counted
    return mean
    ### STUB: ...
    ### END SOLUTION


# %% id="06-ex1-check" slideshow={"slide_type": "skip"}
check("06.1", my_accumulate)

# %% [markdown] id="06-bf16-text" slideshow={"slide_type": "slide"}
# ## 3 · Half the bits, no dropout, a clean stop
#
# **bfloat16** has the range of float32 and only 8 bits of precision: 2 to 3 decimal digits. Under
# **autocast** (自动混合精度) matrix products run in bfloat16, at half the bytes, and on GPUs
# several times faster. The weights stay float32.
#
# **Predict.** What is 256 + 1 in bfloat16? Why must the weights not be kept in it?

# %% id="06-bf16" slideshow={"slide_type": "subslide"}
assert torch.tensor(256.0, dtype=torch.bfloat16) + 1 == 256  # the 1 is lost

gradients = []
for on in (False, True):
    with torch.autocast("cpu", torch.bfloat16, enabled=on):
        logits = small.model(batch.inputs)
    small.optimizer.zero_grad()
    cross_entropy(logits, batch.targets, batch.mask).backward()
    gradients.append(torch.cat([p.grad.flatten() for p in small.model.parameters()]))
    print(f"logits {logits.dtype}, weights {small.model.head.dtype}, gradients "
          f"{small.model.head.grad.dtype}")  # fmt: skip
exact, rounded = gradients
assert 1e-4 < (rounded - exact).norm() / exact.norm() < 0.1

# %% [markdown] id="06-bf16-answer" slideshow={"slide_type": "skip"}
# **Answer.** 256: the next number after it is 258. An update smaller than about 1/256 of its
# parameter would be rounded away. The gradient is off by less than a tenth of its length. The loss
# itself is computed in float32: a sum of many logs would lose its small
# terms.

# %% [markdown] id="06-bf16-notes" slideshow={"slide_type": "notes"}
# (2 min) float16 has more precision and less range, so gradients fall to zero: it needs a scaler
# for the loss. bfloat16 does not, which is why it won.

# %% [markdown] id="06-eval-text" slideshow={"slide_type": "subslide"}
# ### Evaluation without dropout
#
# **Dropout** (随机失活) sets random activations to zero while training, so that the model doesn't
# rely on any single one. In an exam that would be noise. `model.eval()` turns it off,
# `model.train()` on again, and `torch.no_grad()` keeps nothing for a backward pass.
#
# **Predict.** Two passes over the same batch: equal in training mode? Equal in eval mode, to the
# bit?

# %% id="06-eval" slideshow={"slide_type": "fragment"}
forgetful = start_run(preset("addition", dropout=0.2)).model
assert not torch.equal(forgetful(batch.inputs), forgetful(batch.inputs))
forgetful.eval()
with torch.no_grad():
    one, other = forgetful(batch.inputs), forgetful(batch.inputs)
assert torch.equal(one, other)
assert not one.requires_grad
print("train mode: two answers; eval mode: one, to the bit")

# %% [markdown] id="06-eval-notes" slideshow={"slide_type": "notes"}
# (2 min) Two eval passes that differ are a sure sign that dropout is alive somewhere, for example
# by a functional call that was never told the mode.

# %% [markdown] id="06-resume-text" slideshow={"slide_type": "slide"}
# ### Stop, and go on with the same run (断点续训)
#
# Long runs are interrupted. A **checkpoint** (检查点) must hold all that decides the rest of the
# run: parameters, the optimizer's $m$, $v$ and step, how many steps are done, and the state of
# every random number generator that is still drawn from.
#
# **Predict.** 12 steps in one go, or 5 steps, a new process, and 7 more: are the models equal to
# the bit? And if only the parameters are loaded?

# %% id="06-resume" slideshow={"slide_type": "subslide"}
config = preset(
    "addition", steps=12, batch_size=32, warmup_steps=2, dropout=0.1, eval_every=0
)
whole = fit(config)
with TemporaryDirectory() as folder:
    fit(config, out=folder, stop_after=5)  # leaves a checkpoint in the folder
    checkpoint = load_checkpoint(Path(folder) / "checkpoint.pt")
    rest = fit(config, out=folder, resume=True)

assert checkpoint.step == 5
assert rest.step == 12
assert rest.result.parameters_sha256 == whole.result.parameters_sha256
print("5 + 7 steps equal 12 steps in every bit of every parameter")

# %% id="06-resume-wrong" slideshow={"slide_type": "subslide"}
naive = start_run(config)
naive.model.load_state_dict(checkpoint.model)  # the parameters, and nothing else
for step in range(5, 12):
    train_step(naive.model, naive.data, step, naive.optimizer, naive.sync, config)

pairs = zip(naive.model.parameters(), whole.model.parameters(), strict=True)
assert max((one - other).abs().max() for one, other in pairs) > 1e-4
print("with the parameters alone it is another run")

# %% [markdown] id="06-resume-answer" slideshow={"slide_type": "skip"}
# **Answer.** Equal, if everything is kept; another run, if only the parameters are: Adam begins
# with $m = v = 0$ again, in the middle of the run, and dropout draws other masks.
#
# The package needs little: batches and rates are functions of the step, so the step is enough for
# them, and it seeds dropout from the step too. "To the bit" holds on one machine with the same
# number of threads: with another, sums are added in another order. A checkpoint is written beside
# the old one and then takes its place in one move, so that a crash never leaves half a file, and it
# is loaded by `torch.load(..., weights_only=True)`, which runs no code from the file.

# %% [markdown] id="06-resume-notes" slideshow={"slide_type": "notes"}
# (4 min) A good test for any training code you meet: run 12; run 5 + 7; compare hashes. Most fail.

# %% [markdown] id="06-ex2-text" slideshow={"slide_type": "skip"}
# ### Exercise 06.2 · A resume that continues the same run
#
# Write `my_run(model, optimizer, take_step, until, saved)`.
#
# - `take_step(model, optimizer, step)` is given: it does step number `step`, counted from 0, and
#   draws random numbers from torch's generator. Call it for every step up to, not including, `until`.
# - `saved` is None for a new run. Otherwise it is what an earlier call returned: put its state into
#   `model`, `optimizer` and torch's generator, and go on where it stopped.
# - Return a dict with all that a later call needs: numbers, strings, tensors, lists and dicts only,
#   so that the safe loader takes it. Later training must not change it.
#
# Given by torch: `x.state_dict()` and `x.load_state_dict(state)` for model and optimizer,
# `torch.get_rng_state()` and `torch.set_rng_state(state)` for the generator.
#
# <details><summary>Hint</summary>
#
# `state_dict()` hands out the very tensors that training changes: `copy.deepcopy` of the dict makes
# a snapshot. Save how many steps are done.
#
# </details>


# %% id="06-ex2" exercise="06.2" slideshow={"slide_type": "skip"}
def my_run(model, optimizer, take_step, until: int, saved: dict | None) -> dict:
    """Train up to step `until`, from the start or from `saved`; return the state."""
    ### BEGIN SOLUTION
    first = 0
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["generator"])
        first = saved["step"]
    for step in range(first, until):
        take_step(model, optimizer, step)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generator": torch.get_rng_state(),
        "step": until,
    }
    return copy.deepcopy(state)
    ### STUB: ...
    ### END SOLUTION


# %% id="06-ex2-check" slideshow={"slide_type": "skip"}
check("06.2", my_run)

# %% [markdown] id="06-bugs-text" slideshow={"slide_type": "slide"}
# ## 4 · Five bugs, and the loss still falls
#
# A wrong loop seldom crashes. The one below has five bugs, all of them common, and its loss goes
# down.
#
# **Predict.** Read it before you run it. How many do you find?


# %% id="06-broken" slideshow={"slide_type": "subslide"}
def broken_train(model, optimizer, batches, parts, max_norm, exam):
    losses = []
    for batch in batches:
        mean = 0.0
        for part, _ in micro_batches(batch, parts):
            loss = cross_entropy(model(part.inputs), part.targets)
            loss.backward()
            mean += loss.item() / parts
        optimizer.step()
        clip_grad_norm(model.parameters(), max_norm)
        losses.append(mean)
    return losses, cross_entropy(model(exam.inputs), exam.targets, exam.mask).item()


# %% id="06-broken-run" slideshow={"slide_type": "subslide"} tags=["hide-input"]
bad = start_run(preset("addition", dropout=0.1, kernels="fused"))
bad.model.train()
batches = [bad.data.batch(step, 64) for step in range(60)]
exam = bad.data.batch(1000, 64)
optimizer = AdamW(bad.model.parameters(), lr=1e-3)
bad_losses, bad_exam = broken_train(bad.model, optimizer, batches, 4, 1.0, exam)
assert sum(bad_losses[-5:]) / 5 < bad_losses[0] - 0.2
print("the loss of the broken loop falls")

_ = over_steps(
    {"a loop with five bugs": bad_losses}, ylabel="loss (nats per token)",
    title="Nothing to see here: five bugs, and the loss goes down",
)  # fmt: skip

# %% [markdown] id="06-bugs-notes" slideshow={"slide_type": "notes"}
# (5 min) Give two minutes of silence with the code. Then collect. Don't tell the answers: they are
# exercise 06.3. What would have shown each bug: gradients equal to the large batch's (2 bugs), two
# eval passes (1), the norm of what the optimizer gets (1), the loss at the start by kind of token (1).

# %% [markdown] id="06-ex3-text" slideshow={"slide_type": "skip"}
# ### Exercise 06.3 · Five bugs in a loop whose loss still falls
#
# Write `my_train(model, optimizer, batches, parts, max_norm, exam)`: `broken_train` without its five
# bugs. The cell holds a copy: mend it.
#
# - `batches` is a list of `Batch`, each worked through in `parts` micro-batches (`micro_batches(batch,
#   parts)` gives pairs of a part and whether it is the last); one optimizer step for each batch.
# - The gradient of a step is that of the mean loss over all targets of this batch that count,
#   clipped to `max_norm`.
# - Return `(losses, exam_loss)`: a list with each batch's mean loss over the targets that count, and
#   the exam's. All are floats. The model is in training mode before and afterwards.
#
# <details><summary>Hint</summary>
#
# Take the stages one by one. What counts in the loss? By what is it divided? What is in `.grad`
# when a batch begins? What does the optimizer see: the gradient before or after clipping? In which
# mode is the model when the exam comes?
#
# </details>


# %% id="06-ex3" exercise="06.3" slideshow={"slide_type": "skip"}
def my_train(model, optimizer, batches, parts, max_norm, exam):
    """Train on each batch, in micro-batches; return each step's loss and the exam's."""
    ### BEGIN SOLUTION
    losses = []
    for batch in batches:
        counted = int(batch.mask.sum())
        optimizer.zero_grad()
        mean = 0.0
        for part, _ in micro_batches(batch, parts):
            logits = model(part.inputs)
            loss = cross_entropy_sum(logits, part.targets, part.mask).total / counted
            loss.backward()
            mean += loss.item()
        clip_grad_norm(model.parameters(), max_norm)
        optimizer.step()
        losses.append(mean)
    model.eval()
    answers = model(exam.inputs)
    exam_loss = cross_entropy(answers, exam.targets, exam.mask).item()
    model.train()
    return losses, exam_loss
    ### STUB: losses = []
    ### STUB: for batch in batches:
    ### STUB:     mean = 0.0
    ### STUB:     for part, _ in micro_batches(batch, parts):
    ### STUB:         loss = cross_entropy(model(part.inputs), part.targets)
    ### STUB:         loss.backward()
    ### STUB:         mean += loss.item() / parts
    ### STUB:     optimizer.step()
    ### STUB:     clip_grad_norm(model.parameters(), max_norm)
    ### STUB:     losses.append(mean)
    ### STUB: answers = model(exam.inputs)
    ### STUB: exam_loss = cross_entropy(answers, exam.targets, exam.mask).item()
    ### STUB: return losses, exam_loss
    ### END SOLUTION


# %% id="06-ex3-check" slideshow={"slide_type": "skip"}
check("06.3", my_train)

# %% [markdown] id="06-cost-text" slideshow={"slide_type": "slide"}
# ## 5 · What a step costs
#
# A clock around each stage shows where the seconds go. On a GPU, calls return before their work
# is done: there a clock must wait for the device first (`torch.cuda.synchronize()`), or use CUDA
# events. Otherwise the seconds of one stage are counted in another.
#
# **Predict.** Order the stages by their seconds, on one device.

# %% id="06-profile" slideshow={"slide_type": "subslide"} tags=["hide-input"]
timed, clock, work = start_run(preset("addition")), StageClock(), StageWork()
for step in range(22):
    if step == 2:
        clock.time_s.clear()  # the first steps warm up
    train_step(timed.model, timed.data, step, timed.optimizer, timed.sync, timed.config,
               clock.stage)  # fmt: skip
seconds = {stage: time_s / 20 for stage, time_s in clock.time_s.items()}
assert list(seconds) == ["data", "forward", "loss", "backward", "sync", "update"]

_ = stage_seconds(seconds, title="Forward and backward take nearly all of a step")

# %% [markdown] id="06-6nd-text" slideshow={"slide_type": "subslide"}
# ### Six N D
#
# A token is multiplied once with nearly every parameter: a multiplication and an addition, 2 FLOPs.
# Backward needs two such products for each (for the gradient of the input, and of the weight): 4
# more. With $N$ parameters and $D$ tokens (here not the width) a step costs about
#
# $$6\, N D \ \text{FLOPs}$$
#
# **Predict.** Our model has 0.1 M parameters, and a batch 256 × 11 tokens. How many GFLOPs is a step?
# What does the formula leave out?

# %% id="06-6nd" slideshow={"slide_type": "fragment"}
model = timed.model
looked_up = model.token_embedding.numel() + model.position_embedding.numel()
N, D = model.parameter_count() - looked_up, 256 * 11
train_step(model, timed.data, 22, timed.optimizer, timed.sync, timed.config, work.stage)
counted = work.flops["forward"] + work.flops["backward"]
assert 0.9 < counted / step_flops(N, D) < 1.35
print(f"N = {N:,}, D = {D:,}: 6 N D = {step_flops(N, D) / 1e9:.2f} GFLOP; counted: "
      "between 0.9 and 1.35 times that")  # fmt: skip

# %% [markdown] id="06-6nd-answer" slideshow={"slide_type": "skip"}
# **Answer.** 1.7 GFLOP. It leaves out attention's own products (they grow with $T^2$, and are small
# here), norms, GELU and softmax. An embedding is looked up, not multiplied, so it is not in $N$.
# `StageWork` counted every operation while a step ran.
#
# From that follow three numbers to compare runs by: **tokens per second**, FLOPs per second, and
# the **share of the peak** (算力利用率, in the literature MFU): reached ÷ the best that this machine
# does in a large matrix product. They are this machine's, so yours will differ:

# %% id="06-share" slideshow={"slide_type": "subslide"} tags=["nbval-ignore-output"]
machine = measure_machine()
step_s = sum(seconds.values())
reached = step_flops(N, D) / step_s
bf16 = matmul_flops_per_s(torch.bfloat16, sizes=(512,), repeats=3)
peak = machine.flops_per_s
print(f"{D / step_s:,.0f} tokens/s, {reached / 1e9:.1f} GFLOP/s")
print(f"matmul peak: float32 {peak / 1e9:.0f}, bfloat16 {bf16 / 1e9:.0f} GFLOP/s")
print(f"share of the float32 peak: {reached / peak:.0%}")
assert reached > 0

# %% [markdown] id="06-ex4-text" slideshow={"slide_type": "skip"}
# ### Exercise 06.4 · The share of the peak
#
# Write `my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s)`.
#
# - `parameters` is $N$ without embeddings, `tokens` is $D$, those of one step, `time_s` the seconds
#   that the step took, `peak_flops_per_s` the machine's peak.
# - Return the share that was reached, by $6 N D$, as a number (usually between 0 and 1).
# - Predict first: a model of 1 billion parameters takes 524,288 tokens in 8 s on a GPU with a
#   peak of 990 TFLOP/s. More or less than half of the peak?
#
# <details><summary>Hint</summary>
#
# FLOPs of the step ÷ its seconds ÷ the peak. Mind the units: all are plain FLOPs and seconds.
#
# </details>


# %% id="06-ex4" exercise="06.4" slideshow={"slide_type": "skip"}
def my_share_of_peak(
    parameters: int, tokens: int, time_s: float, peak_flops_per_s: float
) -> float:
    """Return which share of the peak a step reached, by 6 N D."""
    ### BEGIN SOLUTION
    flops_per_s = 6 * parameters * tokens / time_s
    return flops_per_s / peak_flops_per_s
    ### STUB: ...
    ### END SOLUTION


# %% id="06-ex4-check" slideshow={"slide_type": "skip"}
check("06.4", my_share_of_peak)

# %% [markdown] id="06-roof-text" slideshow={"slide_type": "subslide"}
# ### The roofline (屋顶线模型)
#
# Work needs arithmetic and bytes. Its **intensity** (计算强度) is FLOPs ÷ bytes moved. Whatever its
# intensity, it can't be faster than
#
# $$\min(\text{peak},\ \text{intensity} \times \text{memory bandwidth})$$
#
# Left of the bend one waits for memory, right of it for arithmetic.
#
# **Predict.** On which side of the bend do forward, backward and update lie?

# %% id="06-roof" slideshow={"slide_type": "subslide"} tags=["hide-input"]
points = {
    stage: (
        work.flops[stage] / work.size_bytes[stage],
        work.flops[stage] / seconds[stage],
    )
    for stage in ("forward", "loss", "backward", "update")
}
assert points["update"][0] < 1 < points["forward"][0]  # FLOPs for each byte
_ = roofline(
    machine.flops_per_s, machine.bytes_per_s, points,
    title="Update and loss lie far to the left: they wait for memory",
)  # fmt: skip

# %% [markdown] id="06-roof-answer" slideshow={"slide_type": "skip"}
# **Answer.** The update lies far to the left: less than one operation a byte, whatever the model.
# Forward and backward of this small model lie near the bend and below the roof: many of their
# operations are small, and each must be started. (The bytes are counted operation by operation as
# if each went to memory. Caches save a part of them, so a point may even lie above the slope.)
# Large matrix products move right and up: a square one of width 4,096 has 64 times the
# intensity of width 64.

# %% [markdown] id="06-roof-notes" slideshow={"slide_type": "notes"}
# (4 min) The message: faster arithmetic does not help the update, and more bandwidth does not help
# a large matrix product. A third roof, the network, comes in the second half of the course.

# %% [markdown] id="06-text-text" slideshow={"slide_type": "slide"}
# ## 6 · The same loop on a text
#
# Nothing in `train_step` knows about additions. Here it learns a short story, character by
# character. The last tenth of the story is kept for **validation** (验证).
#
# **Predict.** The story has 42 different characters. At which loss does it start? Which curve lies
# lower at the end, training or validation?

# %% id="06-text" slideshow={"slide_type": "subslide"}
sizes = {"context": 32, "layers": 2, "width": 64, "batch_size": 32, "kernels": "fused"}
text = str(data_file("lighthouse.txt"))
story = preset("text", text=text, steps=240, warmup_steps=20, **sizes)
run = start_run(story)
losses, validation = {}, {}
for step in range(story.steps):
    report = train_step(run.model, run.data, step, run.optimizer, run.sync, story)
    losses[step + 1] = report.loss_sum / report.counted
    if (step + 1) % 40 == 0:
        validation[step + 1] = evaluate(run.model, run.data, run.sync).validation_loss
assert abs(losses[1] - math.log(run.data.vocab_size)) < 0.3  # ln 42
assert losses[240] < validation[240] < losses[1] - 1

# %% id="06-text-figure" slideshow={"slide_type": "subslide"} tags=["hide-input"]
_ = loss_curve(losses, validation)

# %% id="06-sample" slideshow={"slide_type": "skip"} tags=["nbval-ignore-output"]
print(samples(run.model, run.data)[0])

# %% [markdown] id="06-text-answer" slideshow={"slide_type": "skip"}
# **Answer.** It starts near $\ln 42 = 3.7$. The training loss ends lower: the model begins to know
# the story by heart, which helps little on the part that it never read (**overfitting**, 过拟合).
# Six thousand characters are very few; the words that it invents look like English, and mean
# nothing. Learn a text of your own, from a terminal:
#
# ```
# course train --text my_text.txt --out runs/mine
# ```
#
# Ctrl-C stops it with a checkpoint, `course train --out runs/mine --resume` goes on.

# %% [markdown] id="06-text-notes" slideshow={"slide_type": "notes"}
# (3 min) The gap between the curves is what a score on training data hides. With a larger text the
# gap closes and the validation loss falls further.

# %% [markdown] id="06-summary" slideshow={"slide_type": "slide"}
# ## Summary
#
# 1. The loop is six stages; ours equals the plain one with torch's parts.
# 2. Accumulation: each part's sum ÷ the whole batch's count. It saves activations only.
# 3. Evaluate in eval mode; bfloat16 for products, float32 for weights and loss.
# 4. A checkpoint holds weights, optimizer, step and generators, and the run goes on to the bit.
# 5. A falling loss proves little: test gradients, modes, norms and scores.
# 6. 6 N D FLOPs a step; the update waits for memory.

# %% [markdown] id="06-formulas" slideshow={"slide_type": "skip"}
# ## Formula sheet
#
# | | |
# |---|---|
# | accumulated loss of part $i$ | $\dfrac{\text{sum}_i}{\sum_j \text{count}_j}$, backward, then the next part |
# | FLOPs of a step | $6 N D$: forward $2 N D$, backward $4 N D$ |
# | share of the peak | $6 N D \,/\, (\text{seconds} \cdot \text{peak})$ |
# | roofline | $\min(\text{peak},\ \text{intensity} \times \text{bandwidth})$ |
# | loss at the start | $\ln V$ |
#
# ## Words of this chapter
#
# training loop 训练循环 · learning curve 学习曲线 · gradient accumulation 梯度累积 ·
# activations 激活值 · mixed precision 混合精度 · dropout 随机失活 · validation 验证 ·
# checkpoint 检查点 · resume 断点续训 · share of the peak 算力利用率 · intensity 计算强度 ·
# roofline 屋顶线模型 · overfitting 过拟合
#
# ## To read
#
# - A. Karpathy, *A Recipe for Training Neural Networks*, 2019: how bugs hide behind a falling loss.
# - J. Kaplan et al., *Scaling Laws for Neural Language Models*, 2020 (arXiv:2001.08361): 6 N D.
# - S. Williams et al., *Roofline*, 2009: one picture for every machine.
#
# **Next:** chapter 07, in which a second process joins.
