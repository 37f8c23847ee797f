"""Known wrong and right answers to chapter 06's exercises."""

_ACC = "def my_accumulate(model, parts):\n"
_GOOD_ACC = (
    _ACC
    + "    counted = sum(int(part.mask.sum()) for part in parts)\n"
    + "    mean = 0.0\n"
    + "    for part in parts:\n"
    + "        found = cross_entropy_sum(model(part.inputs), part.targets, part.mask)\n"
    + "        loss = found.total / counted\n"
    + "        loss.backward()\n"
    + "        mean += loss.item()\n"
    + "    return mean\n"
)
_RUN = "def my_run(model, optimizer, take_step, until, saved):\n"
_LOAD = (
    "    step = 0\n"
    "    if saved is not None:\n"
    "        model.load_state_dict(saved['model'])\n"
    "        optimizer.load_state_dict(saved['optimizer'])\n"
    "        torch.set_rng_state(saved['rng'])\n"
    "        step = saved['step']\n"
)
_GO = "    while step < until:\n        take_step(model, optimizer, step)\n        step += 1\n"
_SAVE = (
    "    state = dict(model=model.state_dict(), optimizer=optimizer.state_dict(),\n"
    "                 rng=torch.get_rng_state(), step=step)\n"
    "    return copy.deepcopy(state)\n"
)
_GOOD_RUN = _RUN + _LOAD + _GO + _SAVE
_TRAIN = "def my_train(model, optimizer, batches, parts, max_norm, exam):\n"
_GOOD_TRAIN = (
    _TRAIN
    + "    losses = []\n"
    + "    for batch in batches:\n"
    + "        counted, mean = batch.mask.sum(), 0.0\n"
    + "        for part, _ in micro_batches(batch, parts):\n"
    + "            found = cross_entropy_sum(model(part.inputs), part.targets, part.mask)\n"
    + "            loss = found.total / counted\n"
    + "            loss.backward()\n"
    + "            mean += loss.item()\n"
    + "        clip_grad_norm(model.parameters(), max_norm)\n"
    + "        optimizer.step()\n"
    + "        optimizer.zero_grad()\n"
    + "        losses.append(mean)\n"
    + "    model.eval()\n"
    + "    exam_loss = cross_entropy(model(exam.inputs), exam.targets, exam.mask).item()\n"
    + "    model.train()\n"
    + "    return losses, exam_loss\n"
)
_BROKEN = (
    _TRAIN
    + "    losses = []\n"
    + "    for batch in batches:\n"
    + "        for part, _ in micro_batches(batch, parts):\n"
    + "            loss = cross_entropy(model(part.inputs), part.targets)\n"
    + "            loss.backward()\n"
    + "        optimizer.step()\n"
    + "        clip_grad_norm(model.parameters(), max_norm)\n"
    + "        losses.append(loss.item())\n"
    + "    exam_loss = cross_entropy(model(exam.inputs), exam.targets, exam.mask).item()\n"
    + "    return losses, exam_loss\n"
)
_STEP_OF_OURS = (
    "    from course_lib.config import preset\n"
    "    from course_lib.sync.data_parallel import NoSync\n"
    "    from course_lib.train.step import train_step\n"
)


