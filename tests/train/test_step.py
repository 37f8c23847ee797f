"""One step against a plain loop of torch's own, alone and on ranks."""

import inspect

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from course_lib.config import preset
from course_lib.data.addition import Addition
from course_lib.data.batch import Batch
from course_lib.ranks import launch
from course_lib.sync.data_parallel import Flat, NoSync, differing_replicas
from course_lib.train.build import make_optimizer
from course_lib.train.fit import start_run
from course_lib.train.step import (
    STAGES,
    StageClock,
    learning_rate,
    micro_batches,
    train_step,
)

SMALL = preset("addition", digits=1, batch_size=12, steps=8, warmup_steps=3, dtype="float64")


class Ragged:
    """Rows whose loss counts unequal numbers of positions: row i counts i + 1 of them."""

    vocab_size, context = 13, 5

    def batch(self, step: int, batch_size: int) -> Batch:
        batch = Addition(1, seed=1).batch(step, batch_size)
        counted = torch.arange(batch_size)[:, None] % 5
        return batch._replace(mask=torch.arange(5)[None, :] <= counted)


def plain_loop(config, data, steps: int) -> nn.Module:
    """The same training by autograd, F.cross_entropy and torch's own AdamW."""
    model = start_run(config).model
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=config.betas)
    for step in range(steps):
        batch = data.batch(step, config.batch_size)
        loss = F.cross_entropy(model(batch.inputs)[batch.mask], batch.targets[batch.mask])
        optimizer.zero_grad()
        loss.backward()
        # Not torch's clip_grad_norm_: it adds 1e-6 to the norm, and this test is sharper than that.
        norm = torch.cat([p.grad.flatten() for p in params]).norm()
        for param in params:
            param.grad *= min(1.0, config.clip_norm / norm.item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        optimizer.step()
    return model


def our_steps(config, steps: int) -> tuple[dict, list[float], dict]:
    run = start_run(config)
    losses = []
    for step in range(steps):
        report = train_step(run.model, Ragged(), step, run.optimizer, run.sync, config)
        losses.append(run.sync.mean(report.loss_sum, report.counted))
    return run.model.state_dict(), losses, differing_replicas(run.model)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("grad_accum_steps", [1, 2, 3])
def test_equal_to_a_plain_loop_on_any_number_of_ranks(world_size, grad_accum_steps):
    config = SMALL.with_changes(grad_accum_steps=grad_accum_steps, clip_norm=0.5)
    expected = plain_loop(config, Ragged(), 6).state_dict()
    if world_size == 1:
        results = [our_steps(config, 6)]
    else:
        results = launch(our_steps, config, 6, world_size=world_size)
    for params, losses, differing in results:
        assert differing == {}
        assert losses == results[0][1]
        for name, value in params.items():
            assert (value - expected[name]).abs().max() < 1e-12, name


def _cut_sync(config) -> dict:
    """The mistake that the replica check is for: a rank that forgets the sync."""
    run = start_run(config)
    sync = NoSync() if dist.get_rank() == 1 else Flat(run.model)
    if dist.get_rank() == 1:
        Flat(run.model)  # takes part in the broadcast alone
    for step in range(2):
        with sync.no_sync():
            train_step(run.model, Ragged(), step, run.optimizer, sync, config)
    return differing_replicas(run.model)


def test_replicas_without_sync_drift_and_are_named():
    for differing in launch(_cut_sync, SMALL, world_size=2):
        assert list(differing) == [1]


def test_no_more_than_thirty_lines_and_six_stages():
    lines = inspect.getsource(train_step).split('"""')[2].strip().splitlines()
    assert len(lines) < 30
    clock = StageClock()
    run = start_run(SMALL)
    train_step(run.model, run.data, 0, run.optimizer, run.sync, SMALL, clock.stage)
    assert tuple(clock.time_s) == STAGES
    assert all(time_s > 0 for time_s in clock.time_s.values())


def test_a_norm_that_is_not_finite_changes_nothing():
    run = start_run(SMALL)
    with torch.no_grad():
        next(run.model.parameters())[0, 0] = float("nan")
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    with pytest.raises(FloatingPointError, match="diverged"):
        train_step(run.model, run.data, 0, run.optimizer, run.sync, SMALL)
    for name, value in run.model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("rows", "parts"), [(7, 1), (7, 2), (7, 3), (2, 5), (0, 2), (8, 4)])
def test_micro_batches_are_the_rows_once(rows, parts):
    inputs = torch.arange(rows)[:, None]
    batch = Batch(inputs, inputs, inputs >= 0)
    found = list(micro_batches(batch, parts))
    assert torch.equal(torch.cat([part.inputs for part, _ in found]), inputs)
    assert [last for _, last in found] == [False] * (len(found) - 1) + [True]
    assert len(found) <= parts


def test_schedules():
    rates = [learning_rate(SMALL, step) for step in range(8)]
    assert max(rates) == SMALL.peak_lr == rates[3]
    constant = SMALL.with_changes(schedule="constant")
    rates = [learning_rate(constant, step) for step in range(8)]
    assert rates[:4] == pytest.approx([SMALL.peak_lr * k / 4 for k in (1, 2, 3, 4)])
    assert set(rates[3:]) == {SMALL.peak_lr}
    short = SMALL.with_changes(steps=1, warmup_steps=60)
    assert learning_rate(short, 0) == short.peak_lr


def test_decay_is_for_matrices_only():
    run = start_run(SMALL)
    decayed, left = make_optimizer(SMALL, run.model).param_groups
    assert {param.dim() for param in decayed["params"]} == {2}
    assert {param.dim() for param in left["params"]} == {1}
    assert (decayed["weight_decay"], left["weight_decay"]) == (SMALL.weight_decay, 0.0)
    count = len(decayed["params"]) + len(left["params"])
    assert count == len(list(run.model.parameters()))
