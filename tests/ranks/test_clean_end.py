"""Ranks that end well end quietly: no word of torch on stderr, no abort at exit."""

import torch
import torch.distributed as dist

from course_lib.ranks import run_ranks


def test_a_good_end_prints_nothing_and_never_aborts() -> None:
    def work() -> None:
        dist.all_reduce(torch.ones(1000))
        sending = dist.isend(torch.ones(3), (dist.get_rank() + 1) % 4)
        dist.recv(torch.ones(3))
        sending.wait()

    for _ in range(6):
        outcome = run_ranks(work, world_size=4)
        assert outcome.ok
        assert outcome.output == [[], [], [], []]
        assert all(rank.closed for rank in outcome.ranks)
