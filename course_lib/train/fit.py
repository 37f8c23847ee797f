"""The run: steps, evaluations, checkpoints; the same alone, in `launch` and under torchrun.

`fit` draws and prints nothing. It tells what happens by events (events.py), to a function that
the caller gives, and to the metrics file of the run's folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.checkpoint import (
    Checkpoint,
    parameters_sha256,
    plain_config,
    restore_model,
    save_checkpoint,
)
from course_lib.config import TrainConfig
from course_lib.data.addition import Addition
from course_lib.data.sharding import rows_per_rank
from course_lib.data.text import TextData
from course_lib.errors import UserError
from course_lib.ranks import runtime
from course_lib.sync.data_parallel import Flat, GradientSync, NoSync, check_replicas
from course_lib.train.build import (
    data_sha256,
    make_data,
    make_device,
    make_model,
    make_optimizer,
    vocabulary_of,
)
from course_lib.train.evaluate import Score, evaluate, samples
from course_lib.train.events import (
    CheckpointSaved,
    Evaluated,
    Event,
    RunEnded,
    RunStarted,
    StepDone,
)
from course_lib.train.folder import (
    CHECKPOINT,
    METRICS,
    MetricsFile,
    check_same_run,
    prepare_folder,
    saved_run,
)
from course_lib.train.step import learning_rate, train_step
from course_lib.train.stop import StopSignal

OnEvent = Callable[[Event], None]


@dataclass
class Run:
    """A run and everything it holds: what `fit` returns.

    history: all events so far; result: the last of them.
    """

    config: TrainConfig
    data: Addition | TextData
    model: nn.Module
    optimizer: Optimizer
    sync: GradientSync
    step: int = 0
    history: list[Event] = field(default_factory=list)

    @property
    def result(self) -> RunEnded:
        """How the run ended."""
        last = self.history[-1]
        assert isinstance(last, RunEnded)
        return last


def fit(
    config: TrainConfig,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    stop_after: int | None = None,
    on_event: OnEvent | None = None,
    stop_file: Path | None = None,
) -> Run:
    """Train a model as `config` says, on this process's ranks; a collective call.

    Ctrl-C ends the run after the step in which any rank heard of it, with a checkpoint.

    Args:
        config: all that decides the run; of a resumed run, what it was started with.
        out: a folder for checkpoint and metrics; None writes nothing.
        resume: go on from the checkpoint in `out`.
        stop_after: end once this many steps are done, and leave the schedule as it is.
        on_event: called with each event, on rank 0 only.
        stop_file: a file that asks for a stop once it exists.

    Returns:
        The run: model, optimizer, history of events (on rank 0), result.

    Raises:
        UserError: if the batch can't be dealt out to the ranks, the folder can't be used, or the
            checkpoint is none or another model's.
        FloatingPointError: if the training diverged; the last checkpoint stays.
        RuntimeError: if the replicas are not the same to the bit at the end.
    """
    rows_per_rank(config.batch_size, runtime.world_size())
    if stop_after is not None and stop_after < 1:
        raise UserError(f"stop-after is {stop_after}: use a whole number of at least 1.")
    if out is None and resume:
        raise UserError("a run is resumed from its folder: give it by --out.")
    folder = None if out is None else Path(out)
    if folder is not None and runtime.rank() == 0:
        prepare_folder(folder, resume)
    run = start_run(config)
    notes = _resume(run, folder) if folder is not None and resume else ()
    log = _Log(run, folder, on_event)
    try:
        with StopSignal(stop_file) as stop:
            log.tell(_started(run, notes))
            _train(run, log, stop, min(config.steps, stop_after or config.steps))
    finally:
        log.close()
    return run


def start_run(config: TrainConfig) -> Run:
    """Make data, model, optimizer and sync for this rank; the model starts the same on all."""
    data = make_data(config)
    model = make_model(config, data, make_device(config))
    sync = Flat(model) if runtime.world_size() > 1 else NoSync()
    return Run(config, data, model, make_optimizer(config, model), sync)


def _train(run: Run, log: _Log, stop: StopSignal, last_step: int) -> None:
    """Repeat the step until `last_step` or a stop; leave a checkpoint and the result."""
    started_s, first_step = time.perf_counter(), run.step
    step_time_s = 0.0
    interrupted = False
    while run.step < last_step and not interrupted:
        step_time_s += _step(run, log)
        if run.config.eval_every and run.step % run.config.eval_every == 0:
            log.evaluate()
            log.save()
        # Whoever was asked to stop tells all, or the others would wait for it in the next step.
        interrupted = run.sync.mean(float(stop.requested()), 1.0) > 0
    log.save()
    check_replicas(run.model)
    if not interrupted:
        log.evaluate()
    tokens = (run.step - first_step) * run.config.batch_size * run.data.context
    rate = tokens / step_time_s if step_time_s else 0.0
    log.tell(_ended(run, log.score, interrupted, time.perf_counter() - started_s, rate))


def _step(run: Run, log: _Log) -> float:
    """Do one step, tell it, and return the seconds that it took."""
    config = run.config
    started_s = time.perf_counter()
    if config.dropout:  # the masks depend on the step alone, so a resumed run draws the same ones
        torch.manual_seed(hash((config.seed, run.step, runtime.rank())))
    report = train_step(run.model, run.data, run.step, run.optimizer, run.sync, config)
    loss = run.sync.mean(report.loss_sum, report.counted)
    time_s = time.perf_counter() - started_s
    rate = config.batch_size * run.data.context / time_s
    run.step += 1
    log.tell(StepDone(run.step, loss, learning_rate(config, run.step - 1), report.grad_norm, rate))
    return time_s


def _ended(
    run: Run, score: Score, interrupted: bool, time_s: float, tokens_per_s: float
) -> RunEnded:
    finished = run.step == run.config.steps
    return RunEnded(
        task=run.config.task,
        ranks=runtime.world_size(),
        step=run.step,
        steps=run.config.steps,
        parameters=_count(run.model),
        ended_by="finished" if finished else "interrupt" if interrupted else "stop_after",
        exact_match=score.exact_match,
        heldout_problems=score.heldout_problems,
        validation_loss=score.validation_loss,
        time_s=time_s,
        tokens_per_s=tokens_per_s,
        parameters_sha256=parameters_sha256(run.model),
        samples=() if interrupted else samples(run.model, run.data),
    )


class _Log:
    """Tells events to the caller and the metrics file, on rank 0; evaluates and saves."""

    def __init__(self, run: Run, folder: Path | None, on_event: OnEvent | None) -> None:
        self.run, self.folder, self.on_event = run, folder, on_event
        self.score = Score()
        self.scored_at = self.saved_at = -1
        self.file = None
        if folder is not None and runtime.rank() == 0:
            self.file = MetricsFile(folder / METRICS, run.step)

    def tell(self, event: Event) -> None:
        self.run.history.append(event)
        if runtime.rank() == 0:
            if self.file is not None:
                self.file.write(event)
            if self.on_event is not None:
                self.on_event(event)

    def evaluate(self) -> None:
        """Try the model, unless that was done after this very step."""
        if self.scored_at == self.run.step:
            return
        self.scored_at = self.run.step
        self.score = evaluate(self.run.model, self.run.data, self.run.sync)
        self.tell(Evaluated(self.run.step, *self.score))

    def save(self) -> None:
        """Write the checkpoint, unless that was done after this very step."""
        if self.saved_at == self.run.step or self.folder is None or runtime.rank() != 0:
            return
        self.saved_at = self.run.step
        path = self.folder / CHECKPOINT
        save_checkpoint(path, _checkpoint_of(self.run))
        self.tell(CheckpointSaved(self.run.step, str(path)))

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _checkpoint_of(run: Run) -> Checkpoint:
    return Checkpoint(
        config=plain_config(run.config),
        step=run.step,
        model=run.model.state_dict(),
        optimizer=run.optimizer.state_dict(),
        ranks=runtime.world_size(),
        threads_per_rank=torch.get_num_threads(),
        vocabulary=vocabulary_of(run.data),
        data_sha256=data_sha256(run.data),
    )


def _resume(run: Run, folder: Path) -> tuple[str, ...]:
    """Put the state of the folder's checkpoint into the run; return what the reader should know."""
    checkpoint, saved = saved_run(folder)
    path = folder / CHECKPOINT
    given = asdict(run.config)
    if checkpoint.data_sha256 == data_sha256(run.data):
        given.pop("text")  # the same text under another name
    elif saved.text == run.config.text:
        raise UserError(
            f"{saved.text} has changed since the run in {folder} was started: "
            "give the text as it was, or start a new run by another --out."
        )
    check_same_run(folder, saved, given)
    restore_model(run.model, checkpoint, path)
    run.optimizer.load_state_dict(checkpoint.optimizer)
    run.step = checkpoint.step
    if checkpoint.ranks != runtime.world_size():
        return (
            f"the run was saved on {checkpoint.ranks} ranks and goes on with "
            f"{runtime.world_size()}: equal up to rounding, not bit for bit",
        )
    torch.set_num_threads(checkpoint.threads_per_rank)
    return ()


def _started(run: Run, notes: tuple[str, ...]) -> RunStarted:
    return RunStarted(
        task=run.config.task,
        ranks=runtime.world_size(),
        parameters=_count(run.model),
        step=run.step,
        steps=run.config.steps,
        device=str(next(run.model.parameters()).device),
        dtype=run.config.dtype,
        threads_per_rank=torch.get_num_threads(),
        notes=notes,
    )


def _count(model: nn.Module) -> int:
    return sum(param.numel() for param in model.parameters())
