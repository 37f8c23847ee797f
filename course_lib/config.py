"""Settings of a model and of a run: plain frozen dataclasses, checked when they are made.

Every stage of the loop reads its sizes from here. No torch in this module, so that the command
line can refuse a wrong setting before it spends a second on imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.errors import UserError

KERNELS = ("readable", "fused")
TASKS = ("addition", "text")
SCHEDULES = ("cosine", "constant")
OPTIMIZERS = ("adamw", "sgd")
DTYPES = ("float32", "float64", "bfloat16")
DEVICES = ("cpu", "cuda", "mps")
MAX_DIGITS = 6


@dataclass(frozen=True)
class ModelConfig:
    """The sizes of a Transformer.

    Args:
        vocab_size: V, how many different tokens there are.
        context: T, the most tokens that the model reads at once.
        layers: how many blocks.
        width: D, the length of the vector that stands for a token.
        heads: H, attention heads; width must be a multiple of it.
        hidden: F, the MLP's inner width; 0 means 4 x width.
        dropout: the share of activations set to zero while training.
        tied: the output head uses the token embedding's weights.
        kernels: "readable", every layer hand-written, or "fused", torch's own layer_norm, gelu and
            SDPA.

    Raises:
        UserError: a size below 1, a width that the heads don't divide, a dropout outside [0, 1), an
            unknown kernel setting.
    """

    vocab_size: int
    context: int
    layers: int = 2
    width: int = 64
    heads: int = 4
    hidden: int = 0
    dropout: float = 0.0
    tied: bool = False
    kernels: str = "readable"

    def __post_init__(self) -> None:
        if self.hidden == 0:
            object.__setattr__(self, "hidden", 4 * self.width)
        for name in ("vocab_size", "context", "layers", "width", "heads", "hidden"):
            _at_least(name, getattr(self, name), 1)
        if self.width % self.heads:
            valid = [h for h in range(1, self.width + 1) if self.width % h == 0]
            raise UserError(
                f"heads is {self.heads}, which does not divide the width {self.width}: "
                f"use one of {_join(valid)}."
            )
        _in_range("dropout", self.dropout, 0.0, 1.0)
        _one_of("kernels", self.kernels, KERNELS)

    @property
    def head_width(self) -> int:
        """K, the width of one head."""
        return self.width // self.heads


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run; two runs with equal settings are the same run.

    Args:
        task: "addition" or "text".
        text: the text file to learn, for the task "text".
        digits: how many digits each number of an addition has, 1 to 6.
        steps: how many updates.
        batch_size: rows in the global batch, over all ranks together.
        grad_accum_steps: in how many parts each rank works through its rows before it updates.
        seed: decides the initial weights and every batch.
        optimizer: "adamw" or "sgd".
        peak_lr: the learning rate at the end of the warm-up.
        final_lr: the learning rate at the last step (for the schedule "cosine").
        warmup_steps: over how many steps the rate climbs to its peak, linearly.
        schedule: "cosine" from peak to final rate, or "constant".
        betas: AdamW's two decay rates; SGD takes the first as its momentum.
        weight_decay: decoupled weight decay (on matrices only, not on biases and norms).
        clip_norm: the largest global gradient norm; 0 means no clipping.
        dtype: "float32", "float64", or "bfloat16" (autocast; the weights stay float32).
        device: "cpu", "cuda" or "mps".
        eval_every: steps between two evaluations; 0 means only at the end.
        context: characters that the model reads at once, for the task "text".
        layers, width, heads, dropout, tied, kernels: as in ModelConfig.

    Raises:
        UserError: the first setting that is wrong, with the valid values and the mend.
    """

    task: str = "addition"
    text: str | None = None
    digits: int = 3
    steps: int = 500
    batch_size: int = 256
    grad_accum_steps: int = 1
    seed: int = 0
    optimizer: str = "adamw"
    peak_lr: float = 3e-3
    final_lr: float = 0.0
    warmup_steps: int = 60
    schedule: str = "cosine"
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    dtype: str = "float32"
    device: str = "cpu"
    eval_every: int = 100
    context: int = 64
    layers: int = 2
    width: int = 64
    heads: int = 4
    dropout: float = 0.0
    tied: bool = False
    kernels: str = "readable"

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        _one_of("task", self.task, TASKS)
        if self.task == "text" and not self.text:
            raise UserError("The task text needs a file to learn: give one with --text FILE.")
        if not _is_int(self.digits) or not 1 <= self.digits <= MAX_DIGITS:
            raise UserError(f"digits is {self.digits}: use a whole number from 1 to {MAX_DIGITS}.")
        for name in ("steps", "batch_size", "grad_accum_steps", "context"):
            _at_least(name, getattr(self, name), 1)
        for name in ("seed", "warmup_steps", "eval_every"):
            _at_least(name, getattr(self, name), 0)
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("dtype", self.dtype, DTYPES)
        _one_of("device", self.device.partition(":")[0], DEVICES)
        for name in ("peak_lr", "final_lr", "weight_decay", "clip_norm"):
            _in_range(name, getattr(self, name), 0.0, float("inf"))
        if len(self.betas) != 2:
            raise UserError(f"betas is {self.betas}: give two numbers, such as 0.9 and 0.99.")
        for beta in self.betas:
            _in_range("betas", beta, 0.0, 1.0)
        self.model(vocab_size=1, context=self.context)

    def model(self, vocab_size: int, context: int) -> ModelConfig:
        """Return the model's sizes for data with this vocabulary and this many tokens a row."""
        return ModelConfig(
            vocab_size=vocab_size,
            context=context,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            dropout=self.dropout,
            tied=self.tied,
            kernels=self.kernels,
        )

    def with_changes(self, **changes: Any) -> TrainConfig:
        """Return a copy with some settings changed, checked again."""
        return replace(self, **changes)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _at_least(name: str, value: Any, least: int) -> None:
    if not _is_int(value) or value < least:
        raise UserError(f"{name} is {value}: use a whole number of at least {least}.")


