"""Known wrong and right answers to chapter 03's exercises."""


def linear(body: str) -> str:
    """Return an answer to 03.1 with this body."""
    return f"def my_linear_backward(x, weight, d_y):\n{_indented(body)}"


def gelu(body: str) -> str:
    """Return an answer to 03.2: P and the bell curve, then this body."""
    start = (
        "P = 0.5 * (1 + torch.erf(x / math.sqrt(2)))\n"
        "bell = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)\n"
    )
    return f"def my_gelu_backward(x, d_y):\n{_indented(start + body)}"


def entropy(body: str) -> str:
    """Return an answer to 03.3: p, y and the number of tokens that count, then this body."""
    start = (
        "p = torch.softmax(logits, dim=-1)\n"
        "y = F.one_hot(targets, logits.shape[-1])\n"
        "n = max(int(mask.sum()), 1)\n"
    )
    return f"def my_cross_entropy_backward(logits, targets, mask):\n{_indented(start + body)}"


def _indented(body: str) -> str:
    return "".join(f"    {line}\n" for line in body.splitlines())


ROWS = "xr, dr = x.reshape(-1, x.shape[-1]), d_y.reshape(-1, d_y.shape[-1])\n"

WRONG = {
    "03.1": [
        (
            "averages the weight's gradient",
            linear(ROWS + "return d_y @ weight, dr.T @ xr / len(xr), dr.sum(0)"),
            "averaged over the rows",
        ),
        (
            "averages the bias's gradient",
            linear(ROWS + "return d_y @ weight, dr.T @ xr, dr.mean(0)"),
            "d_bias is the mean over the rows",
        ),
        (
            "transposes the weight's gradient",
            linear(ROWS + "return d_y @ weight, xr.T @ dr, dr.sum(0)"),
            "d_weight is transposed",
        ),
        (
            "forgets that the bias was broadcast",
            linear(ROWS + "return d_y @ weight, dr.T @ xr, d_y"),
            "the bias was broadcast",
        ),
        (
            "sums the bias over the first dimension only",
            linear(ROWS + "return d_y @ weight, dr.T @ xr, d_y.sum(0)"),
            "summed over the first dimension only",
        ),
        (
            "multiplies with the weight's transpose",
            linear(ROWS + "return d_y @ weight.T, dr.T @ xr, dr.sum(0)"),
            "RuntimeError",
        ),
        (
            "returns the forward pass as d_x",
            linear(ROWS + "return x @ weight.T, dr.T @ xr, dr.sum(0)"),
            "That is the forward pass",
        ),
        (
            "only for two dimensions",
            linear("return d_y @ weight, d_y.T @ x, d_y.sum(0)"),
            "Make one list of rows",
        ),
        (
            "returns the gradients in another order",
            linear(ROWS + "return dr.T @ xr, d_y @ weight, dr.sum(0)"),
            "d_weight stands in d_x's place",
        ),
        (
            "returns one tensor",
            linear("return d_y @ weight"),
            "three tensors: d_x, d_weight, d_bias",
        ),
        (
            "always in float64",
            linear(
                "x, weight, d_y = x.double(), weight.double(), d_y.double()\n"
                + ROWS
                + "return d_y @ weight, dr.T @ xr, dr.sum(0)"
            ),
            "dtype float32",
        ),
        (
            "writes on d_y",
            linear(
                ROWS + "out = d_y @ weight, dr.T @ xr, dr.sum(0).clone()\nd_y.zero_()\nreturn out"
            ),
            "caller's tensor `d_y`",
        ),
        (
            "zeros",
            linear("return torch.zeros_like(x), torch.zeros_like(weight), d_y[..., 0] * 0"),
            "Write the shapes beside each tensor",
        ),
        (
            "autograd",
            linear(
                "x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()\n"
                "bias = torch.zeros(len(weight), dtype=x.dtype, requires_grad=True)\n"
                "return torch.autograd.grad(x @ weight.T + bias, (x, weight, bias), d_y)"
            ),
            "a call of torch.autograd.grad",
        ),
        (
            "the course's own",
            "from course_lib.backward.layers import linear_backward as back\n"
            "from course_lib.forward.layers import LinearSaved\n"
            "from course_lib.forward.weights import LinearWeights\n"
            + linear(
                "saved = LinearSaved(x, LinearWeights(weight, weight[:, 0]))\n"
                "d_x, (d_weight, d_bias) = back(saved, d_y)\n"
                "return d_x, d_weight, d_bias"
            ),
            "a call of course_lib.backward.layers.linear_backward",
        ),
    ],
    "03.2": [
        ("half of the product rule", gelu("return d_y * P"), "second half of the product rule"),
        ("the other half", gelu("return d_y * x * bell"), "first half of the product rule"),
        ("forgets the other factor", gelu("return d_y * (P + bell)"), "the other factor, x"),
        ("the slope alone", gelu("return P + x * bell"), "multiply it with what comes back"),
        ("the forward pass", gelu("return x * P"), "GELU itself"),
        ("d_y times GELU", gelu("return d_y * x * P"), "d_y times GELU's slope"),
        (
            "the bell curve's area is not 1",
            gelu("return d_y * (P + x * bell * math.sqrt(2 * math.pi))"),
            "divided by sqrt(2 pi)",
        ),
        (
            "another bell curve",
            gelu("return d_y * (P + x * torch.exp(-x * x) / math.sqrt(math.pi))"),
            "bell curve of a standard normal",
        ),
        ("subtracts", gelu("return d_y * (P - x * bell)"), "two halves of the product rule"),
        ("ReLU's slope", gelu("return d_y * (x > 0)"), "That is ReLU's slope"),
        (
            "the tanh approximation",
            "def my_gelu_backward(x, d_y):\n"
            "    a = math.sqrt(2 / math.pi)\n"
            "    t = torch.tanh(a * (x + 0.044715 * x**3))\n"
            "    inner = a * (1 + 3 * 0.044715 * x**2)\n"
            "    return d_y * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner)",
            "tanh approximation",
        ),
        (
            "a mean over the elements",
            gelu("return d_y * (P + x * bell).mean()"),
            "tensor([",
        ),
        (
            "overflows far from 0",
            gelu(
                "return d_y * (P + x * torch.exp(x * x) * torch.exp(-1.5 * x * x)"
                " / math.sqrt(2 * math.pi))"
            ),
            "nan or inf",
        ),
        ("writes on d_y", gelu("return d_y.mul_(P + x * bell)"), "caller's tensor `d_y`"),
        (
            "a nudge, by hand, too coarse",
            "def my_gelu_backward(x, d_y):\n"
            "    def forward(x):\n"
            "        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))\n"
            "    return d_y * (forward(x + 0.1) - forward(x)) / 0.1",
            "0.0699886",
        ),
        (
            "autograd",
            "def my_gelu_backward(x, d_y):\n"
            "    x = x.clone().requires_grad_()\n"
            "    (x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))).backward(d_y)\n"
            "    return x.grad",
            "a call of torch.Tensor.backward",
        ),
        (
            "torch's kernel",
            "def my_gelu_backward(x, d_y):\n    return torch.ops.aten.gelu_backward(d_y, x)",
            "a call of aten.gelu_backward",
        ),
        (
            "the course's own",
            "from course_lib.backward.layers import gelu_backward as back\n"
            "from course_lib.forward.layers import GeluSaved\n"
            + gelu("return back(GeluSaved(x, P), d_y)"),
            "a call of course_lib.backward.layers.gelu_backward",
        ),
    ],
    "03.3": [
        ("the sign turned", entropy("return (y - p) * mask.unsqueeze(-1) / n"), "sign is turned"),
        ("not divided", entropy("return (p - y) * mask.unsqueeze(-1)"), "The loss is a mean"),
        ("no mask", entropy("return (p - y) / mask.numel()"), "the mask is missing"),
        ("no mask but the count", entropy("return (p - y) / n"), "set theirs to 0"),
        (
            "divides by all tokens",
            entropy("return (p - y) * mask.unsqueeze(-1) / mask.numel()"),
            "number of all tokens",
        ),
        (
            "divides by all logits",
            entropy("return (p - y) * mask.unsqueeze(-1) / p.numel()"),
            "number of logits",
        ),
        ("forgets y", entropy("return p * mask.unsqueeze(-1) / n"), "y is missing"),
        (
            "the mask swapped",
            entropy("return (p - y) * ~mask.unsqueeze(-1) / n"),
            "yours has them swapped",
        ),
        (
            "logits instead of probabilities",
            entropy("return (logits - y) * mask.unsqueeze(-1) / n"),
            "p is their softmax",
        ),
        (
            "softmax over the tokens",
            entropy("p = torch.softmax(logits, dim=0)\nreturn (p - y) * mask.unsqueeze(-1) / n"),
            "over the answers, the last dimension",
        ),
        (
            "overflows",
            entropy(
                "p = logits.exp() / logits.exp().sum(-1, keepdim=True)\n"
                "return (p - y) * mask.unsqueeze(-1) / n"
            ),
            "exp(1000) overflows",
        ),
        (
            "nan where nothing counts",
            entropy("return (p - y) * mask.unsqueeze(-1) / mask.sum()"),
            "divide by 1 where nothing counts",
        ),
        (
            "only [N, V]",
            "def my_cross_entropy_backward(logits, targets, mask):\n"
            "    d = torch.softmax(logits, dim=-1)\n"
            "    d[torch.arange(len(targets)), targets] -= 1\n"
            "    return d * mask.unsqueeze(-1) / max(int(mask.sum()), 1)",
            "Error",
        ),
        (
            "always in float32",
            entropy("return ((p - y) * mask.unsqueeze(-1) / n).float()"),
            "dtype float64",
        ),
        (
            "writes on the logits",
            entropy("logits.copy_(p)\nreturn (p - y) * mask.unsqueeze(-1) / n"),
            "caller's tensor `logits`",
        ),
        (
            "autograd on the course's loss",
            "from course_lib.loss import cross_entropy as loss\n"
            "def my_cross_entropy_backward(logits, targets, mask):\n"
            "    leaf = logits.clone().requires_grad_()\n"
            "    return torch.autograd.grad(loss(leaf, targets, mask), leaf)[0]",
            "a call of course_lib.loss.cross_entropy",
        ),
        (
            "the course's own",
            "from course_lib.backward.layers import cross_entropy_backward as back\n"
            "def my_cross_entropy_backward(logits, targets, mask):\n"
            "    return back(logits, targets, mask)",
            "a call of course_lib.backward.layers.cross_entropy_backward",
        ),
    ],
}

