"""launch and %%ranks in a real kernel: cell lines, variables, interrupts, a killed kernel."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.ranks.kernel import Kernel, running_kernel

SET_UP = """
import os, time, torch, torch.distributed as dist
from course_lib.ranks import launch
%load_ext course_lib
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    """One kernel for the tests that leave it usable: that is what they are about."""
    with running_kernel() as one:
        assert one.run(SET_UP).error == ""
        yield one


def below(kernel: Kernel) -> list[psutil.Process]:
    """List the processes below a kernel, the one that ranks are forked from included."""
    return psutil.Process(kernel.manager.provisioner.pid).children(recursive=True)


def test_an_error_shows_the_line_of_its_cell_and_nothing_of_ours(kernel: Kernel) -> None:
    shown = kernel.run(
        "def work():\n"
        "    if dist.get_rank() == 1:\n"
        "        raise ValueError('the width is 7')\n"
        "    dist.barrier()\n"
        "launch(work, world_size=3)"
    )
    assert shown.error_name == "RankError"
    lines = shown.error.splitlines()
    assert lines[0] == "rank 1 failed: ValueError: the width is 7"
    assert lines[1] == "  this cell, line 3, in work"
    assert lines[2] == "    raise ValueError('the width is 7')"
    assert len(shown.traceback.splitlines()) == len(lines)
    assert re.fullmatch(r"  Cell In\[\d+\], line 3, in work", shown.traceback.splitlines()[1])
    kernel.run("def work():\n    raise KeyError('x')")
    shown = kernel.run("launch(work, world_size=2)")
    assert shown.error.splitlines()[1] == "  an earlier cell, line 2, in work"


def test_a_launch_after_heavy_torch_work_in_the_kernel(kernel: Kernel) -> None:
    shown = kernel.run(
        "a = torch.randn(400, 400, requires_grad=True); (a @ a).sum().backward()\n"
        "launch(lambda: (torch.ones(300, 300) @ torch.ones(300, 300))[0, 0].item(), world_size=2)"
    )
    assert shown.text == "[300.0, 300.0]\n"


def test_rank_0_streams_and_the_others_follow_in_order(kernel: Kernel) -> None:
    shown = kernel.run(
        "def work():\n    print('one'); time.sleep(0.02 * (3 - dist.get_rank())); print('two')\n"
        "_ = launch(work, world_size=3)"
    )
    assert shown.text.splitlines() == [
        f"[rank {rank}] {word}" for rank in range(3) for word in ("one", "two")
    ]


def test_variables_stay_on_the_ranks_from_cell_to_cell(kernel: Kernel) -> None:
    shown = kernel.run("%%ranks 4\nx = torch.tensor([10.0 * (rank + 1)])\nx.item()")
    assert shown.text.splitlines() == [f"[rank {r}] {10.0 * (r + 1)}" for r in range(4)]
    shown = kernel.run("%%ranks\ndist.all_reduce(x)\nx /= world_size\nprint(x.item(), device)")
    assert shown.text.splitlines() == [f"[rank {r}] 25.0 cpu" for r in range(4)]
    assert kernel.run("%%ranks --only 1\nx.item()").text == "[rank 1] 25.0\n"
    kernel.run("rate = 0.5\n%ranks push rate")
    kernel.run("%%ranks\ny = rate * rank")
    assert kernel.run("%ranks pull y\ny").text == "[0.0, 0.5, 1.0, 1.5]\n"
    assert kernel.run("%ranks pull y --only 2\ny").text == "1.0\n"


def test_functions_of_a_cell_on_the_ranks_come_back_by_value(kernel: Kernel) -> None:
    kernel.run("%%ranks 2\ndef double(x):\n    return 2 * x")
    assert kernel.run("%ranks pull double\ndouble[1](21)").text == "42\n"


def test_a_failing_cell_leaves_the_ranks_and_their_variables(kernel: Kernel) -> None:
    kernel.run("%%ranks 3\nkept = rank + 1")
    shown = kernel.run(
        "%%ranks\nvalue = torch.ones(2)\nif rank == 1:\n    1 / 0\ndist.all_reduce(value)"
    )
    lines = shown.error.splitlines()
    assert lines[0] == "rank 1 failed: ZeroDivisionError: division by zero"
    assert lines[1] == "  this cell, line 4"
    assert lines[2] == "    1 / 0"
    assert lines[-1] == "the ranks keep their variables and have a new process group"
    shown = kernel.run("%%ranks\nt = torch.tensor(kept); dist.all_reduce(t); t.item()")
    assert shown.text.splitlines() == [f"[rank {rank}] 6" for rank in range(3)]


def test_a_mismatch_ends_in_seconds_and_says_who_waits_where(kernel: Kernel) -> None:
    kernel.run("%%ranks 2\nx = torch.ones(3)")
    start_s = time.monotonic()
    shown = kernel.run("%%ranks\nif rank == 0:\n    dist.all_reduce(x)")
    assert time.monotonic() - start_s < 10
    lines = shown.error.splitlines()
    assert shown.error_name == "RankDeadlockError"
    assert lines[0] == "rank 0 waits for ever"
    assert lines[1].startswith("rank 0 waits in all_reduce number")
    assert lines[1].endswith("(float32[3]): rank 1 has finished")
    assert lines[2] == "  this cell, line 3"
    assert kernel.run("%%ranks\nx.sum().item()").text.splitlines()[1] == "[rank 1] 3.0"


