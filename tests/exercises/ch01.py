"""Known wrong and right answers to chapter 01's exercises."""

NORM = "def my_layer_norm(x, weight, bias, eps):\n"
ATTEND = "def my_causal_attention(q, k, v):\n"
HEADS = "def my_in_heads(q, k, v, heads, attend):\n"
FLOPS = "def my_block_flops(B, T, D, H, F):\n"

CENTRED = "    c = x - x.mean(-1, keepdim=True)\n    s = (c**2).mean(-1, keepdim=True)\n"
SCORES = "    T, K = q.shape[-2:]\n    s = q @ k.transpose(-2, -1) / K**0.5\n"
MASK = "    m = torch.ones(T, T, dtype=torch.bool).triu(1)\n"


def in_heads(there: str, back: str) -> str:
    """An answer that splits each tensor by `there` and joins `y` by `back`."""
    return (
        HEADS + "    B, T, D = q.shape\n    K = D // heads\n"
        f"    y = attend(*({there} for x in (q, k, v)))\n    return {back}"
    )


SPLIT = "x.unflatten(-1, (heads, -1)).transpose(1, 2)"
JOIN = "y.transpose(1, 2).flatten(-2)"

WRONG = {
    "01.1": [
        (
            "torch's sample variance",
            NORM + "    v = x.var(-1, keepdim=True)\n"
            "    return (x - x.mean(-1, keepdim=True)) / (v + eps).sqrt() * weight + bias",
            "divide by D.",
        ),
        (
            "eps outside the root",
            NORM + CENTRED + "    return c / (s.sqrt() + eps) * weight + bias",
            "eps belongs under the root",
        ),
        (
            "divides by the variance",
            NORM + CENTRED + "    return c / (s + eps) * weight + bias",
            "take its square root first",
        ),
        (
            "one mean for all tokens",
            NORM
            + "    c = x - x.mean()\n    return c / ((c**2).mean() + eps).sqrt() * weight + bias",
            "One mean and variance for all tokens",
        ),
        (
            "forgets the bias",
            NORM + CENTRED + "    return c / (s + eps).sqrt() * weight",
            "The bias is missing",
        ),
        (
            "forgets weight and bias",
            NORM + CENTRED + "    return c / (s + eps).sqrt()",
            "weight and the bias are missing",
        ),
        (
            "forgets eps",
            NORM + CENTRED + "    return c / s.sqrt() * weight + bias",
            "eps is missing",
        ),
        (
            "does not subtract the mean",
            NORM + CENTRED + "    return x / (s + eps).sqrt() * weight + bias",
            "Subtract the mean from x",
        ),
        (
            "an eps of its own",
            NORM + CENTRED + "    return c / (s + 1e-5).sqrt() * weight + bias",
            "Use the argument `eps`",
        ),
        (
            "normalises in place",
            NORM + "    x -= x.mean(-1, keepdim=True)\n"
            "    s = (x**2).mean(-1, keepdim=True)\n"
            "    return x / (s + eps).sqrt() * weight + bias",
            "caller's tensor `x`",
        ),
        (
            "torch's layer norm",
            NORM + "    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)",
            "a call of torch",
        ),
        (
            "the course's layer norm",
            "from course_lib.forward.layers import layer_norm as ours\n"
            "from course_lib.forward.weights import NormWeights\n"
            + NORM
            + "    return ours(x, NormWeights(weight, bias), eps)[0]",
            "a call of course_lib.forward.layers.layer_norm",
        ),
    ],
    "01.2": [
        ("no mask", ATTEND + SCORES + "    return torch.softmax(s, -1) @ v", "see later ones"),
        (
            "mask upside down",
            ATTEND + SCORES + MASK + "    return torch.softmax(s.masked_fill(m.T, -1e30), -1) @ v",
            "upside down",
        ),
        (
            "True and False swapped",
            ATTEND
            + SCORES
            + MASK
            + "    return torch.softmax(s.masked_fill(~m, -math.inf), -1) @ v",
            "True and False are swapped",
        ),
        (
            "no look at itself",
            ATTEND + SCORES + "    m = torch.ones(T, T, dtype=torch.bool).triu(0)\n"
            "    return torch.softmax(s.masked_fill(m, -math.inf), -1) @ v",
            "may look at itself",
        ),
        (
            "no scale",
            ATTEND
            + SCORES
            + MASK
            + "    s = (s * K**0.5).masked_fill(m, -math.inf)\n    return torch.softmax(s, -1) @ v",
            "The scale is missing",
        ),
        (
            "scales by K",
            ATTEND
            + SCORES
            + MASK
            + "    s = (s / K**0.5).masked_fill(m, -math.inf)\n    return torch.softmax(s, -1) @ v",
            "not by K",
        ),
        (
            "the root of T",
            ATTEND + SCORES + MASK + "    s = (s * (K / T)**0.5).masked_fill(m, -math.inf)\n"
            "    return torch.softmax(s, -1) @ v",
            "root of the number of tokens",
        ),
        (
            "softmax over the queries",
            ATTEND
            + SCORES
            + MASK
            + "    return torch.softmax(s.masked_fill(m, -math.inf), -2) @ v",
            "goes over the keys",
        ),
        (
            "masks after the softmax",
            ATTEND + SCORES + MASK + "    return torch.softmax(s, -1).masked_fill(m, 0) @ v",
            "masked after the softmax",
        ),
        (
            "fills in 0",
            ATTEND + SCORES + MASK + "    return torch.softmax(s.masked_fill(m, 0), -1) @ v",
            "no ban",
        ),
        (
            "swaps queries and keys",
            ATTEND
            + "    T, K = q.shape[-2:]\n    s = k @ q.transpose(-2, -1) / K**0.5\n"
            + MASK
            + "    return torch.softmax(s.masked_fill(m, -math.inf), -1) @ v",
            "have changed places",
        ),
        (
            "overflows",
            ATTEND
            + SCORES
            + MASK
            + "    e = s.exp().masked_fill(m, 0)\n    return e / e.sum(-1, keepdim=True) @ v",
            "largest score off",
        ),
        (
            "torch's attention",
            ATTEND + "    return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
            "a call of torch.nn.functional.scaled_dot_product_attention",
        ),
        (
            "the course's attention",
            ATTEND + "    return layers.causal_attention(q, k, v)[0]",
            "a call of course_lib.forward.layers.causal_attention",
        ),
    ],
    "01.3": [
        ("a plain view", in_heads("x.reshape(B, heads, T, K)", JOIN), "mixes tokens"),
        (
            "K before H",
            in_heads("x.unflatten(-1, (K, heads)).permute(0, 3, 1, 2)", JOIN),
            "every H-th number",
        ),
        (
            "no transpose",
            in_heads("x.unflatten(-1, (heads, -1))", "y.flatten(-2)"),
            "Tokens and heads have not changed places",
        ),
        ("joins by reshape", in_heads(SPLIT, "y.reshape(B, T, D)"), "transpose back before"),
        (
            "alternates heads",
            in_heads(SPLIT, "y.permute(0, 2, 3, 1).reshape(B, T, D)"),
            "numbers alternate",
        ),
        ("does not flatten", in_heads(SPLIT, "y.transpose(1, 2)"), "still apart"),
        ("does not join", in_heads(SPLIT, "y"), "join the heads again"),
        (
            "attends head by head",
            HEADS + f"    parts = [{SPLIT} for x in (q, k, v)]\n"
            "    each = [attend(*(p[:, h : h + 1] for p in parts)) for h in range(heads)]\n"
            "    return torch.cat(each, 1).transpose(1, 2).flatten(-2)",
            "calls of `attend`",
        ),
        (
            "wrong order of arguments",
            HEADS + f"    parts = [{SPLIT} for x in (k, q, v)]\n"
            "    return attend(*parts).transpose(1, 2).flatten(-2)",
            "in this order",
        ),
        (
            "the course's functions",
            HEADS + "    parts = [layers.split_heads(x, heads) for x in (q, k, v)]\n"
            "    return layers.join_heads(attend(*parts))",
            "a call of course_lib.forward.layers.split_heads",
        ),
    ],
    "01.4": [
        (
            "one FLOP a product",
            FLOPS + "    return 4*B*T*D*D + 2*B*T*T*D + 2*B*T*D*F",
            "two FLOPs",
        ),
        (
            "forgets the output projection",
            FLOPS + "    return 6*B*T*D*D + 4*B*T*T*D + 4*B*T*D*F",
            "four projections",
        ),
        (
            "heads of width D",
            FLOPS + "    return 8*B*T*D*D + 4*B*H*T*T*D + 4*B*T*D*F",
            "A head has the width",
        ),
        (
            "one head only",
            FLOPS + "    return 8*B*T*D*D + 4*B*T*T*(D//H) + 4*B*T*D*F",
            "All H heads",
        ),
        (
            "scores only",
            FLOPS + "    return 8*B*T*D*D + 2*B*T*T*D + 4*B*T*D*F",
            "two products of one size",
        ),
        ("half an MLP", FLOPS + "    return 8*B*T*D*D + 4*B*T*T*D + 2*B*T*D*F", "up and down"),
        ("F as 4 D", FLOPS + "    return 24*B*T*D*D + 4*B*T*T*D", "need not be 4 D"),
        ("one row", FLOPS + "    return 8*T*D*D + 4*T*T*D + 4*T*D*F", "The batch is missing"),
        ("no attention", FLOPS + "    return 8*B*T*D*D + 4*B*T*D*F", "weighted sum are missing"),
        (
            "counts allowed scores only",
            FLOPS + "    return 8*B*T*D*D + 2*B*T*(T+1)*D + 4*B*T*D*F",
            "Forbidden scores are computed",
        ),
        ("a fraction", FLOPS + "    return B*T*D*(8*D + 4*T + 4*F) / 1", "a whole number"),
        (
            "torch's counter",
            "from torch.utils.flop_counter import FlopCounterMode\n"
            + FLOPS
            + "    with FlopCounterMode(display=False) as counter:\n"
            "        for n, k, m in [(B*T, D, D)] * 4 + [(B*T, D, F), (B*T, F, D)]:\n"
            "            torch.randn(n, k) @ torch.randn(k, m)\n"
            "    return counter.get_total_flops() + 4*B*T*T*D",
            "a call of torch.utils.flop_counter.FlopCounterMode",
        ),
        (
            "the course's formulas",
            FLOPS + "    return total(block_costs(B, T, D, H, F).values()).matmul_flops",
            "a call of course_lib.cost.formulas",
        ),
    ],
}

