"""The job of `course bench launch` as its peers run it: join gloo on four ranks, one all_reduce."""

from __future__ import annotations

import os

SHAPE = (1000,)


def join_and_sum(rank: int, world_size: int, init_method: str = "env://") -> float:
    """Join the group, sum one tensor over all ranks, leave; return an element of the sum."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method, rank=rank, world_size=world_size)
    tensor = torch.ones(SHAPE)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return float(tensor[0])


def spawned(rank: int, world_size: int, init_method: str) -> None:
    """Run as `torch.multiprocessing.spawn` calls it: what is returned is lost there."""
    assert join_and_sum(rank, world_size, init_method) == world_size


def main() -> None:
    """Run as torchrun starts it: who I am stands in the environment."""
    world_size = int(os.environ["WORLD_SIZE"])
    assert join_and_sum(int(os.environ["RANK"]), world_size) == world_size


if __name__ == "__main__":
    main()
