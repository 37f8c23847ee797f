"""The peer of `course bench train`: the same Transformer made of nn.TransformerEncoderLayer.

What a PyTorch user writes in a minute. Its attention has a key bias, which ours leaves out; all
else is equal in size. It shares no line with the course's own model.

B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.config import ModelConfig
from course_lib.data.batch import Batch


class PlainTransformer(nn.Module):
    """Embeddings, pre-norm encoder layers with a causal mask, a norm and a head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.width,
                config.heads,
                config.hidden,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        mask = nn.Transformer.generate_square_subsequent_mask(config.context)
        self.mask: Tensor
        self.register_buffer("mask", mask)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits; T must be the whole context."""
        x = self.token(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(x))


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """Do forward, loss, backward and update, all by torch's own."""
    logits = model(batch.inputs)
    loss = F.cross_entropy(logits[batch.mask], batch.targets[batch.mask])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
