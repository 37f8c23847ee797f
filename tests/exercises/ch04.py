"""Known wrong and right answers to chapter 04's exercises."""


def norm(returned: str, before: str = "") -> str:
    """Return an answer to 04.1: the pieces, then changes to them, then what it returns."""
    return (
        "def my_layer_norm_backward(normalised, inverse_std, weight, d_y):\n"
        "    n, axes = normalised, tuple(range(d_y.dim() - 1))\n"
        "    d_n = d_y * weight\n"
        "    m = d_n.mean(-1, keepdim=True)\n"
        "    s = (d_n * n).mean(-1, keepdim=True)\n"
        "    d_w, d_b = (d_y * n).sum(axes), d_y.sum(axes)\n"
        f"    {before or 'pass'}\n"
        f"    return {returned}\n"
    )


def attend(returned: str, before: str = "") -> str:
    """Return an answer to 04.2: the pieces, then changes to them, then what it returns."""
    return (
        "def my_attention_backward(q, k, v, pattern, d_y):\n"
        "    def t(x):\n"
        "        return x.transpose(-2, -1)\n"
        "    root = math.sqrt(q.shape[-1])\n"
        "    d_v, d_p = t(pattern) @ d_y, d_y @ t(v)\n"
        "    d_s = pattern * (d_p - (pattern * d_p).sum(-1, keepdim=True)) / root\n"
        f"    {before or 'pass'}\n"
        f"    return {returned}\n"
    )


def block(
    first: str = "d_y",
    middle: str = "d_y + d_t",
    end: str = "d_m + d_t",
    weights: str = "BlockWeights(d_1, d_a, d_2, d_mlp)",
) -> str:
    """Return an answer to 04.3, right unless a piece is given in another form."""
    return (
        "def my_block_backward(saved, d_y):\n"
        f"    d_h, d_mlp = mlp_backward(saved.mlp, {first})\n"
        "    d_t, d_2 = layer_norm_backward(saved.norm2, d_h)\n"
        f"    d_m = {middle}\n"
        "    d_h, d_a = attention_backward(saved.attention, d_m)\n"
        "    d_t, d_1 = layer_norm_backward(saved.norm1, d_h)\n"
        f"    return {end}, {weights}\n"
    )


X = "(d_n - m - n * s) * inverse_std"