RIGHT = {
    "01.1": [
        (
            "torch.var with correction 0",
            NORM + "    v, m = torch.var_mean(x, dim=-1, correction=0, keepdim=True)\n"
            "    return (x - m) * torch.rsqrt(v + eps) * weight + bias",
        ),
        (
            "sums, and mean of squares minus square of the mean",
            NORM + "    D = x.shape[-1]\n"
            "    m = x.sum(-1, keepdim=True) / D\n"
            "    v = ((x - m) * (x - m)).sum(-1, keepdim=True) / D\n"
            "    return bias + weight * ((x - m) / (v + eps) ** 0.5)",
        ),
    ],
    "01.2": [
        (
            "scaled queries, torch.softmax, tril",
            ATTEND + "    T = q.shape[2]\n"
            "    s = (q / q.shape[-1] ** 0.5) @ k.mT\n"
            "    s = torch.where(torch.ones(T, T).tril() == 1, s, -math.inf)\n"
            "    return s.softmax(-1) @ v",
        ),
        (
            "einsum and an added mask",
            ATTEND + "    T, K = q.shape[-2:]\n"
            "    s = torch.einsum('bhtk,bhsk->bhts', q, k) / math.sqrt(K)\n"
            "    s = s + torch.full((T, T), -math.inf, dtype=s.dtype).triu(1)\n"
            "    return torch.einsum('bhts,bhsk->bhtk', torch.softmax(s, -1), v)",
        ),
    ],
    "01.3": [
        (
            "views and permutes",
            in_heads(
                "x.view(B, T, heads, K).permute(0, 2, 1, 3)",
                "y.permute(0, 2, 1, 3).contiguous().view(B, T, D)",
            ),
        ),
        (
            "slices",
            HEADS + "    parts = [torch.stack(x.chunk(heads, -1), 1) for x in (q, k, v)]\n"
            "    return torch.cat(attend(*parts).unbind(1), -1)",
        ),
    ],
    "01.4": [
        ("factored", FLOPS + "    return 4 * B * T * D * (2 * D + T + F)"),
        (
            "a product at a time",
            FLOPS + "    K = D // H\n    product = lambda n, k, m: 2 * n * k * m\n"
            "    flops = 4 * product(B * T, D, D)\n"
            "    flops += sum(product(T, K, T) + product(T, T, K) for _ in range(B * H))\n"
            "    return flops + product(B * T, D, F) + product(B * T, F, D)",
        ),
    ],
}

FOUR_DIMENSIONS = "of four dimensions the third from the front is the second from the back"
SURVIVORS = {
    "01.2": {
        "line 3: sign or `not` dropped": FOUR_DIMENSIONS,
        "line 4: sign or `not` dropped": FOUR_DIMENSIONS,
    },
    "01.3": {"line 5: sign or `not` dropped": FOUR_DIMENSIONS},
}
