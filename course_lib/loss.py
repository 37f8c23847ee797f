"""The loss: how surprised the model was by the right answers. Third stage of the loop.

Per token the loss is -ln p(right answer), in nats; over a batch it is the mean over the tokens
that count. A model that knows nothing gives each of V answers 1 / V and has the loss ln V.

B batch, T tokens, V vocabulary; `...` stands for any leading dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class LossSum(NamedTuple):
    """The losses of a batch added up, and how many there are.

    Kept apart, since sums and counts of unequal parts (ranks, micro-batches) can be added, and
    means can't be averaged. On P ranks the mean loss of one rank is (before its backward pass)
    multiplied by count x P / (sum of all counts): the average of the ranks' gradients is then the
    whole batch's gradient.

    total: the sum of the losses, a scalar tensor that has a gradient, in nats.
    counted: how many tokens count, a Python int.
    """

    total: Float[Tensor, ""]
    counted: int

    @property
    def mean(self) -> Float[Tensor, ""]:
        """The mean loss; 0 where nothing counts."""
        return self.total / max(self.counted, 1)


def log_softmax(logits: Float[Tensor, "... V"]) -> Float[Tensor, "... V"]:
    """Return ln softmax: z - ln sum exp z, with the largest logit taken off first.

    exp(89) overflows in float32; after the shift the largest exponent is 0 and the result is the
    same.
    """
    shifted = logits - logits.detach().amax(dim=-1, keepdim=True)  # no gradient through a shift
    return shifted - shifted.exp().sum(dim=-1, keepdim=True).log()


def token_losses(
    logits: Float[Tensor, "... V"], targets: Int[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Return -ln p(target) for each token.

    Raises:
        ValueError: the shapes don't fit each other.
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need targets of shape "
            f"{tuple(logits.shape[:-1])}, but they have {tuple(targets.shape)}."
        )
    return -log_softmax(logits).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def cross_entropy_sum(
    logits: Float[Tensor, "... V"],
    targets: Int[Tensor, "..."],
    mask: Bool[Tensor, "..."] | None = None,
) -> LossSum:
    """Add up the losses of the tokens that count.

    Args:
        logits: the model's scores; not changed. bfloat16 and float16 are added up in float32.
        targets: the right answers, int64, from 0 to V - 1.
        mask: True where a token counts; None means all.

    Raises:
        ValueError: the shapes of logits, targets and mask don't fit each other.
    """
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    if mask is None:
        losses = token_losses(logits, targets)
        return LossSum(losses.sum(), losses.numel())
    if mask.shape != targets.shape:
        raise ValueError(
            f"the mask has the shape {tuple(mask.shape)}, "
            f"but the targets have {tuple(targets.shape)}."
        )
    # Picked out rather than multiplied by 0: a masked token costs nothing, and can't bring in a
    # NaN.
    # index_select, since the backward pass of logits[mask] is many times slower on a CPU.
    counting = mask.reshape(-1).nonzero().squeeze(-1)
    rows = logits.reshape(-1, logits.shape[-1]).index_select(0, counting)
    losses = token_losses(rows, targets.reshape(-1)[counting])
    return LossSum(losses.sum(), losses.numel())


def cross_entropy(
    logits: Float[Tensor, "... V"],
    targets: Int[Tensor, "..."],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, ""]:
    """Return the mean loss of the tokens that count, in nats: F.cross_entropy with a mask.

    Over nothing (no token counts) it is 0, with the gradient 0. Arguments and errors as in
    cross_entropy_sum.
    """
    return cross_entropy_sum(logits, targets, mask).mean