WRONG = {
    "04.1": [
        ("the direct way only", norm("d_n * inverse_std, d_w, d_b"), "Only the direct way"),
        (
            "forgets the deviation",
            norm("(d_n - m) * inverse_std, d_w, d_b"),
            "through the deviation",
        ),
        ("forgets the mean", norm("(d_n - n * s) * inverse_std, d_w, d_b"), "through the mean is"),
        ("forgets to divide", norm("d_n - m - n * s, d_w, d_b"), "Divide by the deviation"),
        (
            "divides by 1 / std",
            norm("(d_n - m - n * s) / inverse_std, d_w, d_b"),
            "1 / std already",
        ),
        (
            "adds the parts",
            norm("(d_n + m + n * s) * inverse_std, d_w, d_b"),
            "taken out, not added",
        ),
        ("the part without n", norm("(d_n - m - s) * inverse_std, d_w, d_b"), "points along n"),
        (
            "forgets the weight",
            norm(
                "(d_y - d_y.mean(-1, keepdim=True) - n * (d_y * n).mean(-1, keepdim=True))"
                " * inverse_std, d_w, d_b"
            ),
            "The weight is missing",
        ),
        (
            "sums instead of means",
            norm(f"{X}, d_w, d_b", "m, s = m * d_y.shape[-1], s * d_y.shape[-1]"),
            "not sums",
        ),
        (
            "means over all tokens",
            norm(f"{X}, d_w, d_b", "m, s = d_n.mean(), (d_n * n).mean()"),
            "each token by itself",
        ),
        ("d_weight for each token", norm(f"{X}, d_y * n, d_b"), "d_weight has a row for each"),
        ("d_weight without n", norm(f"{X}, d_b, d_b"), "the factor n is missing"),
        ("d_weight with the weight", norm(f"{X}, (d_n * n).sum(axes), d_b"), "starts from d_y"),
        ("d_weight of one dimension", norm(f"{X}, (d_y * n).sum(0), d_b"), "first dimension only"),
        ("d_bias for each token", norm(f"{X}, d_w, d_y"), "d_bias has a row for each token"),
        ("d_bias with the weight", norm(f"{X}, d_w, d_n.sum(axes)"), "without the weight"),
        (
            "d_bias as a mean",
            norm(f"{X}, d_w, d_b / d_y[..., 0].numel()"),
            "d_bias is a sum over the tokens",
        ),
        ("in another order", norm("d_w, d_b, d_n"), "shape (4, 5)"),
        ("d_x alone", norm(X), "three tensors"),
        (
            "writes on d_y",
            norm(f"{X}, d_w, d_b", "d_y.mul_(2)"),
            "caller's tensor `d_y`",
        ),
        (
            "torch's kernel",
            "def my_layer_norm_backward(normalised, inverse_std, weight, d_y):\n"
            "    mean = torch.zeros_like(inverse_std)\n"
            "    d_x, d_w, d_b = torch.ops.aten.native_layer_norm_backward(\n"
            "        d_y, normalised / inverse_std, weight.shape, mean, inverse_std, weight,\n"
            "        weight, [True, True, True])\n"
            "    return d_x, d_w, d_b",
            "a call of aten.native_layer_norm_backward",
        ),
        (
            "the course's own",
            "from course_lib.backward.layers import layer_norm_backward as back\n"
            "from course_lib.forward.layers import LayerNormSaved\n"
            "from course_lib.forward.weights import NormWeights\n"
            "def my_layer_norm_backward(normalised, inverse_std, weight, d_y):\n"
            "    saved = LayerNormSaved(normalised, inverse_std, NormWeights(weight, weight))\n"
            "    d_x, (d_w, d_b) = back(saved, d_y)\n"
            "    return d_x, d_w, d_b",
            "a call of course_lib.backward.layers.layer_norm_backward",
        ),
    ],
    "04.2": [
        ("no scale", attend("d_s @ k, t(d_s) @ q, d_v", "d_s = d_s * root"), "so divide here too"),
        ("scaled twice", attend("d_s @ k / root, t(d_s) @ q / root, d_v"), "once is enough"),
        ("no softmax", attend("d_s @ k, t(d_s) @ q, d_v", "d_s = d_p / root"), "passed over"),
        (
            "half of softmax",
            attend("d_s @ k, t(d_s) @ q, d_v", "d_s = pattern * d_p / root"),
            "the sum is missing",
        ),
        (
            "the plain sum",
            attend(
                "d_s @ k, t(d_s) @ q, d_v",
                "d_s = pattern * (d_p - d_p.sum(-1, keepdim=True)) / root",
            ),
            "over pattern * d_pattern",
        ),
        (
            "the sum over queries",
            attend(
                "d_s @ k, t(d_s) @ q, d_v",
                "d_s = pattern * (d_p - (pattern * d_p).sum(-2, keepdim=True)) / root",
            ),
            "runs over a query's row",
        ),
        ("the sign turned", attend("-d_s @ k, -t(d_s) @ q, d_v"), "d_q: the sign is turned"),
        ("d_q transposed", attend("t(d_s) @ k, t(d_s) @ q, d_v"), "transposed by mistake"),
        ("d_k not transposed", attend("d_s @ k, d_s @ q, d_v"), "belongs to key s"),
        ("d_v not transposed", attend("d_s @ k, t(d_s) @ q, pattern @ d_y"), "every query that"),
        ("d_v scaled", attend("d_s @ k, t(d_s) @ q, d_v / root"), "not to v"),
        ("d_v forward", attend("d_s @ k, t(d_s) @ q, pattern @ v"), "that is the forward pass"),
        ("only d_k unscaled", attend("d_s @ k, t(d_s) @ q * root, d_v"), "d_k: the scores were"),
        ("in another order", attend("t(d_s) @ q, d_s @ k, d_v"), "d_k stands in d_q's place"),
        ("d_q alone", attend("d_s @ k"), "three tensors"),
        (
            "writes on the pattern",
            attend("d_s @ k, t(d_s) @ q, d_v", "pattern.mul_(d_p)"),
            "caller's tensor `pattern`",
        ),
        (
            "mask forgotten, pattern made again",
            attend(
                "d_s @ k, t(d_s) @ q, d_v",
                "pattern = torch.softmax(q @ t(k) / root, -1)\n"
                "    d_s = pattern * (d_p - (pattern * d_p).sum(-1, keepdim=True)) / root",
            ),
            "one step at a time",
        ),
        (
            "autograd",
            "def my_attention_backward(q, k, v, pattern, d_y):\n"
            "    leaves = [x.clone().requires_grad_() for x in (q, k, v)]\n"
            "    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)\n"
            "    s = leaves[0] @ leaves[1].transpose(-2, -1) / q.shape[-1] ** 0.5\n"
            "    y = s.masked_fill(later, -math.inf).softmax(-1) @ leaves[2]\n"
            "    return torch.autograd.grad(y, leaves, d_y)",
            "a call of torch.autograd.grad",
        ),
        (
            "the course's own",
            "from course_lib.backward.layers import causal_attention_backward as back\n"
            "from course_lib.forward.layers import CausalAttentionSaved\n"
            "def my_attention_backward(q, k, v, pattern, d_y):\n"
            "    return back(CausalAttentionSaved(q, k, v, pattern), d_y)",
            "a call of course_lib.backward.layers.causal_attention_backward",
        ),
    ],
    "04.3": [
        ("no way past the MLP", block(middle="d_t"), "attention.query.weight"),
        ("no way past the attention", block(end="d_t"), "d_x: at"),
        (
            "d_y alone past the attention",
            block(end="d_y + d_t"),
            "In the middle of the block it is",
        ),
        ("the straight way twice", block(end="d_m + d_t + d_y"), "counts twice"),
        ("d_y taken off", block(end="d_m + d_t - d_y"), "straight way past the block is missing"),
        (
            "the norms swapped",
            block(weights="BlockWeights(d_2, d_a, d_1, d_mlp)"),
            "norm2.weight",
        ),
        (
            "MLP and attention swapped",
            block(weights="BlockWeights(d_1, d_mlp, d_2, d_a)"),
            "no mlp.up.weight",
        ),
        ("half of d_y into the MLP", block(first="d_y / 2"), "mlp.up.weight"),
        (
            "attention gets d_y",
            block().replace("saved.attention, d_m", "saved.attention, d_y"),
            "attention.query.weight: at [0, 0]",
        ),
        ("a plain tuple", block(weights="(d_1, d_a, d_2, d_mlp)"), "BlockWeights as the second"),
        ("d_x alone", block().replace(", BlockWeights(d_1, d_a, d_2, d_mlp)", ""), "a pair"),
        (
            "writes on d_y",
            block(middle="d_y.add_(d_t)").replace("return d_m", "return d_m"),
            "caller's tensor `d_y`",
        ),
        (
            "from the start to the end",
            "def my_block_backward(saved, d_y):\n"
            "    d_h, d_a = attention_backward(saved.attention, d_y)\n"
            "    d_t, d_1 = layer_norm_backward(saved.norm1, d_h)\n"
            "    d_m = d_y + d_t\n"
            "    d_h, d_mlp = mlp_backward(saved.mlp, d_m)\n"
            "    d_t, d_2 = layer_norm_backward(saved.norm2, d_h)\n"
            "    return d_m + d_t, BlockWeights(d_1, d_a, d_2, d_mlp)",
            "mlp.up.weight: at",
        ),
        (
            "the course's own",
            "from course_lib.backward.blocks import block_backward as back\n"
            "def my_block_backward(saved, d_y):\n    return back(saved, d_y)",
            "a call of course_lib.backward.blocks.block_backward",
        ),
    ],
}

