"""Our weights poured into torch's own modules: the independent side of the forward and backward
tests."""

from typing import Any

import torch
from torch import Tensor, nn

from course_lib.config import ModelConfig
from course_lib.forward.model import Transformer
from course_lib.forward.weights import BlockWeights, NormWeights, TransformerWeights


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


def torch_norm(weights: NormWeights) -> nn.LayerNorm:
    norm = nn.LayerNorm(weights.weight.numel(), dtype=weights.weight.dtype)
    norm.load_state_dict({"weight": weights.weight, "bias": weights.bias})
    return norm


def torch_block(weights: BlockWeights, heads: int) -> nn.TransformerEncoderLayer:
    """Return nn.TransformerEncoderLayer with our block's weights (and a key bias of 0)."""
    attention, mlp = weights.attention, weights.mlp
    width, hidden = attention.query.weight.shape[0], mlp.up.weight.shape[0]
    layer = nn.TransformerEncoderLayer(
        width,
        heads,
        hidden,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=True,
        dtype=mlp.up.weight.dtype,
    )
    projections = (attention.query, attention.key, attention.value)
    biases = [torch.zeros(width) if part.bias is None else part.bias for part in projections]
    layer.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([part.weight for part in projections]),
            "self_attn.in_proj_bias": torch.cat(biases),
            "self_attn.out_proj.weight": attention.output.weight,
            "self_attn.out_proj.bias": attention.output.bias,
            "linear1.weight": mlp.up.weight,
            "linear1.bias": mlp.up.bias,
            "linear2.weight": mlp.down.weight,
            "linear2.bias": mlp.down.bias,
            "norm1.weight": weights.norm1.weight,
            "norm1.bias": weights.norm1.bias,
            "norm2.weight": weights.norm2.weight,
            "norm2.bias": weights.norm2.bias,
        }
    )
    return layer


def torch_forward(weights: TransformerWeights, heads: int, tokens: Tensor) -> Tensor:
    """Return the logits of the same model made of torch's own modules."""
    count = tokens.shape[1]
    mask = nn.Transformer.generate_square_subsequent_mask(
        count, dtype=weights.token_embedding.dtype
    )
    x = nn.Embedding.from_pretrained(weights.token_embedding)(tokens)
    x = x + weights.position_embedding[:count]
    for block in weights.blocks:
        x = torch_block(block, heads)(x, src_mask=mask, is_causal=True)
    x = torch_norm(weights.final_norm)(x)
    head = weights.token_embedding if weights.head is None else weights.head
    return x @ head.T