RIGHT = {
    "03.1": [
        (
            "with einsum",
            linear(
                'd_x = torch.einsum("...o,oi->...i", d_y, weight)\n'
                'd_weight = torch.einsum("...o,...i->oi", d_y, x)\n'
                'return d_x, d_weight, torch.einsum("...o->o", d_y)'
            ),
        ),
        (
            "row by row, in a list",
            linear(
                ROWS + "d_weight = sum(torch.outer(d, r) for d, r in zip(dr, xr))\n"
                "return [(dr @ weight).reshape(x.shape), d_weight, sum(dr)]"
            ),
        ),
    ],
    "03.2": [
        (
            "in one line",
            "my_gelu_backward = lambda x, d_y: d_y * (torch.special.ndtr(x)"
            " + x * (-x.square() / 2).exp() / (2 * math.pi) ** 0.5)",
        ),
        (
            "with a normal distribution",
            "def my_gelu_backward(x, d_y):\n"
            "    normal = torch.distributions.Normal(0.0, 1.0)\n"
            "    P = (1 + torch.erf(x * 0.5**0.5)) / 2\n"
            "    return d_y * P + d_y * x * normal.log_prob(x).exp()",
        ),
    ],
    "03.3": [
        (
            "with a scatter, as the course has it",
            "def my_cross_entropy_backward(logits, targets, mask):\n"
            "    e = (logits - logits.amax(-1, keepdim=True)).exp()\n"
            "    d = e / e.sum(-1, keepdim=True)\n"
            "    one = torch.full_like(targets, -1, dtype=d.dtype).unsqueeze(-1)\n"
            "    d = d.scatter_add(-1, targets.unsqueeze(-1), one)\n"
            "    return d.masked_fill(~mask.unsqueeze(-1), 0) / max(mask.sum().item(), 1)",
        ),
        (
            "only the rows that count",
            "def my_cross_entropy_backward(logits, targets, mask):\n"
            "    d = torch.zeros_like(logits)\n"
            "    if mask.any():\n"
            "        p = logits[mask].softmax(-1)\n"
            "        p[torch.arange(len(p)), targets[mask]] -= 1\n"
            "        d[mask] = p / len(p)\n"
            "    return d",
        ),
    ],
}
