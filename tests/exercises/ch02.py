"""Known wrong and right answers to chapter 02's exercises."""

LOG = "def my_log_softmax(z):\n"
LOSS = "def my_cross_entropy(logits, targets, mask):\n"
JOIN = "def my_joined_loss(means, counts):\n"
SHIFT = "    s = z - z.amax(-1, keepdim=True)\n"
TOKENS = (
    "    all_p = log_softmax(logits).gather(-1, targets.unsqueeze(-1)).squeeze(-1)\n"
    "    n = mask.sum().clamp(min=1)\n"
)

WRONG = {
    "02.1": [
        (
            "overflows",
            LOG + "    return z - z.exp().sum(-1, keepdim=True).log()",
            "own largest logit off",
        ),
        (
            "the logarithm of a softmax",
            LOG + SHIFT + "    e = s.exp()\n    return (e / e.sum(-1, keepdim=True)).log()",
            "[0, -1000]",
        ),
        (
            "one shift for all rows",
            LOG + "    s = z - z.max()\n    return s - s.exp().sum(-1, keepdim=True).log()",
            "rows of 900 and of -900",
        ),
        ("forgets the sum", LOG + "    return z - z.amax(-1, keepdim=True)", "The sum is missing"),
        (
            "shifts the sum only",
            LOG + SHIFT + "    return z - s.exp().sum(-1, keepdim=True).log()",
            "shift those in front",
        ),
        (
            "sums over the first dimension",
            LOG + "    s = z - z.max()\n    return s - s.exp().sum(0, keepdim=True).log()",
            "over the first dimension",
        ),
        (
            "turned sign",
            LOG + SHIFT + "    return s.exp().sum(-1, keepdim=True).log() - s",
            "The sign is turned",
        ),
        (
            "forgets the logarithm",
            LOG + SHIFT + "    return s - s.exp().sum(-1, keepdim=True)",
            "logarithm is missing",
        ),
        (
            "shifts the caller's logits",
            LOG + "    z -= z.amax(-1, keepdim=True)\n"
            "    return z - z.exp().sum(-1, keepdim=True).log()",
            "caller's tensor `logits`",
        ),
        ("torch's log_softmax", LOG + "    return torch.log_softmax(z, -1)", "a call of torch"),
        (
            "the course's log_softmax",
            LOG + "    return log_softmax(z)",
            "a call of course_lib.loss.log_softmax",
        ),
        (
            "logsumexp",
            LOG + "    return z - z.logsumexp(-1, keepdim=True)",
            "logsumexp",
        ),
    ],
    "02.2": [
        ("ignores the mask", LOSS + TOKENS + "    return -all_p.mean()", "the mask is not used"),
        (
            "turns the mask round",
            LOSS + "    p = log_softmax(logits[~mask]).gather(-1, targets[~mask].unsqueeze(-1))\n"
            "    return -p.sum() / max(p.numel(), 1)",
            "expected",
        ),
        (
            "divides by all tokens",
            LOSS + TOKENS + "    return -(all_p * mask).sum() / mask.numel()",
            "number of all tokens",
        ),
        ("adds up only", LOSS + TOKENS + "    return -(all_p * mask).sum()", "That is the sum"),
        (
            "multiplies by the mask",
            LOSS + TOKENS + "    return -(all_p * mask).sum() / n",
            "before you compute",
        ),
        ("turned sign", LOSS + TOKENS + "    return (all_p * mask).sum() / n", "sign is turned"),
        (
            "forgets the logarithm",
            LOSS + "    p = logits[mask].softmax(-1).gather(-1, targets[mask].unsqueeze(-1))\n"
            "    return -p.mean()",
            "The logarithm is missing",
        ),
        (
            "mean of each row's mean",
            LOSS + TOKENS + "    rows = (all_p * mask).sum(-1) / mask.sum(-1).clamp(min=1)\n"
            "    return -rows.mean()",
            "each row's mean",
        ),
        (
            "nan over nothing",
            LOSS + "    p = log_softmax(logits[mask]).gather(-1, targets[mask].unsqueeze(-1))\n"
            "    return -p.mean()",
            "no token counts",
        ),
        (
            "torch's cross_entropy",
            LOSS + "    return F.cross_entropy(logits[mask], targets[mask])",
            "a call of torch.nn.functional.cross_entropy",
        ),
        (
            "the course's cross_entropy",
            LOSS + "    return cross_entropy(logits, targets, mask)",
            "a call of course_lib.loss.cross_entropy",
        ),
    ],
    "02.3": [
        ("mean of means", JOIN + "    return sum(means) / len(means)", "mean of the means"),
        (
            "does not divide",
            JOIN + "    return sum(m * n for m, n in zip(means, counts))",
            "added but not divided",
        ),
        (
            "divides by the parts",
            JOIN + "    return sum(m * n for m, n in zip(means, counts)) / len(means)",
            "divided by the number of parts",
        ),
        (
            "does not weight",
            JOIN + "    return sum(means) / sum(counts)",
            "Multiply each mean by its count",
        ),
        (
            "lets nan in",
            JOIN + "    return sum(m * n for m, n in zip(means, counts)) / max(sum(counts), 1)",
            "Skip parts with the count 0",
        ),
        (
            "stops at an empty part",
            JOIN + "    total = 0.0\n    for m, n in zip(means, counts):\n"
            "        if n == 0:\n            break\n        total += m * n\n"
            "    return total / max(sum(counts), 1)",
            "came       0",
        ),
        (
            "divides by 0",
            JOIN + "    return sum(m * n for m, n in zip(means, counts) if n) / sum(counts)",
            "ZeroDivisionError",
        ),
        (
            "weighs an empty part by 1",
            JOIN + "    ok = [(0.0 if m != m else m, max(n, 1)) for m, n in zip(means, counts)]\n"
            "    return sum(m * n for m, n in ok) / sum(n for _, n in ok)",
            "came       2.4",
        ),
        (
            "numpy's weighted average",
            "import numpy\n" + JOIN + "    return float(numpy.average(means, weights=counts))",
            "a call of numpy.average",
        ),
        (
            "strikes empty parts from the caller's list",
            JOIN + "    total = sum(m * n for m, n in zip(means, counts) if n)\n"
            "    counted = 0\n    while counts:\n        counted += counts.pop()\n"
            "    return total / max(counted, 1)",
            "`counts`",
        ),
    ],
}

