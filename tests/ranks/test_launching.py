"""launch: results, output, errors, limits, and nothing left behind."""

import os
import signal
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist

from course_lib.errors import UserError
from course_lib.ranks import RankError, RankTimeoutError, launch, run_ranks, runtime

pytestmark = pytest.mark.usefixtures("nothing_left")


def sum_of_ranks(start: float) -> float:
    value = torch.tensor([start + dist.get_rank()])
    dist.all_reduce(value)
    return value.item()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_are_real_and_results_come_in_rank_order(world_size: int) -> None:
    expected = sum(10.0 + rank for rank in range(world_size))
    assert launch(sum_of_ranks, 10.0, world_size=world_size) == [expected] * world_size

    def who() -> tuple[int, int, int]:
        return dist.get_rank(), dist.get_world_size(), os.getpid()

    rows = launch(who, world_size=world_size)
    assert [row[:2] for row in rows] == [(rank, world_size) for rank in range(world_size)]
    assert len({row[2] for row in rows} | {os.getpid()}) == world_size + 1


def test_a_launch_after_heavy_torch_work_does_not_freeze() -> None:
    weight = torch.randn(256, 256, requires_grad=True)
    (weight @ weight).sum().backward()

    def work() -> float:
        inner = torch.ones(256, 256, requires_grad=True)
        (inner @ inner).sum().backward()
        assert inner.grad is not None
        return inner.grad[0, 0].item()

    assert launch(work, world_size=2) == [512.0, 512.0]


def test_helpers_globals_and_a_script_s_main_travel_by_value(tmp_path) -> None:
    script = tmp_path / "learner.py"
    script.write_text(
        "print('the script starts')\n"
        "from course_lib.ranks import launch\n"
        "factor = 3\n"
        "def helper(x): return factor * x\n"
        "def work(x):\n"
        "    import torch.distributed as dist\n"
        "    return helper(x) + dist.get_rank()\n"
        "print(launch(work, 5, world_size=2))\n"
    )
    import subprocess

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "the script starts\n[15, 16]\n", done.stderr


def test_output_comes_in_rank_order_with_prefixes(capfd) -> None:
    def speak() -> None:
        time.sleep(0.05 * (3 - dist.get_rank()))
        print("first", dist.get_rank())
        os.write(1, b"from C\n")
        print("no newline at the end", end="", file=sys.stderr)

    launch(speak, world_size=3)
    lines = capfd.readouterr().out.splitlines()
    expected = []
    for rank in range(3):
        for text in (f"first {rank}", "from C", "no newline at the end"):
            expected.append(f"[rank {rank}] {text}")
    assert lines == expected


def test_the_first_cause_comes_first_with_rank_and_line() -> None:
    def work() -> None:
        if dist.get_rank() == 2:
            raise ValueError("the width is 7")
        dist.all_reduce(torch.ones(4))

    with pytest.raises(RankError) as caught:
        launch(work, world_size=4)
    lines = str(caught.value).splitlines()
    assert lines[0] == "rank 2 failed: ValueError: the width is 7"
    assert lines[1].endswith(f"line {work.__code__.co_firstlineno + 2}, in work")
    assert lines[2].strip() == 'raise ValueError("the width is 7")'
    assert lines[3] == "ranks 0, 1 and 3: lost the connection, a consequence"
    assert caught.value.rank == 2


def test_ranks_that_fail_alike_are_told_once() -> None:
    def work() -> None:
        raise KeyError("x")

    with pytest.raises(RankError) as caught:
        launch(work, world_size=3)
    lines = str(caught.value).splitlines()
    assert lines[0] == "rank 0 failed: KeyError: 'x'"
    assert lines[-1] == "ranks 1 and 2: failed in the same way"


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGKILL, "out of memory"), (signal.SIGSEGV, "compiled code")]
)
def test_a_killed_rank_gives_its_signal_s_name(number: int, words: str) -> None:
    def work() -> None:
        if dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        dist.barrier()

    with pytest.raises(RankError) as caught:
        launch(work, world_size=3)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"rank 1 failed: killed by {signal.Signals(number).name}")
    assert words in first


def test_sys_exit_is_a_failure_with_its_code() -> None:
    with pytest.raises(RankError, match=r"rank 0 failed: SystemExit: sys.exit\(3\) was called"):
        launch(lambda: sys.exit(3), world_size=2)


def test_the_time_limit_says_where_each_rank_was() -> None:
    def work() -> int:
        while dist.get_rank() == 1:
            pass
        return 1

    with pytest.raises(RankTimeoutError) as caught:
        launch(work, world_size=2, timeout_s=0.8)
    lines = str(caught.value).splitlines()
    assert lines[0] == "the ranks did not end within 0.8 s"
    assert "rank 0 had finished" in lines
    assert any("in work" in line for line in lines)


