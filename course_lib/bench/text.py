"""`course bench text`: our run on a text against a plain script, same model size, same machine.

Both train a character model of 4 layers, 4 heads, width 128 and context 64. They are measured in
turn, seed by seed; the seconds are those of the steps. Both are scored by the same function on the
whole last tenth of the text, in windows of 64 characters that don't overlap.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib.bench._plain_text import STEPS, PlainGPT, train_plain
from course_lib.bench.result import BenchResult
from course_lib.config import preset
from course_lib.data.text import TextData
from course_lib.errors import UserError
from course_lib.sync.data_parallel import NoSync
from course_lib.train.evaluate import evaluate
from course_lib.train.fit import fit


def run(text: Path | None = None, seeds: int = 3, steps_share: float = 1.0) -> BenchResult:
    """Compare our `course train --task text` with the plain loop.

    Args:
        text: the file to learn, UTF-8.
        seeds: how many seeds, from 0 on.
        steps_share: a share of both runs' steps, for a trial.

    Returns:
        One row for each seed, seconds and validation losses of both.

    Raises:
        UserError: if no text is given or it can't be read, or seeds is below 1.
    """
    if text is None:
        raise UserError("The bench text needs a file to learn: give one by --text FILE.")
    if seeds < 1:
        raise UserError(f"seeds is {seeds}: use a whole number of at least 1.")
    rows = [_one_seed(text, seed, steps_share) for seed in range(seeds)]
    ours, plain = ([row[f"{side}_time_s"] for row in rows] for side in ("ours", "plain"))
    smallest = min(row["loss_lower_by"] for row in rows)
    return BenchResult(
        name="text",
        speedup=statistics.median(plain) / statistics.median(ours),
        rows=rows,
        notes=[
            f"Ours ends at a validation loss at least {smallest:.3f} lower, over {seeds} seeds; "
            f"{torch.get_num_threads()} threads."
        ],
    )


def _one_seed(text: Path, seed: int, steps_share: float) -> dict[str, Any]:
    config = preset("text", text=str(text), seed=seed, kernels="fused", eval_every=0)
    config = config.with_changes(steps=max(1, round(config.steps * steps_share)))
    data = TextData.from_file(text, config.context, seed)
    plain_steps = max(1, round(STEPS * steps_share))
    plain, plain_time_s = train_plain(data.training, data.vocab_size, seed, plain_steps)
    plain_loss = validation_loss(plain, data)
    ended = fit(config).result
    if ended.validation_loss is None:  # Ctrl-C ends a run in good order, and a bench with it
        raise KeyboardInterrupt
    tokens = ended.steps * config.batch_size * config.context
    return {
        "seed": seed,
        "plain_time_s": round(plain_time_s, 2),
        "ours_time_s": round(tokens / ended.tokens_per_s, 2),
        "plain_validation_loss": round(plain_loss, 4),
        "ours_validation_loss": round(ended.validation_loss, 4),
        "loss_lower_by": round(plain_loss - ended.validation_loss, 4),
        "plain_parameters": sum(param.numel() for param in PlainGPT(data.vocab_size).parameters()),
        "ours_parameters": ended.parameters,
    }


def validation_loss(model: nn.Module, data: TextData) -> float:
    """Return the mean loss per character of the text's last tenth, in nats."""
    loss = evaluate(model, data, NoSync()).validation_loss
    assert loss is not None
    return loss
