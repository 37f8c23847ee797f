"""`course bench adamw`: our AdamW on one flat buffer against torch's own, foreach and fused.

The parameters are those of the course's models; each optimizer has a copy of its own, and they
take their steps in turn, so that a disturbance of the machine meets all of them.
"""

from __future__ import annotations

import copy
import statistics
import time
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.bench.result import BenchResult
from course_lib.config import ModelConfig
from course_lib.forward.model import Transformer
from course_lib.update.optimizers import AdamW

MODELS = {
    "addition": ModelConfig(vocab_size=13, context=11, layers=2, width=64),
    "text": ModelConfig(vocab_size=65, context=64, layers=4, width=128),
    "width 256": ModelConfig(vocab_size=65, context=64, layers=4, width=256),
}
SETTINGS: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}


def run(steps: int = 60) -> BenchResult:
    """Measure one step of each optimizer, for each model.

    Args:
        steps: how often each takes its step; the medians are compared.

    Returns:
        One row for each model; the speedup is the smallest against torch's foreach.
    """
    rows = [_measure(name, config, steps) for name, config in MODELS.items()]
    return BenchResult(
        name="adamw",
        speedup=min(row["speedup_over_foreach"] for row in rows),
        rows=rows,
        notes=[
            "The peer is torch.optim.AdamW(foreach=True), for the model with the smallest speedup; "
            "torch's fused one is a single kernel written in C++, beside it for comparison."
        ],
    )


def _measure(name: str, config: ModelConfig, steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Transformer(config)
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    copies = {kind: _copy_with_gradients(model) for kind in ("ours", "foreach", "fused")}
    optimizers: dict[str, Optimizer] = {
        "ours": AdamW(copies["ours"].parameters(), **SETTINGS),
        "foreach": torch.optim.AdamW(copies["foreach"].parameters(), foreach=True, **SETTINGS),
        "fused": torch.optim.AdamW(copies["fused"].parameters(), fused=True, **SETTINGS),
    }
    times_s: dict[str, list[float]] = {kind: [] for kind in optimizers}
    for step in range(steps + 3):
        for kind, optimizer in optimizers.items():
            started_s = time.perf_counter()
            optimizer.step()
            if step >= 3:  # the first steps make their state
                times_s[kind].append(time.perf_counter() - started_s)
    median_s = {kind: statistics.median(values) for kind, values in times_s.items()}
    return {
        "model": name,
        "parameters": model.parameter_count(),
        **{f"{kind}_time_s": round(value, 7) for kind, value in median_s.items()},
        "speedup_over_foreach": round(median_s["foreach"] / median_s["ours"], 3),
        "speedup_over_fused": round(median_s["fused"] / median_s["ours"], 3),
    }


def _copy_with_gradients(model: nn.Module) -> nn.Module:
    clone = copy.deepcopy(model)
    for theirs, param in zip(model.parameters(), clone.parameters(), strict=True):
        assert theirs.grad is not None
        param.grad = theirs.grad.clone()
    return clone
