"""From settings to things: data, device, model, optimizer."""

from __future__ import annotations

import hashlib

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.backward.by_hand import use_backward_by_hand
from course_lib.config import TrainConfig
from course_lib.data.addition import SYMBOLS, Addition
from course_lib.data.text import TextData
from course_lib.errors import UserError
from course_lib.forward.model import Transformer
from course_lib.ranks import runtime
from course_lib.update.optimizers import SGD, AdamW


def make_data(config: TrainConfig) -> Addition | TextData:
    """Return what the task reads.

    Raises:
        UserError: if the text can't be read, is too short, or is not UTF-8.
    """
    if config.task == "addition":
        return Addition(config.digits, config.seed)
    assert config.text is not None  # TrainConfig has seen to it
    return TextData.from_file(config.text, config.context, config.seed)


def vocabulary_of(data: Addition | TextData) -> str:
    """Return the characters that the model reads, in the order of their tokens."""
    return SYMBOLS if isinstance(data, Addition) else data.characters


def data_sha256(data: Addition | TextData) -> str:
    """Return the SHA-256 of a text's tokens; additions are generated, and have none: ""."""
    if isinstance(data, Addition):
        return ""
    digest = hashlib.sha256(data.characters.encode("utf-8", "surrogatepass"))
    for part in (data.training, data.validation):
        digest.update(part.numpy().tobytes())
    return digest.hexdigest()


def check_device(device: str, ranks: int) -> None:
    """See that this machine has the device for this many ranks.

    Raises:
        UserError: if it hasn't; the sentence lists the devices that work.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind, _, index = device.partition(":")
    works = ["cpu"] + ["cuda"] * (gpus >= ranks)
    if torch.backends.mps.is_available() and ranks == 1:
        works.append("mps")
    index_works = not index or (kind == "cuda" and ranks == 1 and _is_below(index, gpus))
    if kind not in works or not index_works:
        with_ranks = f" with {ranks} ranks" if ranks > 1 else ""
        raise UserError(
            f"device {device} can't be used here{with_ranks}: use one of {', '.join(works)}."
        )


def make_device(config: TrainConfig) -> torch.device:
    """Return the device of this rank's model: of several GPUs each rank has its own.

    Raises:
        UserError: if this machine or the number of ranks doesn't allow the device asked for.
    """
    check_device(config.device, runtime.world_size())
    if config.device == "cuda":
        return torch.device("cuda", runtime.local_rank())
    return torch.device(config.device)


def make_model(config: TrainConfig, data: Addition | TextData, device: torch.device) -> Transformer:
    """Return the model with its first weights, a function of the seed alone.

    A readable one differentiates its blocks by hand too, except under autocast.
    """
    generator = torch.Generator().manual_seed(config.seed)
    model = Transformer(config.model(data.vocab_size, data.context), generator)
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    model = model.to(device=device, dtype=dtype)
    if config.kernels == "readable" and config.dtype != "bfloat16":
        use_backward_by_hand(model)
    return model


def make_optimizer(config: TrainConfig, model: nn.Module) -> Optimizer:
    """Return the optimizer; weight decay acts on matrices only, not on biases and norms."""
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    if config.optimizer == "sgd":
        return SGD(groups, lr=config.peak_lr, momentum=config.betas[0])
    return AdamW(groups, lr=config.peak_lr, betas=config.betas)


def _is_below(index: str, gpus: int) -> bool:
    return index.isdigit() and int(index) < gpus
