"""Choices about a group of ranks, on machines that are not at hand: GPUs, macOS, Windows."""

import pytest

from course_lib.ranks import placement


@pytest.mark.parametrize(
    ("world_size", "gpus", "nccl", "device", "backend", "word"),
    [
        (4, 0, True, None, "gloo", "no GPU"),
        (4, 8, True, None, "nccl", "8 visible GPUs for 4 ranks"),
        (4, 4, True, None, "nccl", "4 visible"),
        (4, 1, True, None, "gloo", "4 ranks but 1 visible GPU:"),
        (2, 8, False, None, "gloo", "no NCCL"),
        (2, 8, True, "cpu", "gloo", "was asked for"),
        (2, 1, True, "cuda", "gloo", "needs a GPU for each rank"),
    ],
)
def test_nccl_only_where_each_rank_has_a_gpu(world_size, gpus, nccl, device, backend, word) -> None:
    choice = placement.choose_backend(world_size, gpus, nccl, device)
    assert choice.value == backend
    assert word in choice.reason


@pytest.mark.parametrize(
    ("ranks", "cpus", "environment", "threads"),
    [
        (1, 2, {}, "2"),
        (2, 2, {}, "1"),
        (4, 2, {}, "1"),
        (4, 16, {}, "4"),
        (4, 16, {"OMP_NUM_THREADS": "2"}, "2"),
        (4, 16, {"OMP_NUM_THREADS": "9"}, "4"),
        (4, 16, {"OMP_NUM_THREADS": "many"}, "4"),
    ],
)
def test_threads_share_the_cores(ranks, cpus, environment, threads) -> None:
    assert placement.choose_threads(ranks, cpus, environment).value == threads


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["lo", "eth0"], "lo"), (["en0", "lo0"], "lo0"), (["eth0"], None), ([], None)],
)
def test_the_loopback_interface_is_the_one_that_exists(names, expected) -> None:
    choice = placement.choose_interface({}, names)
    assert (choice and choice.value) == expected


def test_the_user_s_own_interface_is_respected() -> None:
    choice = placement.choose_interface({"GLOO_SOCKET_IFNAME": "eth7"}, ["lo"])
    assert choice is not None
    assert choice.value == "eth7"


@pytest.mark.parametrize(
    ("platform", "start", "store"),
    [("linux", "fork", "tcp"), ("darwin", "spawn", "tcp"), ("win32", "spawn", "file")],
)
def test_each_platform_starts_ranks_in_a_way_that_is_safe_there(platform, start, store) -> None:
    assert placement.choose_start(platform).value == start
    assert placement.choose_store(platform).value == store


def test_a_store_file_is_removed_again(monkeypatch) -> None:
    import os

    monkeypatch.setattr(placement, "choose_store", lambda: placement.Choice("file", "a test"))
    with placement.store_file() as path:
        open(path, "w").close()
        assert os.path.exists(path)
    assert not os.path.exists(os.path.dirname(path))
