"""Our weights poured into torch's own modules: the independent side of the forward and backward
tests."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.config import ModelConfig
from course_lib.forward.model import Transformer
from course_lib.forward.weights import BlockWeights, TransformerWeights


def scattered(model: Transformer, seed: int = 0) -> Transformer:
    """Move every parameter off its start, so that no bias is 0 and no norm is 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            scale = 0.3 if parameter.ndim == 1 else parameter.shape[1] ** -0.5
            parameter += scale * noise.to(parameter.dtype)
    return model


def small_model(dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> Transformer:
    """Return a small model with scattered weights."""
    sizes = {"vocab_size": 13, "context": 11, "layers": 2, "width": 16, "heads": 4, **changes}
    model = Transformer(ModelConfig(**sizes), torch.Generator().manual_seed(seed))
    return scattered(model.to(dtype), seed)


def block_state(weights: BlockWeights) -> dict[str, Tensor]:
    """Return our block's weights under the names of nn.TransformerEncoderLayer, the key bias 0."""
    attention, mlp = weights.attention, weights.mlp
    width = attention.query.weight.shape[0]
    projections = (attention.query, attention.key, attention.value)
    no_bias = torch.zeros(width, dtype=attention.query.weight.dtype)
    biases = [no_bias if part.bias is None else part.bias for part in projections]
    state = {
        "self_attn.in_proj_weight": torch.cat([part.weight for part in projections]),
        "self_attn.in_proj_bias": torch.cat(biases),
    }
    for name, part in (
        ("self_attn.out_proj", attention.output),
        ("linear1", mlp.up),
        ("linear2", mlp.down),
        ("norm1", weights.norm1),
        ("norm2", weights.norm2),
    ):
        assert part.bias is not None
        state |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    return state


def torch_block(weights: BlockWeights, heads: int, x: Tensor) -> Tensor:
    """Return what nn.TransformerEncoderLayer makes of x with our weights; gradients reach them."""
    hidden, width = weights.mlp.up.weight.shape
    layer = nn.TransformerEncoderLayer(
        width, heads, hidden, 0.0, "gelu", batch_first=True, norm_first=True, dtype=x.dtype
    )
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
    call = {"src_mask": mask, "is_causal": True}
    return torch.func.functional_call(layer, block_state(weights), (x,), call)


def torch_forward(weights: TransformerWeights, heads: int, tokens: Tensor) -> Tensor:
    """Return the logits of the same model made of torch's own; gradients reach our weights."""
    x = F.embedding(tokens, weights.token_embedding)
    x = x + weights.position_embedding[: tokens.shape[1]]
    for block in weights.blocks:
        x = torch_block(block, heads, x)
    x = F.layer_norm(x, x.shape[-1:], *weights.final_norm)
    head = weights.token_embedding if weights.head is None else weights.head
    return F.linear(x, head)
