"""What chapter 06's checks share: a model and an optimizer that tell what was done to them.

Both are tiny, so that a check takes a fraction of a second, and stand in for any other: an answer
knows only `model(tokens)`, `parameters()`, `step()`, `zero_grad()` and `state_dict()`.

B rows, T tokens, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.data.batch import Batch

VOCABULARY = 5


class SpyModel(nn.Module):
    """Embedding, dropout and a linear layer; notes the rows and the mode of every call.

    rows: how many rows each call was given; modes: whether it was training.
    """

    def __init__(self, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(VOCABULARY, 4, generator=generator))
        self.head = nn.Parameter(torch.randn(VOCABULARY, 4, generator=generator))
        self.dropout = dropout
        self.rows: list[int] = []
        self.modes: list[bool] = []

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of each next token."""
        self.rows.append(len(tokens))
        self.modes.append(self.training)
        x = F.dropout(self.table[tokens], self.dropout, self.training)
        return x @ self.head.T

    def gradients(self) -> list[Tensor | None]:
        """Return copies of the gradients, None where there is none."""
        return [None if p.grad is None else p.grad.clone() for p in self.parameters()]


class SpyOptimizer:
    """SGD with momentum that notes each step's gradients and weights.

    seen: for each step the gradients that it was given; weights: the parameters before it.
    """

    def __init__(self, model: SpyModel, lr: float = 0.1, momentum: float = 0.0) -> None:
        self.model, self.lr, self.momentum = model, lr, momentum
        self.buffers = [torch.zeros_like(p) for p in model.parameters()]
        self.seen: list[list[Tensor | None]] = []
        self.weights: list[dict[str, Tensor]] = []

    @torch.no_grad()
    def step(self) -> None:
        """Take a step."""
        self.seen.append(self.model.gradients())
        self.weights.append({k: v.clone() for k, v in self.model.state_dict().items()})
        for p, b in zip(self.model.parameters(), self.buffers, strict=True):
            if p.grad is not None:
                b.mul_(self.momentum).add_(p.grad)
                p.sub_(self.lr * b)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for p in self.model.parameters():
            p.grad = None

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The settings, as torch has them."""
        return [{"params": list(self.model.parameters()), "lr": self.lr}]

    def state_dict(self) -> dict[str, Any]:
        """Return the buffers themselves, as torch's optimizers do: no copies."""
        return {"buffers": list(self.buffers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the buffers over."""
        self.buffers = [buffer.clone() for buffer in state["buffers"]]


def random_batch(counts: tuple[int, ...], seed: int, tokens: int = 6) -> Batch:
    """Return a batch in which row i counts its last counts[i] targets."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(VOCABULARY, (len(counts), tokens + 1), generator=generator)
    mask = torch.zeros(len(counts), tokens, dtype=torch.bool)
    for row, count in enumerate(counts):
        mask[row, tokens - count :] = True
    return Batch(drawn[:, :-1], drawn[:, 1:], mask)


def token_losses(model: SpyModel, batch: Batch) -> Tensor:
    """Return torch's cross-entropy of every token, [B, T], with a graph."""
    logits = model(batch.inputs)
    return F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")


def gradients_of(model: SpyModel, loss: Tensor) -> list[Tensor]:
    """Return autograd's gradients, and leave .grad alone."""
    return list(torch.autograd.grad(loss, list(model.parameters())))


def slices_of(batch: Batch, size: int) -> Iterator[Batch]:
    """Cut a batch into parts of `size` rows; the last one may be shorter."""
    for first in range(0, len(batch.inputs), size):
        yield batch.rows(slice(first, first + size))
