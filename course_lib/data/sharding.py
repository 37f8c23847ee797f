"""Which rank reads which rows, and in which order an epoch goes: data stage, many ranks.

Two rules hold everywhere. The global batch is a function of (seed, step) alone, never of the
number of ranks; and rank r takes every P-th row from row r. So the ranks together read the same
rows on 1, 2 or 4 ranks, each row once.

P is the number of ranks (world_size), B the rows of a batch.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.data.batch import Batch
from course_lib.errors import UserError


def shard(batch: Batch, rank: int, world_size: int) -> Batch:
    """Return the rows of the global batch that one rank reads: rows r, r + P, r + 2P, ...

    Args:
        batch: the global batch, equal on all ranks; not changed.
        rank: r, from 0 to world_size - 1.
        world_size: P.

    Returns:
        Views of the chosen rows. With B rows, rank r gets ceil((B - r) / P) of them, perhaps none.

    Raises:
        ValueError: rank is not one of 0 .. world_size - 1.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}, but the ranks are 0 to {world_size - 1}.")
    return batch.rows(slice(rank, None, world_size))


def rows_per_rank(batch_size: int, world_size: int) -> int:
    """Return B / P, how many rows each rank reads.

    Raises:
        UserError: the ranks don't divide the batch; the sentence lists the batch sizes and ranks
            that do.
    """
    if batch_size % world_size:
        below = batch_size // world_size * world_size
        sizes = [size for size in (below, below + world_size) if size > 0]
        ranks = [p for p in range(1, min(batch_size, 64) + 1) if batch_size % p == 0]
        raise UserError(
            f"batch size {batch_size} can't be dealt out to {world_size} ranks in equal parts: "
            f"use a batch of {' or '.join(map(str, sizes))}, "
            f"or one of {', '.join(map(str, ranks))} ranks."
        )
    return batch_size // world_size


@functools.lru_cache(maxsize=4)
def epoch_order(length: int, seed: int, epoch: int) -> Int[np.ndarray, "N"]:
    """Return the order in which an epoch goes through `length` items: a permutation by (seed,
    epoch).

    Equal on all ranks (it is not seeded by the rank), and another one in each epoch without anybody
    having to remember to say so. Read-only, since it is shared by all callers.
    """
    order = np.random.default_rng([seed, epoch]).permutation(length)
    order.flags.writeable = False
    return order


def epoch_items(length: int, seed: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the epoch and the item of reads number first .. first + count - 1.

    Reading goes on for ever: epoch after epoch, each item once an epoch. A stretch may cross from
        one
    epoch into the next.

    Args:
        length: items in the data set, at least 1.
        seed: decides the order.
        first: how many reads came before, over all ranks and steps: step x B.
        count: how many reads, B.

    Returns:
        epoch (int64, shape [count]) and item (int64, shape [count]).
    """
    position = np.arange(first, first + count)
    epoch, place = np.divmod(position, length)
    item = np.empty(count, dtype=np.int64)
    for each in range(int(epoch[0]), int(epoch[-1]) + 1) if count else ():
        chosen = epoch == each
        item[chosen] = epoch_order(length, seed, each)[place[chosen]]
    return torch.from_numpy(epoch.astype(np.int64)), torch.from_numpy(item)
