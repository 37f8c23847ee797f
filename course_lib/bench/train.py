"""`course bench train`: our training step against a plain PyTorch one of the same size.

Two model sizes, the addition model and the 4-layer, width-128 text model. Three forms of ours:

- fused: torch's layer_norm, gelu and attention kernels, autograd, our AdamW;
- readable: every layer hand-written, the blocks' backward passes too (backward/by_hand.py), as
  `course train --kernels readable` runs, our AdamW;
- by hand: the same without any autograd (backward/model.py);
- autograd: every layer hand-written, differentiated by autograd.

The peer is nn.TransformerEncoderLayer with autograd and torch's fused AdamW. All take one step in
turn, round after round, so that a busy moment of the machine hits all alike; medians are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from course_lib.backward.by_hand import use_backward_by_hand
from course_lib.backward.model import gradients_by_hand
from course_lib.bench._plain_encoder import PlainTransformer, plain_step
from course_lib.bench.result import BenchResult
from course_lib.config import ADDITION, TEXT_SETTINGS, ModelConfig
from course_lib.data.addition import Addition
from course_lib.data.batch import Batch
from course_lib.data.text import TextData
from course_lib.errors import UserError
from course_lib.forward.model import Transformer
from course_lib.loss import cross_entropy
from course_lib.update.optimizers import AdamW

Step = Callable[[], None]
WARMUP_ROUNDS = 5
VOCAB_SIZE_OF_A_TEXT = 65


def run(rounds: int = 40) -> BenchResult:
    """Measure training steps in turn.

    Args:
        rounds: how many steps of each go into the medians, at least 5.

    Returns:
        One row for each comparison; `speedup` of the whole is the fused setting's smaller one.

    Raises:
        UserError: fewer than 5 rounds.
    """
    if rounds < 5:
        raise UserError(f"rounds is {rounds}: use a whole number of at least 5.")
    rows = []
    for name, (config, batch) in cases().items():
        times_s = in_turn(contenders(config, batch), rounds)
        tokens = batch.inputs.numel()
        rows += [_row(name, ours, times_s, tokens) for ours in OURS]
    least = {ours: min(row["speedup"] for row in rows if row["ours"] == ours) for ours in OURS}
    return BenchResult(
        name="train",
        speedup=least["fused"],
        rows=rows,
        notes=[
            f"Tokens per second against plain PyTorch: fused at least {least['fused']:.2f} times, "
            f"every layer hand-written at least {least['readable']:.2f} times; "
            f"medians of {rounds} steps in turn, {torch.get_num_threads()} threads."
        ],
    )


OURS = ("fused", "readable", "by hand", "autograd")


def cases() -> dict[str, tuple[ModelConfig, Batch]]:
    """Return the two model sizes, each with a batch of its task."""
    addition, text = Addition(ADDITION.digits), _text()
    settings = TEXT_SETTINGS
    text_config = ModelConfig(
        text.vocab_size,
        text.context,
        layers=settings["layers"],
        width=settings["width"],
        heads=settings["heads"],
    )
    return {
        "addition": (
            ADDITION.model(addition.vocab_size, addition.context),
            addition.batch(0, ADDITION.batch_size),
        ),
        "text": (text_config, text.batch(0, settings["batch_size"])),
    }


def _text() -> TextData:
    """Return noise with as many different characters as an English play: speed needs no sense."""
    points = torch.randint(
        VOCAB_SIZE_OF_A_TEXT, (20_000,), generator=torch.Generator().manual_seed(0)
    )
    return TextData("".join(chr(32 + point) for point in points.tolist()), TEXT_SETTINGS["context"])


def contenders(config: ModelConfig, batch: Batch) -> dict[str, Step]:
    """Return one training step of each form, all on models of the same size."""
    plain = PlainTransformer(config)
    plain_adamw = torch.optim.AdamW(plain.parameters(), fused=True)
    fused = Transformer(replace(config, kernels="fused"))
    readable, by_hand, autograd = (Transformer(config) for _ in range(3))
    use_backward_by_hand(readable)
    adamw = {model: AdamW(model.parameters()) for model in (fused, readable, by_hand, autograd)}
    return {
        "plain": lambda: plain_step(plain, plain_adamw, batch),
        "fused": lambda: autograd_step(fused, adamw[fused], batch),
        "readable": lambda: autograd_step(readable, adamw[readable], batch),
        "by hand": lambda: by_hand_step(by_hand, adamw[by_hand], batch),
        "autograd": lambda: autograd_step(autograd, adamw[autograd], batch),
    }


def autograd_step(model: Transformer, optimizer: AdamW, batch: Batch) -> None:
    """Do forward, loss, backward by autograd, and update."""
    cross_entropy(model(batch.inputs), batch.targets, batch.mask).backward()
    optimizer.step()
    optimizer.zero_grad()


def by_hand_step(model: Transformer, optimizer: AdamW, batch: Batch) -> None:
    """Do forward, backward by hand, and update."""
    gradients = gradients_by_hand(model, batch)
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[name]
    optimizer.step()
    optimizer.zero_grad()


def in_turn(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """Time one step of each in turn, round after round; return the medians in seconds."""
    times_s: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(WARMUP_ROUNDS + rounds):
        for name, step in steps.items():
            started_s = time.perf_counter()
            step()
            times_s[name].append(time.perf_counter() - started_s)
    return {name: statistics.median(times[WARMUP_ROUNDS:]) for name, times in times_s.items()}


def _row(case: str, ours: str, times_s: dict[str, float], tokens: int) -> dict[str, Any]:
    return {
        "model": case,
        "ours": ours,
        "ours_time_ms": round(1e3 * times_s[ours], 3),
        "plain_time_ms": round(1e3 * times_s["plain"], 3),
        "ours_tokens_per_s": round(tokens / times_s[ours]),
        "plain_tokens_per_s": round(tokens / times_s["plain"]),
        "speedup": round(times_s["plain"] / times_s[ours], 3),
    }