def test_a_rank_that_dies_is_told_and_all_start_again(kernel: Kernel) -> None:
    kernel.run("%%ranks 2\ngone = 1")
    shown = kernel.run("%%ranks\nimport os, signal\nif rank == 1: os.kill(os.getpid(), 9)")
    assert shown.error.startswith("rank 1 failed: killed by SIGKILL")
    assert shown.error.endswith("the ranks are started again: their variables are gone")
    assert kernel.run("%%ranks\n'gone' in globals()").text == "[rank 0] False\n[rank 1] False\n"


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        "dist.recv(torch.zeros(2), 1 - rank) if rank == 0 else time.sleep(1000)",
    ],
)
@pytest.mark.parametrize("moments_s", [(0.3,), (0.2, 0.21)])
def test_an_interrupted_cell_leaves_usable_ranks(kernel: Kernel, source, moments_s) -> None:
    kernel.run("%%ranks 2\nimport time\nkept = rank")
    shown = kernel.run(f"%%ranks\n{source}", moments_s)
    assert shown.error_name == "KeyboardInterrupt"
    assert shown.text.startswith("interrupted; the ranks")
    after = kernel.run("%%ranks\nt = torch.tensor(1); dist.all_reduce(t); t.item()")
    assert after.text == "[rank 0] 2\n[rank 1] 2\n"
    if "keep their variables" in shown.text:
        assert kernel.run("%%ranks\nkept").text == "[rank 0] 0\n[rank 1] 1\n"


@pytest.mark.parametrize("moment_s", [0.0, 0.01, 0.03, 0.05, 0.08, 0.12, 0.2])
def test_an_interrupt_at_any_moment_of_a_launch(kernel: Kernel, moment_s: float) -> None:
    kernel.run("%ranks stop")
    before = len(below(kernel))
    shown = kernel.run(
        "launch(lambda: dist.recv(torch.zeros(2), 1 - dist.get_rank()), world_size=2)",
        (moment_s, moment_s + 0.005),
    )
    assert shown.error_name == "KeyboardInterrupt"
    assert kernel.run("launch(dist.get_rank, world_size=2)").text == "[0, 1]\n"
    end_s = time.monotonic() + 2.0
    while len(below(kernel)) > before + 1 and time.monotonic() < end_s:
        time.sleep(0.05)
    assert len(below(kernel)) <= before + 1  # the process that ranks are forked from


def test_wrong_words_are_refused_in_one_sentence(kernel: Kernel) -> None:
    for source, words in (
        ("%%ranks four\n1", "'four' is not a number of ranks"),
        ("%%ranks 0\n1", "world_size is 0"),
        ("%%ranks 2 3\n1", "'2 3' is not one number of ranks"),
        ("%%ranks 2 --only 5\n1", "there is no rank 5: the ranks are 0 to 1"),
        ("%%ranks --timeout soon\n1", "'soon' is not a number of seconds"),
        ("%%ranks --who 1\n1", "'--who' is not known here"),
        ("%ranks push no_such_name", "the notebook has no variable 'no_such_name'"),
        ("%ranks jump", "%ranks 'jump' is not known"),
    ):
        shown = kernel.run(source)
        assert shown.error_name == "UserError"
        assert shown.error.startswith(words)
        assert "\n" not in shown.traceback


def test_status_gives_every_choice_with_its_reason(kernel: Kernel) -> None:
    kernel.run("%%ranks 2\nwidth = 3")
    text = kernel.run("%ranks status").text
    for word in ("backend", "gloo", "threads each", "usable CPUs // 2 ranks", "interface", "store"):
        assert word in text
    assert "variables: width" in text
    kernel.run("%ranks stop")
    assert kernel.run("%ranks").text.startswith("no ranks are running")


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_nothing_listens_beyond_loopback_while_ranks_run(kernel: Kernel) -> None:
    kernel.run("%%ranks 4\ndist.barrier()")
    listening = [
        connection.laddr.ip
        for process in below(kernel)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_kernel_takes_its_ranks_with_it(number: int) -> None:
    with running_kernel() as kernel:
        kernel.run(SET_UP)
        kernel.run("%%ranks 2\nimport subprocess\nsubprocess.Popen(['sleep', '1000'])\nrank")
        kernel.client.execute("launch(lambda: time.sleep(1000), world_size=2)")
        time.sleep(1.0)
        processes = below(kernel)
        assert len(processes) >= 7  # the zygote, four ranks, two of their own
        os.kill(kernel.manager.provisioner.pid, number)
        _, alive = psutil.wait_procs(processes, timeout=5)
        assert alive == []


def test_many_launches_and_cells_leave_nothing_behind(kernel: Kernel) -> None:
    kernel.run("%%ranks 2\nx = torch.ones(1000)")
    kernel.run("for _ in range(3): launch(dist.get_rank, world_size=2)")
    count = (
        "import gc, threading; gc.collect()\n"
        "print(len(os.listdir('/proc/self/fd')), threading.active_count())"
    )
    seen = []
    for _ in range(3):
        kernel.run("for _ in range(8): launch(dist.get_rank, world_size=2)")
        for _ in range(20):
            kernel.run("%%ranks\ndist.all_reduce(x)")
        seen.append((kernel.run(count).text, len(below(kernel))))
    assert seen[1] == seen[2]  # the first round may load what is loaded once
