"""Known wrong and right answers to chapter 05's exercises."""

_SGD = "def my_sgd_step(params, grads, buffers, lr, momentum):\n"
_EACH = _SGD + "    for p, g, b in zip(params, grads, buffers):\n"
_ADAMW = "def my_adamw_step(p, g, m, v, step, lr, betas, eps, weight_decay):\n"
_GOOD_ADAMW = (
    _ADAMW
    + "    b1, b2 = betas\n"
    + "    p *= 1 - lr * weight_decay\n"
    + "    m *= b1\n"
    + "    m += (1 - b1) * g\n"
    + "    v *= b2\n"
    + "    v += (1 - b2) * g * g\n"
    + "    p -= lr * (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + eps)\n"
)
_RATE = "def my_cosine_schedule(step, total_steps, peak_lr, warmup_steps, min_lr):\n"
_GOOD_RATE = (
    _RATE
    + "    if step < warmup_steps:\n"
    + "        return peak_lr * (step + 1) / (warmup_steps + 1)\n"
    + "    down = total_steps - 1 - warmup_steps\n"
    + "    q = min(1.0, (step - warmup_steps) / down) if down else 0.0\n"
    + "    return min_lr + (peak_lr - min_lr) * (1 + math.cos(math.pi * q)) / 2\n"
)
_CLIP = "def my_clip(grads, max_norm):\n"
_NORM = _CLIP + "    norm = math.sqrt(sum(g.square().sum().item() for g in grads))\n"
_SCALE = "    for g in grads:\n        g *= min(1.0, max_norm / max(norm, 1e-9))\n    return norm"


