"""Flat on real ranks: equal to one process on the whole batch, and to nothing else."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.ranks import launch
from course_lib.sync.data_parallel import (
    Flat,
    NoSync,
    check_replicas,
    differing_replicas,
)


class Tied(nn.Module):
    """A tied, a frozen, an unused and a transposed parameter, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(2))
        self.sometimes = nn.Parameter(torch.randn(3))
        self.turned = nn.Parameter(torch.randn(2, 3).t())
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: torch.Tensor, sometimes: bool = False) -> torch.Tensor:
        y = self.tied(torch.tanh(self.first(x))) * self.frozen + self.shift
        return ((y + self.sometimes) if sometimes else y) @ self.turned


def make_rows(rank: int) -> torch.Tensor:
    """Unequal numbers of rows: rank + 1 of them, all different."""
    return torch.randn(rank + 1, 3, generator=torch.Generator().manual_seed(50 + rank))


def loss_of(model: Tied, rows: torch.Tensor, sometimes: bool = False) -> torch.Tensor:
    return (model(rows, sometimes) ** 2).sum(1).mean()


def gradients(model: nn.Module) -> dict[str, torch.Tensor | None]:
    return {
        name: None if param.grad is None else param.grad.clone()
        for name, param in model.named_parameters()
    }


def _two_steps_on_a_rank(dtype: torch.dtype) -> tuple:
    """Two steps (an unused parameter may only break the second) with a seed of each rank's own."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = Tied().to(dtype)
    before = model.turned.detach().clone()
    sync = Flat(model)
    start = copy.deepcopy(model)
    found = []
    for _ in range(2):
        rows = make_rows(rank).to(dtype)
        # Only the last rank uses `sometimes`: the others must still get its gradient.
        used = rank == dist.get_world_size() - 1
        scale = sync.loss_scale(len(rows))
        (loss_of(model, rows, used) * scale).backward()
        sync.finish()
        found.append(gradients(model))
        with torch.no_grad():
            for param in model.parameters():
                if param.grad is not None:
                    param -= 0.01 * param.grad
        model.zero_grad()
    return start, found, before, differing_replicas(model)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_to_one_process_on_the_whole_batch(world_size, dtype):
    results = launch(_two_steps_on_a_rank, dtype, world_size=world_size)
    model = results[0][0]
    bound = 1e-5 if dtype == torch.float32 else 1e-13
    if world_size > 1:
        assert not torch.equal(results[1][2], results[0][2]), "the seeds were equal: no proof"
    for step in range(2):
        total = sum(
            (model(make_rows(rank).to(dtype), rank == world_size - 1) ** 2).sum()
            for rank in range(world_size)
        )
        model.zero_grad()
        (total / sum(range(1, world_size + 1))).backward()
        for _, found, _, differing in results:
            assert differing == {}
            for name, param in model.named_parameters():
                if param.grad is None:
                    assert found[step][name] is None
                else:
                    torch.testing.assert_close(
                        found[step][name], param.grad, rtol=bound, atol=bound
                    )
        with torch.no_grad():
            for param in model.parameters():
                if param.grad is not None:
                    param -= 0.01 * param.grad


def _unequal_tokens() -> tuple[float, float, float]:
    """Case: x = [1, 2, 3] on rank 0 and [10, 20] on rank 1; the truth is 7.2, not 8.5."""
    rank = dist.get_rank()
    values = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0]][rank] if rank else [1.0, 2.0, 3.0])
    model = nn.Linear(1, 1, bias=False)
    sync = Flat(model)
    loss = (model.weight * values).mean()
    (loss * sync.loss_scale(len(values))).backward()
    sync.finish()
    weighted = model.weight.grad.item()
    model.zero_grad()
    (model.weight * values).mean().backward()
    sync.finish()  # no loss_scale: every rank weighs the same
    return weighted, model.weight.grad.item(), sync.mean(values.sum().item(), len(values))


def test_weighs_ranks_by_what_they_counted():
    for weighted, plain, mean in launch(_unequal_tokens, world_size=2):
        assert weighted == pytest.approx(7.2, abs=1e-6)
        assert plain == pytest.approx(8.5, abs=1e-6)
        assert mean == pytest.approx(7.2, abs=1e-12)


def _accumulate() -> tuple[float, int, list[float]]:
    """Loss sums 4 (1 token) and 6 (3 tokens) on each rank: 2.5 in the mean, one all_reduce."""
    calls = []
    all_reduce = dist.all_reduce
    dist.all_reduce = lambda *args, **kwargs: (calls.append(1), all_reduce(*args, **kwargs))[1]
    try:
        model = nn.Linear(1, 1, bias=False)
        sync = Flat(model)
        scale = sync.loss_scale(4)
        inside = []
        for mean_loss, count, last in ((4.0, 1, False), (2.0, 3, True)):
            loss = model.weight.sum() * mean_loss
            if last:
                (loss * scale * count / 4).backward()
            else:
                with sync.no_sync():
                    (loss * scale * count / 4).backward()
                    sync.finish()
                    inside.append(model.weight.grad.item())
        sync.finish()
    finally:
        dist.all_reduce = all_reduce
    return model.weight.grad.item(), len(calls), inside


def test_accumulation_sends_once_and_weighs_by_tokens():
    for gradient, calls, inside in launch(_accumulate, world_size=2):
        assert gradient == pytest.approx(2.5)
        assert calls == 1
        assert inside == [4.0]  # the sum so far, of this rank alone


def _empty_rank() -> float:
    model = nn.Linear(1, 1, bias=False)
    sync = Flat(model)
    rows = torch.tensor([[3.0], [5.0]])[: 2 * (1 - dist.get_rank())]
    loss = model(rows).sum() / max(1, len(rows)) / model.weight.detach().item()
    (loss * sync.loss_scale(len(rows))).backward()
    sync.finish()
    return model.weight.grad.item() * model.weight.item()


def test_a_rank_without_rows_counts_nothing():
    first, second = launch(_empty_rank, world_size=2)
    assert first == second == pytest.approx(4.0, abs=1e-5)


def _nothing_counted() -> str:
    model = nn.Linear(1, 1)
    sync = Flat(model)
    (model(torch.ones(1, 1)).sum() * sync.loss_scale(0)).backward()
    try:
        sync.finish()
    except ValueError as error:
        return str(error)
    return "no error"


def test_nothing_counted_at_all_is_told():
    assert all("no rank counted" in text for text in launch(_nothing_counted, world_size=2))


def _half_precision() -> float:
    """256 + 1 = 256 in bfloat16: the sum over ranks must be taken in float32."""
    model = nn.Linear(1, 1, bias=False).bfloat16()
    sync = Flat(model)
    model.weight.grad = torch.full((1, 1), [256.0, 1.0, 1.0, 2.0][dist.get_rank()]).bfloat16()
    sync.finish()
    return model.weight.grad.item()


def test_sums_bfloat16_in_float32():
    assert launch(_half_precision, world_size=4) == [65.0] * 4


def _drift() -> tuple[dict, str]:
    torch.manual_seed(0)
    model = Tied()
    Flat(model)
    if dist.get_rank() == 2:
        with torch.no_grad():
            model.first.bias[1] = torch.nextafter(model.first.bias[1], torch.tensor(9.0))
            model.shift[0] = 1e9
    try:
        check_replicas(model)
    except RuntimeError as error:
        return differing_replicas(model), str(error)
    return {}, "no error"


def test_names_the_rank_that_drifted_by_one_bit():
    for differing, text in launch(_drift, world_size=3):
        assert differing == {2: ["first.bias", "shift"]}
        assert "rank 2 in first.bias and 1 more" in text


def _in_a_group() -> float:
    """Ranks 1 and 2 of 3 form a group: rank 0's gradient and weights stay out of it."""
    rank = dist.get_rank()
    group = dist.new_group([1, 2])
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(float(rank))
    if rank:
        sync = Flat(model, group)
        assert model.weight.item() == 1.0
        model.weight.grad = torch.tensor([[10.0 * rank]])
        sync.finish()
        return model.weight.grad.item()
    return model.weight.item()


def test_a_group_of_some_ranks():
    assert launch(_in_a_group, world_size=3) == [0.0, 15.0, 15.0]


def test_one_rank_needs_nothing():
    sync = NoSync()
    model = nn.Linear(2, 1)
    model.weight.grad = torch.ones(1, 2)
    with sync.no_sync():
        sync.finish()
    assert sync.loss_scale(7) == 1.0
    assert sync.mean(9.0, 2) == 4.5
    assert torch.equal(model.weight.grad, torch.ones(1, 2))
    check_replicas(model)


def test_a_module_without_parameters_is_refused():
    with pytest.raises(ValueError, match="no parameter"):
        Flat(nn.ReLU())