def _in_range(name: str, value: Any, low: float, high: float) -> None:
    if not isinstance(value, int | float) or not low <= value < high:
        span = f"from {low:g} up" if high == float("inf") else f"from {low:g} to below {high:g}"
        raise UserError(f"{name} is {value}: use a number {span}.")


def _one_of(name: str, value: Any, valid: Sequence[str]) -> None:
    if value not in valid:
        raise UserError(f"{name} is {value!r}: use one of {_join(valid)}.")


def _join(values: Sequence[Any]) -> str:
    return ", ".join(str(value) for value in values)


# 3-digit addition: 0 % to over 99 % exact match in about 20 s on two cores.
ADDITION = TrainConfig(task="addition", digits=3, steps=500, batch_size=256, peak_lr=3e-3)
# Longer sums have more carries to learn: steps by digits, where they differ.
ADDITION_STEPS = {4: 1000, 5: 2000, 6: 3000}

# A character model of a text: 4 layers, 4 heads, width 128, 64 characters at once.
TEXT_SETTINGS: dict[str, Any] = {
    "task": "text",
    "steps": 1900,
    "batch_size": 12,
    "peak_lr": 4e-3,
    "final_lr": 1e-4,
    "warmup_steps": 100,
    "weight_decay": 0.1,
    "betas": (0.9, 0.99),
    "eval_every": 500,
    "context": 64,
    "layers": 4,
    "width": 128,
    "heads": 4,
}


def preset(task: str, **changes: Any) -> TrainConfig:
    """Return the settings that a task starts from, with the given ones changed.

    Raises:
        UserError: an unknown task, a text task without a file, or any setting that is wrong.
    """
    _one_of("task", task, TASKS)
    if task == "addition":
        steps = ADDITION_STEPS.get(changes.get("digits", ADDITION.digits), ADDITION.steps)
        return ADDITION.with_changes(**{"steps": steps, **changes})
    return TrainConfig(**{**TEXT_SETTINGS, **changes})