RIGHT = {
    "02.1": [
        (
            "max and subtraction in one",
            LOG + "    m = z.max(dim=-1, keepdim=True).values\n"
            "    return z - (m + torch.log(torch.sum(torch.exp(z - m), dim=-1, keepdim=True)))",
        ),
        (
            "keeps dimensions by unsqueeze",
            LOG + "    m = z.amax(-1).unsqueeze(-1)\n"
            "    total = (z - m).exp().sum(-1).unsqueeze(-1)\n"
            "    return z - m - total.log()",
        ),
    ],
    "02.2": [
        (
            "indexing with arange",
            LOSS + "    z, t = logits[mask], targets[mask]\n"
            "    if len(t) == 0:\n        return logits.new_zeros(())\n"
            "    return -log_softmax(z)[torch.arange(len(t)), t].mean()",
        ),
        (
            "torch.where, then a division",
            LOSS + "    p = torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]\n"
            "    kept = torch.where(mask, p, torch.zeros_like(p))\n"
            "    return -kept.sum() / mask.sum().clamp(min=1)",
        ),
    ],
    "02.3": [
        (
            "a comprehension",
            JOIN + "    pairs = [(m, n) for m, n in zip(means, counts) if n]\n"
            "    return sum(m * n for m, n in pairs) / sum(n for _, n in pairs) if pairs else 0.0",
        ),
        (
            "tensors",
            JOIN + "    m = torch.tensor(means, dtype=torch.float64).nan_to_num()\n"
            "    n = torch.tensor(counts)\n"
            "    return ((m * n).sum() / n.sum().clamp(min=1)).item()",
        ),
    ],
}

SURVIVORS = {
    "02.2": {"line 4: sign or `not` dropped": "of a vector, dimension 1 is the new last one"},
    "02.3": {
        "line 3: 0.0 became -0.0": "a zero is a zero",
        "line 3: elements 0 and 1 swapped": "0 and 0.0 add up alike, and the result is a float",
    },
}