def test_an_interrupt_twice_in_a_row_ends_every_rank(capsys) -> None:
    def wait_for_each_other() -> None:
        runtime.emit("about to wait")
        dist.recv(torch.zeros(2), (dist.get_rank() + 1) % dist.get_world_size())

    def interrupt(rank: int, event: object) -> None:
        if rank == 0:  # from here on, launch watches its ranks
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        launch(wait_for_each_other, world_size=3, on_event=interrupt)
    assert "interrupted: 3 ranks ended, none is left" in capsys.readouterr().out
    assert launch(sum_of_ranks, 0.0, world_size=2) == [1.0, 1.0]


def test_what_can_t_be_sent_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(UserError, match=r"the captured variable 'lock' \(lock\) can't be sent"):
        launch(lambda: lock)
    with pytest.raises(UserError, match=r"argument 2 \(lock\) can't be sent"):
        launch(sum_of_ranks, 1.0, threading.Lock())
    with pytest.raises(RankError, match=r"the result \(lock\) can't be sent back"):
        launch(lambda: threading.Lock(), world_size=2)


@pytest.mark.parametrize("world_size", [0, -1, "four", True, 2.0, None, 65])
def test_a_wrong_world_size_is_refused_by_name(world_size: object) -> None:
    with pytest.raises(UserError, match="world_size is") as caught:
        launch(sum_of_ranks, 0.0, world_size=world_size)  # type: ignore[arg-type]
    assert repr(world_size) in str(caught.value)


@pytest.mark.parametrize("timeout_s", [0, -1.0, "long", float("nan"), True])
def test_a_wrong_time_limit_is_refused_by_name(timeout_s: object) -> None:
    with pytest.raises(UserError, match="timeout_s is"):
        launch(sum_of_ranks, 0.0, timeout_s=timeout_s)  # type: ignore[arg-type]


def test_launch_inside_launch_is_refused() -> None:
    with pytest.raises(UserError, match="called inside rank 0"):
        launch(lambda: launch(sum_of_ranks, 0.0), world_size=1)


def test_run_ranks_never_raises_and_tells_everything(capsys) -> None:
    def work() -> str:
        print("before")
        if dist.get_rank() == 1:
            raise OSError("disk full")
        return "fine"

    outcome = run_ranks(work, world_size=2)
    assert not outcome.ok
    assert outcome.results == ["fine", None]
    assert outcome.output == [["before"], ["before"]]
    assert outcome.first_failure is not None
    assert outcome.first_failure.rank == 1
    assert capsys.readouterr().out == ""


def test_environment_and_seeds_are_those_of_this_moment(monkeypatch) -> None:
    monkeypatch.setenv("COURSE_TEST_WORD", "now")

    def draw() -> tuple[str, float]:
        return os.environ["COURSE_TEST_WORD"], torch.rand(1).item()

    first, again = launch(draw, world_size=2), launch(draw, world_size=2)
    assert first == again
    assert first[0][0] == "now"
    assert first[0][1] != first[1][1]


def test_a_model_comes_back_with_its_gradients() -> None:
    def train() -> torch.nn.Module:
        model = torch.nn.Linear(2, 1)
        model(torch.ones(2)).sum().backward()
        return model

    (model,) = launch(train, world_size=1)
    assert torch.equal(model.weight.grad, torch.ones(1, 2))
    assert isinstance(model.weight, torch.nn.Parameter)


def test_processes_and_threads_that_a_rank_starts_end_with_it() -> None:
    def start_others() -> None:
        import subprocess

        subprocess.Popen(["sleep", "1000"])
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        threading.Thread(target=time.sleep, args=(1000,)).start()

    launch(start_others, world_size=2)


def test_events_of_ranks_reach_the_parent() -> None:
    events = []

    def work() -> None:
        from course_lib.ranks import runtime

        runtime.emit({"step": 1})

    launch(work, world_size=1, on_event=lambda rank, event: events.append((rank, event)))
    assert events == [(0, {"step": 1})]


@pytest.mark.parametrize(("relays", "store"), [(False, "tcp"), (True, "file")])
def test_spawned_ranks_serve_again_and_end_when_told(capsys, monkeypatch, relays, store) -> None:
    """As on macOS, and (with a relayed output and a store in a file) as on Windows."""
    from course_lib.ranks import placement, processes, spawned_rank

    monkeypatch.setattr(spawned_rank, "RELAYS_OUTPUT", relays)
    monkeypatch.setattr(placement, "choose_store", lambda: placement.Choice(store, "a test"))

    def who() -> int:
        print("here")
        return os.getpid()

    first = run_ranks(who, world_size=2, start="spawn", quiet=False)
    second = run_ranks(who, world_size=2, start="spawn")
    assert set(first.results) == set(second.results)
    assert capsys.readouterr().out == "[rank 0] here\n[rank 1] here\n"
    processes.end_ranks(list(processes._idle_spawned))
    processes._idle_spawned.clear()
