"""The peer of `course bench text`: a character model as a plain PyTorch script trains it.

A GPT of nn.Linear, nn.LayerNorm and scaled_dot_product_attention, drawn with deviation 0.02,
torch's own AdamW (rate 1e-3, betas 0.9 and 0.99, decay 0.1), 100 steps of warm-up, a cosine to
1e-4, gradients clipped at 1, 2,000 steps of 12 windows that start anywhere. It shares no line with
the course's own loop.

B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import math
import time

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

STEPS, BATCH_SIZE = 2000, 12
PEAK_LR, FINAL_LR, WARMUP_STEPS = 1e-3, 1e-4, 100
LAYERS, HEADS, WIDTH, CONTEXT = 4, 4, 128, 64


class PlainBlock(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def draw_outputs(self, deviation: float) -> None:
        """Draw what adds to the residual stream smaller, as there are many of them."""
        for layer in (self.output, self.down):
            nn.init.normal_(layer.weight, std=deviation)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return x + attention, then the same with the MLP."""
        rows, tokens, _ = x.shape
        parts = self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(rows, tokens, HEADS, -1).transpose(1, 2) for part in parts)
        gathered = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(gathered.transpose(1, 2).reshape(rows, tokens, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    """Embeddings, blocks, a norm, and a head that shares the token embedding's weights."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab_size, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocab_size, bias=False)
        self.head.weight = self.token.weight
        for module in reversed(list(self.modules())):  # a block after its layers
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
            if isinstance(module, PlainBlock):
                module.draw_outputs(0.02 / math.sqrt(2 * LAYERS))

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits."""
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train_plain(
    tokens: Int[Tensor, "N"], vocab_size: int, seed: int, steps: int = STEPS
) -> tuple[PlainGPT, float]:
    """Train the plain model on a text's tokens; return it and the seconds of its steps."""
    torch.manual_seed(seed)
    model = PlainGPT(vocab_size)
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.99))
    started_s = time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, steps)
        starts = torch.randint(len(tokens) - CONTEXT, (BATCH_SIZE,))
        inputs = torch.stack([tokens[i : i + CONTEXT] for i in starts])
        targets = torch.stack([tokens[i + 1 : i + 1 + CONTEXT] for i in starts])
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
    return model, time.perf_counter() - started_s


def _rate(step: int, steps: int) -> float:
    if step < WARMUP_STEPS:
        return PEAK_LR * (step + 1) / (WARMUP_STEPS + 1)
    progress = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    return FINAL_LR + 0.5 * (PEAK_LR - FINAL_LR) * (1 + math.cos(math.pi * progress))
