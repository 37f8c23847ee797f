"""All gradients of a Transformer by hand: {parameter name: gradient}, as autograd would leave them
in .grad.

Backward stage. Walks forward/model.py from the end to the start.

B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.backward.blocks import block_backward
from course_lib.backward.layers import (
    cross_entropy_backward,
    dropout_backward,
    embedding_backward,
    layer_norm_backward,
    linear_backward,
)
from course_lib.data.batch import Batch
from course_lib.forward.model import Transformer, TransformerSaved
from course_lib.forward.weights import TransformerWeights, named


def transformer_backward(
    saved: TransformerSaved, d_logits: Float[Tensor, "B T V"], tied: bool = False
) -> TransformerWeights:
    """Return the gradients of all weights, in the nesting of the weights.

    Args:
        saved: what Transformer.forward_saved kept.
        d_logits: the gradient of the loss by the logits.
        tied: the head is the token embedding. It was used twice, so its gradient is the sum of
            both.
    """
    d_x, d_head = linear_backward(saved.head, d_logits)
    d_x, d_final_norm = layer_norm_backward(saved.final_norm, d_x)
    d_blocks = []
    for saved_block in reversed(saved.blocks):
        d_x, d_block = block_backward(saved_block, d_x)
        d_blocks.append(d_block)
    d_x = dropout_backward(saved.dropout, d_x)
    d_token = embedding_backward(saved.token_embedding, d_x)
    d_position = embedding_backward(saved.position_embedding, d_x.sum(dim=0))
    return TransformerWeights(
        token_embedding=d_token + d_head.weight if tied else d_token,
        position_embedding=d_position,
        blocks=tuple(reversed(d_blocks)),
        final_norm=d_final_norm,
        head=None if tied else d_head.weight,
    )


@torch.no_grad()
def gradients_by_hand(model: Transformer, batch: Batch) -> dict[str, Tensor]:
    """Return the gradient of the batch's mean loss by every parameter, without autograd.

    Args:
        model: with readable or fused kernels; the forward pass here uses the readable layers.
            Neither its parameters nor their .grad are changed.
        batch: inputs, targets and mask.

    Returns:
        {parameter name: gradient}, in the order and with the names of model.named_parameters().
    """
    logits, saved = model.forward_saved(batch.inputs)
    d_logits = cross_entropy_backward(logits, batch.targets, batch.mask)
    gradients = dict(named(transformer_backward(saved, d_logits, model.config.tied)))
    return {name: gradients[name] for name, _ in model.named_parameters()}