def _swap(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1, old
    return source.replace(old, new)


WRONG = {
    "06.1": [
        (
            "adds the means unscaled",
            _swap(_GOOD_ACC, "found.total / counted", "found.mean"),
            "The means are added unscaled",
        ),
        (
            "the mean of the means",
            _swap(_GOOD_ACC, "found.total / counted", "found.mean / len(parts)"),
            "counts as much as one with many",
        ),
        (
            "adds the sums",
            _swap(_GOOD_ACC, "found.total / counted", "found.total"),
            "The sums are added but not divided",
        ),
        (
            "weights by rows",
            _swap(
                _GOOD_ACC,
                "found.total / counted",
                "found.mean * len(part.inputs) / sum(len(p.inputs) for p in parts)",
            ),
            "You weighted by rows",
        ),
        (
            "counts all positions",
            _swap(_GOOD_ACC, "int(part.mask.sum())", "part.mask.numel()"),
            "You divided by all positions",
        ),
        (
            "forgets the mask",
            _swap(
                _swap(_GOOD_ACC, ", part.targets, part.mask)", ", part.targets)"),
                "int(part.mask.sum())",
                "part.mask.numel()",
            ),
            "The mask is missing",
        ),
        (
            "joins the parts",
            _ACC
            + "    whole = Batch(*(torch.cat(x) for x in zip(*parts)))\n"
            + "    loss = cross_entropy(model(whole.inputs), whole.targets, whole.mask)\n"
            + "    loss.backward()\n    return loss.item()",
            "The parts were joined",
        ),
        (
            "resets between the parts",
            _swap(_GOOD_ACC, "        loss.backward()\n",
                  "        model.zero_grad()\n        loss.backward()\n"),
            "Only the last part's share is left",
        ),
        (
            "returns the last part's loss",
            _swap(_swap(_GOOD_ACC, "mean += loss.item()", "mean = found.mean.item()"),
                  "found.total / counted", "found.total / counted"),
            "last part's loss alone",
        ),
        (
            "returns the sum",
            _swap(_GOOD_ACC, "mean += loss.item()", "mean += found.total.item()"),
            "That is the sum",
        ),
        ("no backward", _swap(_GOOD_ACC, "        loss.backward()\n", ""), "Call backward"),
        (
            "the course's own step",
            _ACC + _STEP_OF_OURS + "    train_step(model, None, 0, None, NoSync(), "
            "preset('addition'))",
            "a call of course_lib.train.step.train_step",
        ),
    ],
    "06.2": [
        (
            "starts at step 0 again",
            _swap(_GOOD_RUN, "        step = saved['step']\n", ""),
            "The resumed run began at step 0",
        ),
        (
            "forgets the optimizer",
            _swap(_GOOD_RUN, "        optimizer.load_state_dict(saved['optimizer'])\n", ""),
            "momentum starts from zero",
        ),
        (
            "forgets the weights",
            _swap(_GOOD_RUN, "        model.load_state_dict(saved['model'])\n", ""),
            "Put the model's state back",
        ),
        (
            "forgets the generator",
            _swap(_GOOD_RUN, "        torch.set_rng_state(saved['rng'])\n", ""),
            "Put the generator back",
        ),
        (
            "hands out the live tensors",
            _swap(_GOOD_RUN, "copy.deepcopy(state)", "state"),
            "return copy.deepcopy",
        ),
        (
            "counts `until` anew",
            _swap(_GOOD_RUN, _GO, "    for step in range(step, step + until):\n"
                  "        take_step(model, optimizer, step)\n    step += 1\n"),
            "`until` counts all steps",
        ),
        (
            "takes the last step twice",
            _swap(_GOOD_RUN, "step=step)", "step=step - 1)"),
            "A step was taken twice",
        ),
        (
            "leaves a step out",
            _swap(_GOOD_RUN, "step=step)", "step=step + 1)"),
            "A step was left out",
        ),
        (
            "saves the objects",
            _RUN
            + "    step = 0 if saved is None else saved['step']\n"
            + _GO
            + "    return copy.deepcopy(dict(model=model, optimizer=optimizer, step=step))",
            "not the model or the optimizer themselves",
        ),
        ("returns nothing", _RUN + _LOAD + _GO, "End with `return {...}`"),
        (
            "the course's own",
            _RUN
            + "    from course_lib.checkpoint import restore_model\n"
            + "    from pathlib import Path\n"
            + "    restore_model(model, None, Path('x'))",
            "a call of course_lib.checkpoint.restore_model",
        ),
    ],
    "06.3": [
        ("all five bugs", _BROKEN, "The prompt counts too"),
        (
            "accumulation unscaled",
            _swap(_GOOD_TRAIN, "found.total / counted", "found.mean"),
            "pile up unscaled",
        ),
        (
            "the mean of means",
            _swap(_GOOD_TRAIN, "found.total / counted",
                  "found.mean / len(list(micro_batches(batch, parts)))"),
            "the mean of their means",
        ),
        (
            "zero_grad missing",
            _swap(_GOOD_TRAIN, "        optimizer.zero_grad()\n", ""),
            "still in .grad",
        ),
        (
            "zero_grad between the parts",
            _swap(_GOOD_TRAIN, "            loss.backward()\n",
                  "            optimizer.zero_grad()\n            loss.backward()\n"),
            "zero_grad comes once a batch",
        ),
        (
            "clipping after the step",
            _swap(
                _swap(_GOOD_TRAIN, "        clip_grad_norm(model.parameters(), max_norm)\n", ""),
                "        optimizer.step()\n",
                "        optimizer.step()\n        clip_grad_norm(model.parameters(), max_norm)\n",
            ),
            "clip before the step, not after",
        ),
        (
            "clipping each part",
            _swap(
                _swap(_GOOD_TRAIN, "        clip_grad_norm(model.parameters(), max_norm)\n", ""),
                "            loss.backward()\n",
                "            loss.backward()\n"
                "            clip_grad_norm(model.parameters(), max_norm)\n",
            ),
            "Clip once, all parts added",
        ),
        (
            "dropout alive in the exam",
            _swap(_GOOD_TRAIN, "    model.eval()\n", ""),
            "dropout alive in the exam",
        ),
        (
            "no dropout while training",
            _swap(_swap(_GOOD_TRAIN, "    model.eval()\n", ""), "    losses = []\n",
                  "    losses = []\n    model.eval()\n"),
            "not before the loop",
        ),
        (
            "leaves the model in eval mode",
            _swap(_GOOD_TRAIN, "    model.train()\n", ""),
            "Call model.train() after the exam",
        ),
        (
            "the exam's prompt counts",
            _swap(_GOOD_TRAIN, "exam.targets, exam.mask", "exam.targets"),
            "the exam's loss",
        ),
        (
            "returns the losses only",
            _swap(_GOOD_TRAIN, "return losses, exam_loss", "return losses"),
            "Return both",
        ),
        (
            "the course's own step",
            _TRAIN + _STEP_OF_OURS + "    train_step(model, None, 0, optimizer, NoSync(), "
            "preset('addition'))",
            "a call of course_lib.train.step.train_step",
        ),
    ],
    "06.4": [
        (
            "forward only",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return 2 * parameters * tokens / time_s / peak_flops_per_s",
            "forward pass alone",
        ),
        (
            "backward only",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return 4 * parameters * tokens / time_s / peak_flops_per_s",
            "backward pass alone",
        ),
        (
            "without the 6",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return parameters * tokens / time_s / peak_flops_per_s",
            "The 6 is missing",
        ),
        (
            "in percent",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return 600 * parameters * tokens / time_s / peak_flops_per_s",
            "no percent",
        ),
        (
            "multiplies by the time",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return 6 * parameters * tokens * time_s / peak_flops_per_s",
            "don't multiply",
        ),
        (
            "forgets the time",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return 6 * parameters * tokens / peak_flops_per_s",
            "Divide by the seconds that",
        ),
        (
            "FLOPs a second",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return 6 * parameters * tokens / time_s",
            "That is FLOPs a second",
        ),
        (
            "upside down",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return peak_flops_per_s * time_s / (6 * parameters * tokens)",
            "upside down",
        ),
        (
            "the course's own",
            "from course_lib.cost.step import step_flops\n"
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return step_flops(parameters, tokens) / time_s / peak_flops_per_s",
            "a call of course_lib.cost.step.step_flops",
        ),
    ],
}  # fmt: skip

RIGHT = {
    "06.1": [
        ("a share of each sum", _GOOD_ACC),
        (
            "means, weighted by their counts",
            _ACC
            + "    counts = [part.mask.sum().item() for part in parts]\n"
            + "    total = 0\n"
            + "    for part, count in zip(parts, counts):\n"
            + "        loss = cross_entropy(model(part.inputs), part.targets, part.mask)\n"
            + "        (loss * (count / sum(counts))).backward()\n"
            + "        total += loss.item() * count\n"
            + "    return total / sum(counts)",
        ),
        (
            "sums first, divided at the end",
            _ACC
            + "    total, count = 0.0, 0\n"
            + "    for part in parts:\n"
            + "        found = cross_entropy_sum(model(part.inputs), part.targets, part.mask)\n"
            + "        found.total.backward()\n"
            + "        total, count = total + found.total.item(), count + found.counted\n"
            + "    for p in model.parameters():\n        p.grad /= count\n"
            + "    return total / count",
        ),
    ],
    "06.2": [
        ("a while loop and other keys", _GOOD_RUN),
        (
            "clones each tensor",
            _RUN
            + "    first = 0 if saved is None else saved['done']\n"
            + "    if first:\n"
            + "        model.load_state_dict(saved['weights'])\n"
            + "        optimizer.load_state_dict(saved['memory'])\n"
            + "        torch.set_rng_state(saved['random'])\n"
            + "    for step in range(first, until):\n        take_step(model, optimizer, step)\n"
            + "    weights = {name: t.clone() for name, t in model.state_dict().items()}\n"
            + "    return {'weights': weights, 'memory': copy.deepcopy(optimizer.state_dict()),\n"
            + "            'random': torch.get_rng_state(), 'done': max(first, until)}",
        ),
    ],
    "06.3": [
        ("resets after the step", _GOOD_TRAIN),
        (
            "means weighted by counts, no_grad in the exam",
            _TRAIN
            + "    losses = []\n"
            + "    for batch in batches:\n"
            + "        optimizer.zero_grad()\n"
            + "        shares = []\n"
            + "        for part, _ in micro_batches(batch, parts):\n"
            + "            loss = cross_entropy(model(part.inputs), part.targets, part.mask)\n"
            + "            shares.append(loss * part.mask.sum() / batch.mask.sum())\n"
            + "            shares[-1].backward()\n"
            + "        clip_grad_norm(model.parameters(), max_norm)\n"
            + "        optimizer.step()\n"
            + "        losses.append(sum(shares).item())\n"
            + "    model.train(False)\n"
            + "    with torch.no_grad():\n"
            + "        found = cross_entropy_sum(model(exam.inputs), exam.targets, exam.mask)\n"
            + "    model.train(True)\n"
            + "    return losses, found.total.item() / found.counted",
        ),
    ],
    "06.4": [
        (
            "in one line",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    return 6 * parameters * tokens / (time_s * peak_flops_per_s)",
        ),
        (
            "time at the peak over time taken",
            "def my_share_of_peak(parameters, tokens, time_s, peak_flops_per_s):\n"
            "    forward = 2 * parameters * tokens\n"
            "    best_s = (forward + 2 * forward) / peak_flops_per_s\n"
            "    return best_s / time_s",
        ),
    ],
}

SURVIVORS = {
    "06.1": {"line 4: 0.0 became -0.0": "zero has no sign in a sum"},
    "06.3": {"line 7: 0.0 became -0.0": "zero has no sign in a sum"},
}
