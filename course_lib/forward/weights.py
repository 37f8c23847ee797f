"""The weights of a Transformer as nested named tuples, and how they start.

The nesting gives each parameter its name (`blocks.0.attention.query.weight`); gradients by hand
come back in the same nesting. Forward stage.

D width, F hidden width, V vocabulary, T context, I and O a layer's inputs and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.config import ModelConfig


class LinearWeights(NamedTuple):
    """y = x W^T + b."""

    weight: Float[Tensor, "O I"]
    bias: Float[Tensor, "O"] | None


class NormWeights(NamedTuple):
    """The scale and shift of a layer norm."""

    weight: Float[Tensor, "D"]
    bias: Float[Tensor, "D"]


class AttentionWeights(NamedTuple):
    """Projections to queries, keys and values, and back.

    The key has no bias. It would add the same to all of a query's scores, softmax ignores such a
    shift, so its true gradient is zero, and an adaptive optimizer would turn the rounding noise in
    place of that zero into drift between runs that should be equal.
    """

    query: LinearWeights
    key: LinearWeights
    value: LinearWeights
    output: LinearWeights


class MlpWeights(NamedTuple):
    """Up to the hidden width, and down again."""

    up: LinearWeights
    down: LinearWeights


class BlockWeights(NamedTuple):
    """One block."""

    norm1: NormWeights
    attention: AttentionWeights
    norm2: NormWeights
    mlp: MlpWeights


class TransformerWeights(NamedTuple):
    """The whole model. `head` is None where it is tied to the token embedding."""

    token_embedding: Float[Tensor, "V D"]
    position_embedding: Float[Tensor, "T D"]
    blocks: tuple[BlockWeights, ...]
    final_norm: NormWeights
    head: Float[Tensor, "V D"] | None


def named(weights: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) for each tensor in nested tuples, names joined by dots."""
    if isinstance(weights, Tensor):
        yield prefix, weights
    elif weights is not None:
        fields = getattr(weights, "_fields", None) or map(str, range(len(weights)))
        for field, value in zip(fields, weights, strict=True):
            yield from named(value, f"{prefix}.{field}" if prefix else field)


def initial_weights(config: ModelConfig, generator: torch.Generator | None) -> TransformerWeights:
    """Draw the weights that training starts from, all normal with mean 0.

    - A matrix with I inputs gets the deviation 1 / sqrt(I), so that a sum over I inputs of size 1
      has the size 1 again (LeCun 1998, "Efficient BackProp", section 4.6). With one small number
      everywhere, such as 0.02, a narrow model's attention starts so weak that some seeds learn
      nothing for hundreds of steps.
    - The two matrices of a block that add to the residual stream get 1 / sqrt(2 L) of that: 2 L
      such sums together then add up to the size 1 (Radford et al. 2019, GPT-2, section 2.3).
    - The head gets HEAD_DEVIATION, embeddings EMBEDDING_DEVIATION, see there; tied ones the head's.
    - Biases start at 0, norms at scale 1 and shift 0.
    """
    width, hidden = config.width, config.hidden

    def normal(rows: int, columns: int, deviation: float) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * deviation

    def linear(rows: int, columns: int, gain: float = 1.0, bias: bool = True) -> LinearWeights:
        weight = normal(rows, columns, gain / math.sqrt(columns))
        return LinearWeights(weight, torch.zeros(rows) if bias else None)

    def norm() -> NormWeights:
        return NormWeights(torch.ones(width), torch.zeros(width))

    def block() -> BlockWeights:
        residual = 1 / math.sqrt(2 * config.layers)
        attention = AttentionWeights(
            query=linear(width, width),
            key=linear(width, width, bias=False),
            value=linear(width, width),
            output=linear(width, width, gain=residual),
        )
        mlp = MlpWeights(up=linear(hidden, width), down=linear(width, hidden, gain=residual))
        return BlockWeights(norm(), attention, norm(), mlp)

    embedding = HEAD_DEVIATION if config.tied else EMBEDDING_DEVIATION
    return TransformerWeights(
        token_embedding=normal(config.vocab_size, width, embedding),
        position_embedding=normal(config.context, width, embedding),
        blocks=tuple(block() for _ in range(config.layers)),
        final_norm=norm(),
        head=None if config.tied else normal(config.vocab_size, width, HEAD_DEVIATION),
    )


# Small, so that all answers start about equally likely and the loss at ln V: with a final norm of
# size sqrt(D) per token, a logit has the deviation 0.02 x sqrt(D), 0.16 at width 64.
HEAD_DEVIATION = 0.02
# About the size of what a block adds, 1 / sqrt(2 L) of 1: the stream that all blocks add to then
# still tells the tokens apart. With 0.02 they drown in the first blocks' noise: a text model of
# 4 layers was 0.2 nats behind after 500 steps. A tied embedding can't have it: it is the head too.
EMBEDDING_DEVIATION = 0.3
