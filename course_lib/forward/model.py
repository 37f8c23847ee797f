"""The Transformer: tokens to logits, a pre-norm GPT made of the layers in this folder.

Forward stage. Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2).

B batch, T tokens, D width, H heads, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.config import ModelConfig
from course_lib.forward.blocks import KERNEL_MODULES, BlockSaved, block
from course_lib.forward.layers import (
    DropoutSaved,
    EmbeddingSaved,
    LayerNormSaved,
    LinearSaved,
    dropout,
    embedding,
)
from course_lib.forward.weights import LinearWeights, TransformerWeights, initial_weights

BlockFunction = Callable[..., tuple[Tensor, Any]]


class TransformerSaved(NamedTuple):
    """What the backward pass of the whole model needs."""

    token_embedding: EmbeddingSaved
    position_embedding: EmbeddingSaved
    dropout: DropoutSaved
    blocks: tuple[BlockSaved, ...]
    final_norm: LayerNormSaved
    head: LinearSaved


class Parameters(nn.Module):
    """Registers nested tuples of tensors as parameters, named as they are nested."""

    def __init__(self, weights: Any) -> None:
        super().__init__()
        self._kind = type(weights)
        self._names = getattr(weights, "_fields", tuple(map(str, range(len(weights)))))
        for name, value in zip(self._names, weights, strict=True):
            if isinstance(value, Tensor):
                self.register_parameter(name, nn.Parameter(value))
            elif value is None:
                self.register_parameter(name, None)
            else:
                self.add_module(name, Parameters(value))

    def nested(self) -> Any:
        """Return the parameters as the nested tuples that this was made of."""
        parts = (getattr(self, name) for name in self._names)
        values = [part.nested() if isinstance(part, Parameters) else part for part in parts]
        return tuple(values) if self._kind is tuple else self._kind(*values)


class Transformer(Parameters):
    """Token and position embeddings, blocks, a final norm and an output head.

    Args:
        config: the sizes.
        generator: where the initial weights are drawn from; None means torch's global generator.
            How they are drawn stands in forward/weights.py.
    """

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(initial_weights(config, generator))
        self.config = config
        self.run_block: BlockFunction = block  # backward/by_hand.py puts another in its place

    def weights(self) -> TransformerWeights:
        """Return the parameters as nested tuples; the tensors are shared, not copied."""
        weights: TransformerWeights = self.nested()
        return weights

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of each next token.

        Raises:
            ValueError: more tokens than the context.
        """
        return self._run(tokens, self.config.kernels, self.run_block)[0]

    def forward_saved(
        self, tokens: Int[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T V"], TransformerSaved]:
        """Return the logits and what the backward pass by hand needs, always by readable layers."""
        return self._run(tokens, "readable", block)

    def _run(
        self, tokens: Int[Tensor, "B T"], kernels: str, run_block: BlockFunction
    ) -> tuple[Float[Tensor, "B T V"], TransformerSaved]:
        config, weights, use = self.config, self.weights(), KERNEL_MODULES[kernels]
        count = tokens.shape[-1]
        if count > config.context:
            raise ValueError(
                f"{count} tokens are too many: the model reads {config.context} at most."
            )
        places = torch.arange(count, device=tokens.device)
        token_part, saved_token = embedding(tokens, weights.token_embedding)
        place_part, saved_place = embedding(places, weights.position_embedding)
        x, saved_dropout = dropout(token_part + place_part, config.dropout, self.training)
        saved_blocks = []
        for each in weights.blocks:
            x, saved_block = run_block(
                x, each, config.heads, kernels, config.dropout, self.training
            )
            saved_blocks.append(saved_block)
        x, saved_norm = use.layer_norm(x, weights.final_norm)
        head = weights.token_embedding if weights.head is None else weights.head
        logits, saved_head = use.linear(x, LinearWeights(head, None))
        saved = TransformerSaved(
            saved_token, saved_place, saved_dropout, tuple(saved_blocks), saved_norm, saved_head
        )
        return logits, saved

    def parameter_count(self) -> int:
        """Return how many numbers training changes."""
        return sum(parameter.numel() for parameter in self.parameters())
