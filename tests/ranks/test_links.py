"""links: the same ring over every link, counted the same way; latency and rate as asked for."""

import time

import pytest
import torch
import torch.distributed as dist

from course_lib import trace
from course_lib.ranks import RankDeadlockError, RankError, launch, links
from course_lib.ranks.links import GroupLink, Throttled
from course_lib.ranks.shared_memory import RING_BYTES, SharedMemoryLink

LINKS = {
    "group": GroupLink,
    "shared": SharedMemoryLink,
    "throttled": lambda: Throttled(1e-4, 1e9),
    "throttled shared": lambda: Throttled(1e-4, 1e9, SharedMemoryLink()),
}


def pass_around(name: str, length: int) -> tuple[list[float], int, int]:
    """Send each rank's tensor once around; return what came, and what was counted."""
    rank, size = dist.get_rank(), dist.get_world_size()
    seen = []
    outgoing = torch.arange(length, dtype=torch.float64) + 1000.0 * rank
    with trace.record() as recorded, links.over(LINKS[name]()):
        for _ in range(size - 1):
            incoming = torch.full_like(outgoing, -1.0)
            links.exchange(outgoing, (rank + 1) % size, incoming, (rank - 1) % size)
            seen.append(incoming.sum().item())
            outgoing = incoming
    return seen, recorded.sent_bytes(), recorded.sent_messages()


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("world_size", [2, 3])
def test_every_link_carries_the_same_and_counts_the_same(name: str, world_size: int) -> None:
    length = 300_000 if "shared" in name else 1000  # larger than a ring of shared memory
    assert length * 8 > RING_BYTES or "shared" not in name
    rows = launch(pass_around, name, length, world_size=world_size)
    base = float(sum(range(length)))
    for rank, (seen, sent_bytes, messages) in enumerate(rows):
        sources = [(rank - step) % world_size for step in range(1, world_size)]
        assert seen == [base + 1000.0 * source * length for source in sources]
        assert sent_bytes == (world_size - 1) * length * 8
        assert messages == world_size - 1


@pytest.mark.parametrize("name", LINKS)
def test_messages_of_a_pair_stay_in_order_and_may_be_empty(name: str) -> None:
    def work() -> list[list[float]]:
        outgoing = [torch.full((size,), float(size)) for size in (3, 0, 1, 5)]
        incoming = [torch.zeros(size) for size in (3, 0, 1, 5)]
        with links.over(LINKS[name]()):
            if dist.get_rank() == 0:
                works = [links.isend(tensor, 1) for tensor in outgoing]
            else:
                works = [links.irecv(tensor, 0) for tensor in incoming]
            for one in reversed(works):
                one.wait()
            dist.barrier()
        return [tensor.tolist() for tensor in incoming]

    assert launch(work, world_size=2)[1] == [[3.0] * 3, [], [1.0], [5.0] * 5]


def test_a_throttled_link_keeps_to_its_latency_and_rate() -> None:
    def work() -> tuple[float, float]:
        tensor = torch.ones(25_000)  # 100,000 bytes: 0.1 s at 1 MB/s
        with links.over(Throttled(0.05, 1e6)):
            dist.barrier()
            start_s = time.monotonic()
            for _ in range(2):
                if dist.get_rank() == 0:
                    links.send(tensor, 1)
                else:
                    links.recv(tensor, 0)
            return start_s, time.monotonic()

    (start_s, sent_s), (_, received_s) = launch(work, world_size=2)
    # Lower bounds only: two messages leave one after the other, and the last arrives late.
    assert sent_s - start_s >= 0.2
    assert received_s - start_s >= 0.25


@pytest.mark.parametrize("name", LINKS)
def test_a_link_on_which_all_receive_first_is_told_as_a_deadlock(name: str) -> None:
    def work() -> None:
        with links.over(LINKS[name]()):
            links.recv(torch.zeros(4), 1 - dist.get_rank())

    with pytest.raises(RankDeadlockError) as caught:
        launch(work, world_size=2)
    assert "rank 0 waits in recv from rank 1 (float32[4])" in str(caught.value)


def test_shared_memory_refuses_two_sizes_and_names_both() -> None:
    def work() -> None:
        with links.over(SharedMemoryLink()):
            if dist.get_rank() == 0:
                links.send(torch.ones(10), 1)
            else:
                links.recv(torch.ones(5), 0)

    with pytest.raises(RankError, match=r"rank 0 sent 40 bytes, but rank 1 receives into .* 20"):
        launch(work, world_size=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: links.send(torch.ones(2), 0), "rank 0 can't send to rank 0"),
        (lambda: links.recv(torch.ones(2), 7), "rank 0 can't receive from rank 7"),
    ],
)
def test_a_rank_that_is_not_there_is_refused_by_number(call, words: str) -> None:
    with pytest.raises(RankError, match=words):
        launch(call, world_size=1)


def test_wrong_speeds_are_refused() -> None:
    with pytest.raises(ValueError, match="latency_s is -1"):
        Throttled(-1.0, 1e6)
    with pytest.raises(ValueError, match="bandwidth_bytes_per_s is 0"):
        Throttled(0.0, 0.0)


def test_a_tensor_with_gaps_is_refused() -> None:
    def work() -> None:
        links.send(torch.ones(4, 4).t(), 1 - dist.get_rank())

    with pytest.raises(RankError, match=r"strides \(1, 4\) is not contiguous"):
        launch(work, world_size=2)
