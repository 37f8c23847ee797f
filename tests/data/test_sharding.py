"""Sharding: the ranks together read the data once, in an order that each epoch changes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.data.batch import Batch
from course_lib.data.sharding import epoch_items, epoch_order, rows_per_rank, shard
from course_lib.errors import UserError


def numbered(rows: int) -> Batch:
    inputs = torch.arange(rows)[:, None].expand(rows, 3)
    return Batch(inputs, inputs + 1, torch.ones(rows, 3, dtype=torch.bool))


@given(st.integers(0, 30), st.integers(1, 8))
def test_the_ranks_union_is_the_batch_once(rows: int, world_size: int) -> None:
    parts = [shard(numbered(rows), rank, world_size) for rank in range(world_size)]
    read = [row for part in parts for row in part.inputs[:, 0].tolist()]
    assert sorted(read) == list(range(rows))
    sizes = [len(part.inputs) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_rank_r_takes_every_pth_row_from_r() -> None:
    part = shard(numbered(10), rank=1, world_size=4)
    assert part.inputs[:, 0].tolist() == [1, 5, 9]
    assert part.targets[:, 0].tolist() == [2, 6, 10]


@pytest.mark.parametrize(("rank", "world_size"), [(4, 4), (-1, 4), (0, 0)])
def test_a_rank_that_does_not_exist_is_refused(rank: int, world_size: int) -> None:
    with pytest.raises(ValueError, match=f"rank is {rank}"):
        shard(numbered(4), rank, world_size)


def test_a_batch_that_does_not_divide_is_refused_with_what_does() -> None:
    assert rows_per_rank(256, 4) == 64
    with pytest.raises(UserError, match=r"batch of 255 or 258, or one of 1, 2, 4, 8, .* ranks"):
        rows_per_rank(256, 3)
    with pytest.raises(UserError, match="use a batch of 4, or one of 1, 2 ranks"):
        rows_per_rank(2, 4)


@given(st.integers(1, 50), st.integers(0, 5), st.integers(0, 5))
def test_an_epoch_is_a_permutation(length: int, seed: int, epoch: int) -> None:
    assert sorted(epoch_order(length, seed, epoch)) == list(range(length))


def test_epochs_and_seeds_give_other_orders() -> None:
    orders = {tuple(epoch_order(20, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    with pytest.raises(ValueError, match="read-only"):
        epoch_order(20, 0, 0)[0] = 1


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 40))
def test_reads_cross_from_epoch_to_epoch(length: int, first: int, count: int) -> None:
    epoch, item = epoch_items(length, 7, first, count)
    endless = np.concatenate([epoch_order(length, 7, e) for e in range(90 // length + 1)])
    assert item.tolist() == endless[first : first + count].tolist()
    assert epoch.tolist() == [place // length for place in range(first, first + count)]
