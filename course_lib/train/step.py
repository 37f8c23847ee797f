"""One training step: data -> forward -> loss -> backward -> sync -> update, on 1 rank or on P.

This is the loop's body that the whole course is about; each stage is a line or two here and a room
of its own in the package.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.config import TrainConfig
from course_lib.data.batch import Batch
from course_lib.data.sharding import shard
from course_lib.loss import cross_entropy_sum
from course_lib.ranks import runtime
from course_lib.sync.data_parallel import GradientSync
from course_lib.update.clipping import clip_grad_norm
from course_lib.update.schedule import cosine_schedule

STAGES = ("data", "forward", "loss", "backward", "sync", "update")

Stage = Callable[[str], AbstractContextManager[None]]


class BatchSource(Protocol):
    """Where rows come from: the global batch of a step, the same on every rank."""

    def batch(self, step: int, batch_size: int) -> Batch:
        """Return the global batch of one step."""


class StepReport(NamedTuple):
    """What one step leaves for the log: this rank's losses added up, and the common norm.

    loss_sum: over the positions that counted on this rank, in nats; counted: how many.
    grad_norm: of the synchronised gradient, before clipping.
    """

    loss_sum: float
    counted: int
    grad_norm: float


def untimed(stage: str) -> AbstractContextManager[None]:
    """Mark a stage of the step, and do nothing about it."""
    return nullcontext()


def train_step(
    model: nn.Module,
    data: BatchSource,
    step: int,
    optimizer: Optimizer,
    sync: GradientSync,
    config: TrainConfig,
    stage: Stage = untimed,
) -> StepReport:
    """Do one step: every rank reads its rows, all agree on one gradient, each updates the same way.

    Args:
        model: this rank's replica; its parameters are changed.
        data: where the global batch comes from.
        step: steps done before, so 0 for the first.
        optimizer: over the model's parameters; its learning rate is set from the schedule.
        sync: NoSync() on one rank, Flat(model) on several.
        config: batch size, accumulation, clipping, schedule and dtype.
        stage: called with each stage's name; `StageClock().stage` measures them.

    Raises:
        FloatingPointError: if the gradients' norm is not finite; nothing was updated then.
    """
    with stage("data"):
        batch = data.batch(step, config.batch_size)
        rows = shard(batch, runtime.rank(), runtime.world_size()).to(device_of(model))
        counted, loss_sum = int(rows.mask.sum()), torch.zeros((), device=device_of(model))
        scale = sync.loss_scale(counted) / max(counted, 1)  # of a sum over this rank's positions
    for part, last in micro_batches(rows, config.grad_accum_steps):
        with nullcontext() if last else sync.no_sync():
            with stage("forward"), autocast(config.dtype, device_of(model)):
                logits = model(part.inputs)
            with stage("loss"):
                loss = cross_entropy_sum(logits, part.targets, part.mask).total
            with stage("backward"):
                (loss * scale).backward()
        loss_sum += loss.detach()
    with stage("sync"):
        sync.finish()
    with stage("update"):
        norm = clip_grad_norm(model.parameters(), config.clip_norm or float("inf"))
        set_learning_rate(optimizer, learning_rate(config, step))
        optimizer.step()
        optimizer.zero_grad()
    return StepReport(loss_sum.item(), counted, norm)


def micro_batches(rows: Batch, parts: int) -> Iterator[tuple[Batch, bool]]:
    """Cut a rank's rows into at most `parts` micro-batches; yield each, and whether it is the last.

    A rank with fewer rows than parts has fewer micro-batches; one without rows has one, empty.
    """
    size = max(1, -(-len(rows.inputs) // parts))
    starts = range(0, max(1, len(rows.inputs)), size)
    for start in starts:
        yield rows.rows(slice(start, start + size)), start == starts[-1]


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the schedule's rate for a step, counted from 0."""
    warmup = min(config.warmup_steps, config.steps - 1)
    if config.schedule == "constant":
        return config.peak_lr * min(1.0, (step + 1) / (warmup + 1))
    low = min(config.final_lr, config.peak_lr)
    return cosine_schedule(step, config.steps, config.peak_lr, warmup, low)


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """Give every group of parameters this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def autocast(dtype: str, device: torch.device) -> AbstractContextManager[None]:
    """Return bfloat16 autocast for a forward pass where it was asked for, else nothing."""
    if dtype == "bfloat16":
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def device_of(model: nn.Module) -> torch.device:
    """Return where a model's parameters live."""
    return next(model.parameters()).device


class StageClock:
    """Measures the seconds of each stage, added up over steps: `train_step(..., clock.stage)`.

    On a GPU each mark waits until the work before it is done, or the seconds of one stage would be
    counted in another.
    """

    def __init__(self) -> None:
        self.time_s: dict[str, float] = defaultdict(float)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the seconds of a block to `time_s[name]`."""
        _wait_for_device()
        started_s = time.perf_counter()
        try:
            yield
        finally:
            _wait_for_device()
            self.time_s[name] += time.perf_counter() - started_s


def _wait_for_device() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