def _swap(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1, old
    return source.replace(old, new)


WRONG = {
    "05.1": [
        (
            "goes uphill",
            _EACH + "        b *= momentum\n        b += g\n        p += lr * b",
            "uphill",
        ),
        (
            "ignores the buffer",
            _EACH + "        b *= momentum\n        b += g\n        p -= lr * g",
            "against the gradient alone",
        ),
        (
            "steps before it updates the buffer",
            _EACH + "        p -= lr * b\n        b *= momentum\n        b += g",
            "You used b from before",
        ),
        (
            "makes a new buffer",
            _EACH + "        b = momentum * b + g\n        p -= lr * b",
            "`b = …` makes a new tensor",
        ),
        (
            "makes a new parameter",
            _EACH + "        b.mul_(momentum).add_(g)\n        p = p - lr * b",
            "The parameter did not change",
        ),
        (
            "a running mean",
            _EACH + "        b *= momentum\n        b += (1 - momentum) * g\n        p -= lr * b",
            "without a factor 1 − momentum",
        ),
        (
            "the rate inside the buffer",
            _EACH + "        b *= momentum\n        b += lr * g\n        p -= b",
            "no place in the buffer",
        ),
        (
            "Nesterov",
            _EACH
            + "        b *= momentum\n        b += g\n        p -= lr * (g + momentum * b)",
            "Nesterov",
        ),
        ("forgets momentum", _EACH + "        b += g\n        p -= lr * b", "momentum is missing"),
        (
            "scales the caller's gradient",
            _EACH + "        b *= momentum\n        b += g\n        p -= b * lr\n        g *= lr",
            "caller's tensor `grads[0]`",
        ),
        (
            "torch's optimizer",
            "def my_sgd_step(params, grads, buffers, lr, momentum):\n"
            "    torch.optim.SGD(params, lr=lr, momentum=momentum).step()",
            "a call of torch.optim.SGD",
        ),
        (
            "the course's own rule",
            "from course_lib.update.optimizers import sgd_direction\n"
            + _EACH
            + "        p -= lr * sgd_direction(g, b, momentum)",
            "a call of course_lib.update.optimizers.sgd_direction",
        ),
    ],
    "05.2": [
        (
            "L2 instead of decay",
            _swap(_GOOD_ADAMW, "p *= 1 - lr * weight_decay\n", "g = g + weight_decay * p\n"),
            "as L2 does",
        ),
        (
            "no decay",
            _swap(_GOOD_ADAMW, "    p *= 1 - lr * weight_decay\n", ""),
            "The decay is missing",
        ),
        (
            "decay without the rate",
            _swap(_GOOD_ADAMW, "1 - lr * weight_decay", "1 - weight_decay"),
            "lacks the learning rate",
        ),
        (
            "decay that grows",
            _swap(_GOOD_ADAMW, "1 - lr * weight_decay", "1 + lr * weight_decay"),
            "The decay makes p larger",
        ),
        (
            "no bias correction",
            _swap(_GOOD_ADAMW, "(m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt()",
                  "m / (v.sqrt()"),
            "The bias correction makes",
        ),
        (
            "the correction of the first step for ever",
            _GOOD_ADAMW.replace("**step", ""),
            "yours is that of the first step",
        ),
        (
            "eps under the root",
            _swap(_GOOD_ADAMW, "(v / (1 - b2**step)).sqrt() + eps)",
                  "v / (1 - b2**step) + eps).sqrt()"),
            "eps is added after the root",
        ),
        (
            "no root",
            _swap(_GOOD_ADAMW, "(v / (1 - b2**step)).sqrt()", "v / (1 - b2**step)"),
            "gradient 0.01",
        ),
        (
            "v of gradients, not squares",
            _swap(_GOOD_ADAMW, "(1 - b2) * g * g", "(1 - b2) * g"),
            "expected   tensor([0.7])",
        ),
        (
            "keeps the corrected m",
            _GOOD_ADAMW.replace("    p -= lr", "    m /= 1 - b1**step\n    p -= lr").replace(
                "(m / (1 - b1**step))", "m"
            ),
            "m after step 1",
        ),
        (
            "m anew each time",
            _swap(_GOOD_ADAMW, "    m *= b1\n    m += (1 - b1) * g\n",
                  "    m = b1 * m + (1 - b1) * g\n"),
            "`m = …` makes a new tensor",
        ),
        (
            "the step counted twice",
            _GOOD_ADAMW.replace("**step", "**(step + 1)"),
            "came       tensor([",
        ),
        ("SGD", _ADAMW + "    p -= lr * g", "SGD's step"),
        (
            "uses the caller's gradient as scratch",
            _GOOD_ADAMW + "    g.zero_()\n",
            "caller's tensor `g`",
        ),
        (
            "torch's optimizer",
            _ADAMW
            + "    w = p.clone().requires_grad_()\n    w.grad = g\n"
            + "    torch.optim.AdamW([w], lr=lr).step()\n    p.copy_(w.detach())",
            "a call of torch.optim.",
        ),
        (
            "the chapter's Adam",
            "from course_lib.update.optimizers import adam_direction\n"
            + _ADAMW
            + "    p *= 1 - lr * weight_decay\n"
            + "    p -= lr * adam_direction(g.clone(), m, v, step, betas, eps)",
            "a call of course_lib.update.optimizers.adam_direction",
        ),
    ],
    "05.3": [
        (
            "starts at zero",
            _swap(_GOOD_RATE, "(step + 1) / (warmup_steps + 1)", "step / (warmup_steps + 1)"),
            "the rate 0: use step + 1",
        ),
        (
            "reaches the peak a step early",
            _swap(_GOOD_RATE, "(step + 1) / (warmup_steps + 1)", "(step + 1) / warmup_steps"),
            "step W has the peak",
        ),
        (
            "no warm-up",
            _swap(_GOOD_RATE, "if step < warmup_steps", "if step < 0"),
            "rate of step 0 of 20",
        ),
        (
            "a straight line",
            _swap(_GOOD_RATE, "(1 + math.cos(math.pi * q)) / 2", "(1 - q)"),
            "straight line",
        ),
        (
            "a quarter of a wave",
            _swap(_GOOD_RATE, "(1 + math.cos(math.pi * q)) / 2", "math.cos(math.pi * q / 2)"),
            "half a wave",
        ),
        (
            "the last step too high",
            _swap(_GOOD_RATE, "down = total_steps - 1 - warmup_steps",
                  "down = total_steps - warmup_steps"),
            "The last step, total_steps − 1",
        ),
        (
            "the cosine counts the warm-up",
            _swap(_GOOD_RATE, "(step - warmup_steps) / down", "step / (total_steps - 1)"),
            "starts after the warm-up",
        ),
        (
            "forgets min_lr",
            _swap(_GOOD_RATE, "min_lr + (peak_lr - min_lr)", "peak_lr"),
            "min_lr is missing",
        ),
        (
            "comes back up after the end",
            _swap(_GOOD_RATE, "min(1.0, (step - warmup_steps) / down)",
                  "(step - warmup_steps) / down"),
            "q must not pass 1",
        ),
        (
            "divides by zero",
            _swap(_GOOD_RATE, " if down else 0.0", ""),
            "ZeroDivisionError",
        ),
        (
            "the course's own",
            "from course_lib.update.schedule import cosine_schedule\n"
            + _RATE
            + "    return cosine_schedule(step, total_steps, peak_lr, warmup_steps, min_lr)",
            "a call of course_lib.update.schedule.cosine_schedule",
        ),
        ("returns nothing", _RATE + "    rate = peak_lr", "Nothing came back"),
    ],
    "05.4": [
        (
            "each tensor by itself",
            _NORM
            + "    for g in grads:\n        g *= min(1.0, max_norm / max(g.norm().item(), 1e-9))\n"
            + "    return norm",
            "Each tensor was clipped by itself",
        ),
        (
            "each element by itself",
            _NORM
            + "    for g in grads:\n        g.clamp_(-max_norm, max_norm)\n    return norm",
            "Clipping each element",
        ),
        (
            "adds the norms",
            _CLIP
            + "    norm = sum(g.norm().item() for g in grads)\n"
            + _SCALE,
            "Norms don't add up",
        ),
        (
            "takes the largest norm",
            _CLIP
            + "    norm = max(g.norm().item() for g in grads)\n"
            + _SCALE,
            "largest norm of one tensor",
        ),
        (
            "no root",
            _CLIP
            + "    norm = sum(g.square().sum().item() for g in grads)\n"
            + _SCALE,
            "take its root",
        ),
        (
            "scales up too",
            _NORM + "    for g in grads:\n        g *= max_norm / max(norm, 1e-9)\n    return norm",
            "scaled up",
        ),
        (
            "returns the norm after",
            _NORM
            + "    for g in grads:\n        g *= min(1.0, max_norm / max(norm, 1e-9))\n"
            + "    return math.sqrt(sum(g.square().sum().item() for g in grads))",
            "from before the clipping",
        ),
        (
            "makes new tensors",
            _NORM
            + "    if norm > max_norm:\n"
            + "        grads = [g * max_norm / norm for g in grads]\n    return norm",
            "scale it in place",
        ),
        (
            "returns a tensor",
            _CLIP
            + "    norm = torch.cat([g.flatten() for g in grads]).norm()\n"
            + "    for g in grads:\n        g *= min(1.0, max_norm / max(norm.item(), 1e-9))\n"
            + "    return norm",
            "`.item()` makes a float",
        ),
        (
            "divides zero by zero",
            _NORM
            + "    factor = torch.tensor(max_norm) / norm\n"
            + "    nan = torch.tensor(norm) / norm\n"
            + "    for g in grads:\n        g *= factor.clamp(max=1) * nan\n    return norm",
            "0 / 0 is nan",
        ),
        (
            "torch's own",
            _CLIP
            + "    weights = [torch.zeros_like(g) for g in grads]\n"
            + "    for w, g in zip(weights, grads):\n        w.grad = g\n"
            + "    return torch.nn.utils.clip_grad_norm_(weights, max_norm).item()",
            "a call of torch.nn.utils.clip_grad_norm_",
        ),
    ],
}  # fmt: skip

RIGHT = {
    "05.1": [
        (
            "methods in place",
            _EACH + "        b.mul_(momentum).add_(g)\n        p.sub_(b, alpha=lr)",
        ),
        (
            "by index, with copy_",
            _SGD
            + "    for i in range(len(params)):\n"
            + "        buffers[i].copy_(momentum * buffers[i] + grads[i])\n"
            + "        params[i].copy_(params[i] - lr * buffers[i])",
        ),
    ],
    "05.2": [
        ("statements in place", _GOOD_ADAMW),
        (
            "torch's words, with the corrections moved",
            _ADAMW
            + "    m.lerp_(g, 1 - betas[0])\n"
            + "    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])\n"
            + "    denominator = (v / (1 - betas[1] ** step)).sqrt().add_(eps)\n"
            + "    p.mul_(1 - lr * weight_decay)\n"
            + "    p.addcdiv_(m, denominator, value=-lr / (1 - betas[0] ** step))",
        ),
    ],
    "05.3": [
        ("one branch and a condition", _GOOD_RATE),
        (
            "half of the angle",
            _RATE
            + "    if step < warmup_steps:\n"
            + "        return (step + 1) / (warmup_steps + 1) * peak_lr\n"
            + "    last = total_steps - 1\n"
            + "    if warmup_steps == last:\n        return peak_lr\n"
            + "    left = max(0, last - step) / (last - warmup_steps)\n"
            + "    return min_lr + (peak_lr - min_lr) * math.sin(math.pi * left / 2) ** 2",
        ),
    ],
    "05.4": [
        (
            "one long vector",
            _CLIP
            + "    norm = torch.cat([g.flatten() for g in grads]).norm().item()\n"
            + "    if norm <= max_norm:\n        return norm\n"
            + "    for g in grads:\n        g.mul_(max_norm / norm)\n    return norm",
        ),
        (
            "norm of the norms",
            _CLIP
            + "    norm = torch.stack([g.norm() for g in grads]).norm().item()\n"
            + "    factor = max_norm / norm if norm > max_norm else 1.0\n"
            + "    for g in grads:\n        g.copy_(g * factor)\n    return norm",
        ),
    ],
}

SURVIVORS = {
    "05.3": {"line 5: Lt became LtE": "at the end of the warm-up both branches give the peak"},
    "05.4": {"line 5: Gt became GtE": "at the limit itself the factor is 1"},
}
