"""What each piece of a Transformer's forward pass costs, by formula: parameters, FLOPs, bytes.

A multiplication is one FLOP and so is an addition, so that a matrix product [n, k] x [k, m] costs
2 n k m; exp, erf, a square root and a comparison count as one each. Bytes are the least that must
travel between memory and the processor: every input and parameter read once, every output written
once. Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.

B batch, T tokens, D width, H heads, K head width, F hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.config import ModelConfig

FLOAT32_BYTES = 4

# Operations for each element. Layer norm: sum, subtract, square, sum, multiply by 1 / deviation,
# by the weight, add the bias. GELU: scale, erf, add 1, halve, multiply by x. Softmax: compare for
# the largest, subtract, exp, sum, divide.
NORM_FLOPS, GELU_FLOPS, SOFTMAX_FLOPS = 7, 5, 5


@dataclass(frozen=True)
class Cost:
    """What a piece of the model costs in one forward pass.

    Args:
        parameters: numbers that training changes.
        matmul_flops: FLOPs in matrix products.
        other_flops: FLOPs element by element: norms, GELU, softmax, sums.
        bytes_moved: the least traffic with memory.
    """

    parameters: int = 0
    matmul_flops: int = 0
    other_flops: int = 0
    bytes_moved: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.parameters + other.parameters,
            self.matmul_flops + other.matmul_flops,
            self.other_flops + other.other_flops,
            self.bytes_moved + other.bytes_moved,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(
            self.parameters * times,
            self.matmul_flops * times,
            self.other_flops * times,
            self.bytes_moved * times,
        )

    @property
    def flops(self) -> int:
        """All FLOPs."""
        return self.matmul_flops + self.other_flops

    @property
    def intensity_flops_per_byte(self) -> float:
        """FLOPs for each byte moved: low means that memory, not arithmetic, sets the pace."""
        return self.flops / self.bytes_moved


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    return sum(costs, Cost())


def matmul_flops(rows: int, inner: int, columns: int) -> int:
    """Return 2 n k m, the FLOPs of [n, k] x [k, m]: each of n m sums has k products."""
    return 2 * rows * inner * columns


def linear_cost(rows: int, inputs: int, outputs: int, bias: bool = True) -> Cost:
    """Return the cost of a linear layer on `rows` vectors (rows = B T)."""
    parameters = outputs * inputs + (outputs if bias else 0)
    return Cost(
        parameters=parameters,
        matmul_flops=matmul_flops(rows, inputs, outputs),
        other_flops=rows * outputs if bias else 0,
        bytes_moved=FLOAT32_BYTES * (rows * inputs + parameters + rows * outputs),
    )


def layer_norm_cost(rows: int, width: int) -> Cost:
    """Return the cost of a layer norm on `rows` vectors."""
    return Cost(
        parameters=2 * width,
        other_flops=NORM_FLOPS * rows * width,
        bytes_moved=FLOAT32_BYTES * (2 * rows * width + 2 * width),
    )


def gelu_cost(elements: int) -> Cost:
    """Return the cost of a GELU."""
    return Cost(other_flops=GELU_FLOPS * elements, bytes_moved=FLOAT32_BYTES * 2 * elements)


def residual_cost(elements: int) -> Cost:
    """Return the cost of x + change: two inputs read, one output written."""
    return Cost(other_flops=elements, bytes_moved=FLOAT32_BYTES * 3 * elements)


def embedding_cost(batch: int, tokens: int, vocab_size: int, context: int, width: int) -> Cost:
    """Return the cost of looking up tokens and positions and adding the two.

    No matrix product: of each table only the rows that are asked for are read.
    """
    elements = batch * tokens * width
    return Cost(
        parameters=(vocab_size + context) * width,
        other_flops=elements,
        bytes_moved=FLOAT32_BYTES * (2 * elements + tokens * width),
    )


def attention_core_costs(batch: int, tokens: int, heads: int, head_width: int) -> dict[str, Cost]:
    """Return the costs of scores, softmax and weighted sum, each written out as the readable
    layers do.

    The mask saves nothing here: forbidden scores are computed, then thrown away.
    """
    vectors = batch * heads * tokens * head_width
    scores = batch * heads * tokens * tokens
    products = batch * heads * matmul_flops(tokens, head_width, tokens)
    moved = FLOAT32_BYTES * (2 * vectors + scores)
    return {
        "scores": Cost(matmul_flops=products, other_flops=vectors, bytes_moved=moved),
        "softmax": Cost(other_flops=SOFTMAX_FLOPS * scores, bytes_moved=FLOAT32_BYTES * 2 * scores),
        "weighted sum": Cost(matmul_flops=products, bytes_moved=moved),
    }


def block_costs(batch: int, tokens: int, width: int, heads: int, hidden: int) -> dict[str, Cost]:
    """Return the cost of each piece of one block.

    Args:
        batch: B.
        tokens: T.
        width: D.
        heads: H; the width of a head is D / H.
        hidden: F.
    """
    rows = batch * tokens
    return {
        "norms": layer_norm_cost(rows, width) * 2,
        "query, key, value": linear_cost(rows, width, width) * 2
        + linear_cost(rows, width, width, bias=False),
        **attention_core_costs(batch, tokens, heads, width // heads),
        "output": linear_cost(rows, width, width),
        "mlp up": linear_cost(rows, width, hidden),
        "gelu": gelu_cost(rows * hidden),
        "mlp down": linear_cost(rows, hidden, width),
        "residual sums": residual_cost(rows * width) * 2,
    }


def model_costs(config: ModelConfig, batch: int, tokens: int) -> dict[str, Cost]:
    """Return the cost of each piece of the whole model, its blocks added up.

    A tied head has no parameters of its own.
    """
    rows = batch * tokens
    blocks = block_costs(batch, tokens, config.width, config.heads, config.hidden)
    head = linear_cost(rows, config.width, config.vocab_size, bias=False)
    if config.tied:
        head = Cost(0, head.matmul_flops, head.other_flops, head.bytes_moved)
    return {
        "embedding": embedding_cost(batch, tokens, config.vocab_size, config.context, config.width),
        **{name: cost * config.layers for name, cost in blocks.items()},
        "final norm": layer_norm_cost(rows, config.width),
        "head": head,
    }