RIGHT = {
    "04.1": [
        (
            "three ways, one by one",
            "def my_layer_norm_backward(normalised, inverse_std, weight, d_y):\n"
            "    n, width = normalised, normalised.shape[-1]\n"
            "    d_n = d_y * weight\n"
            "    d_std = -(d_n * n).sum(-1, keepdim=True) * inverse_std\n"
            "    d_centred = d_n * inverse_std + d_std * n / width\n"
            "    d_x = d_centred - d_centred.sum(-1, keepdim=True) / width\n"
            "    rows = d_y.reshape(-1, width)\n"
            "    return d_x, (rows * n.reshape(-1, width)).sum(0), rows.sum(0)",
        ),
        (
            "a projection, with einsum",
            "def my_layer_norm_backward(normalised, inverse_std, weight, d_y):\n"
            "    n, d = normalised, d_y * weight\n"
            "    along = torch.einsum('...d,...d->...', d, n).unsqueeze(-1) / d.shape[-1]\n"
            "    d_x = inverse_std * (d - d.mean(-1, keepdim=True) - n * along)\n"
            "    return [d_x, torch.einsum('...d,...d->d', d_y, n), torch.einsum('...d->d', d_y)]",
        ),
    ],
    "04.2": [
        (
            "with einsum",
            "def my_attention_backward(q, k, v, pattern, d_y):\n"
            "    d_v = torch.einsum('bhts,bhtk->bhsk', pattern, d_y)\n"
            "    d_p = torch.einsum('bhtk,bhsk->bhts', d_y, v)\n"
            "    d_s = pattern * d_p - pattern * torch.einsum('bhts,bhts->bht', pattern, d_p)"
            "[..., None]\n"
            "    d_s = d_s * q.shape[-1] ** -0.5\n"
            "    d_q = torch.einsum('bhts,bhsk->bhtk', d_s, k)\n"
            "    return d_q, torch.einsum('bhts,bhtk->bhsk', d_s, q), d_v",
        ),
        (
            "with the chapter's softmax, the sum from y",
            "def my_attention_backward(q, k, v, pattern, d_y):\n"
            "    d_s = back_through_softmax(pattern, d_y @ v.mT)\n"
            "    root = math.sqrt(k.shape[-1])\n"
            "    return (d_s @ k) / root, (d_s.mT @ q) / root, pattern.mT @ d_y",
        ),
    ],
    "04.3": [
        ("in other words", block()),
        (
            "each half by one function",
            "def my_block_backward(saved, d_y):\n"
            "    def half(back, inner, norm, d):\n"
            "        d_n, d_inner = back(inner, d)\n"
            "        d_t, d_norm = layer_norm_backward(norm, d_n)\n"
            "        return d + d_t, d_inner, d_norm\n"
            "    d, d_mlp, d_2 = half(mlp_backward, saved.mlp, saved.norm2, d_y)\n"
            "    d, d_a, d_1 = half(attention_backward, saved.attention, saved.norm1, d)\n"
            "    return d, BlockWeights(norm1=d_1, attention=d_a, norm2=d_2, mlp=d_mlp)",
        ),
    ],
}

SAME_DIMENSION = "with four dimensions, 2 and -2 name the same one: a right answer"
SURVIVORS = {
    "04.2": {
        "line 5: sign or `not` dropped": SAME_DIMENSION,
        "line 6: sign or `not` dropped": SAME_DIMENSION,
        "line 9: sign or `not` dropped": SAME_DIMENSION,
    },
}
