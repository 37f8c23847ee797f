"""Every fault of the table shows what it must, ends, leaves nothing, and the next launch works."""

import multiprocessing
import os
import socket
import subprocess
import sys
import threading

import pytest

from course_lib.bench import _fault_table, _faults
from course_lib.ranks import RankError, launch, run_ranks

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("case", _fault_table.CASES, ids=lambda case: case.name)
def test_a_fault_shows_its_first_cause_and_leaves_ranks_usable(case: _fault_table.Case) -> None:
    shown, _ = _fault_table.try_case(case)
    assert shown.startswith(case.shows) if case.shows else shown == ""
    assert launch(_faults.says_who_it_is, world_size=2) == [0, 1]


def test_an_exception_while_the_ranks_join_is_told(monkeypatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no_such_interface")
    with pytest.raises(RankError, match="rank 0 failed: RuntimeError") as caught:
        launch(_faults.says_who_it_is, world_size=2)
    assert "no_such_interface" in str(caught.value)


def test_a_flood_of_lines_is_capped_and_says_so() -> None:
    outcome = run_ranks(_faults.prints_200000_lines, world_size=1)
    (lines,) = outcome.output
    assert lines[0] == "line 0"
    assert lines[500] == "… 199000 lines left out …"
    assert lines[-1] == "line 199999"
    assert len(lines) == 1001


def test_a_line_without_an_end_is_capped() -> None:
    def work() -> None:
        for _ in range(2000):
            sys.stdout.write("x" * 1000)

    ((line,),) = run_ranks(work, world_size=1).output
    assert line.startswith("x" * 10_000)
    assert len(line) < 10_100


def test_a_progress_bar_leaves_its_last_state() -> None:
    def work() -> None:
        for step in range(3):
            print(f"\rstep {step}", end="")
        print()

    assert run_ranks(work, world_size=1).output == [["step 2"]]


def test_two_launches_at_once_both_work() -> None:
    results = {}

    def start(number: int) -> None:
        results[number] = launch(_faults.says_who_it_is, world_size=2)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [0, 1], 1: [0, 1], 2: [0, 1]}


def test_the_usual_port_may_be_taken() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
        except OSError:
            pass  # somebody else has it: all the better
        assert launch(_faults.says_who_it_is, world_size=2) == [0, 1]


def test_a_start_method_set_by_someone_else_doesn_t_matter() -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    try:
        multiprocessing.set_start_method("fork", force=True)
        assert launch(_faults.says_who_it_is, world_size=2) == [0, 1]
        assert multiprocessing.get_start_method() == "fork"
    finally:
        multiprocessing.set_start_method(before, force=True)


def run_script(text: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter, perhaps inside other walls."""
    command = [*prefix, sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


LAUNCH_16 = "from course_lib.ranks import launch; print(sum(launch(int, world_size=16)))"


def test_256_descriptors_are_enough_for_16_ranks() -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
    done = run_script(limit + LAUNCH_16)
    assert done.stdout.splitlines()[-1:] == ["0"], done.stderr


def can_unshare(*options: str) -> bool:
    """Tell whether this machine lets us put a process into namespaces of its own."""
    try:
        return subprocess.run(["unshare", *options, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_unshare("-u"), reason="needs a host name of its own (unshare -u)")
def test_a_host_name_that_can_t_be_resolved_doesn_t_matter() -> None:
    shell = ("unshare", "-u", "sh", "-c", 'hostname no-such-host.local; exec "$@"', "sh")
    done = run_script(LAUNCH_16.replace("16", "2"), shell)
    assert done.stdout.splitlines()[-1:] == ["0"], done.stderr


@pytest.mark.skipif(not can_unshare("-m"), reason="needs mounts of its own (unshare -m)")
def test_a_small_shared_memory_folder_doesn_t_matter() -> None:
    mount = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    text = (
        "from course_lib.ranks import launch\n"
        "def work():\n"
        "    import torch, torch.distributed as dist\n"
        "    from course_lib.ranks import links\n"
        "    from course_lib.ranks.shared_memory import SharedMemoryLink\n"
        "    other = 1 - dist.get_rank()\n"
        "    incoming = torch.zeros(10**6)\n"
        "    with links.over(SharedMemoryLink()):\n"
        "        links.exchange(torch.ones(10**6), other, incoming, other)\n"
        "    return incoming\n"
        "print([result.sum().item() for result in launch(work, world_size=2)])\n"
    )
    done = run_script(text, ("unshare", "-m", "sh", "-c", mount, "sh"))
    assert done.stdout.splitlines()[-1:] == ["[1000000.0, 1000000.0]"], done.stderr


def test_a_fork_of_the_parent_doesn_t_keep_the_ranks_process_alive() -> None:
    text = (
        "import os, time\n"
        "from course_lib.ranks import launch, processes\n"
        "launch(int, world_size=1)\n"
        "print(processes._zygote.process.pid, flush=True)\n"
        "if os.fork() == 0:\n"
        "    os.close(1); os.close(2)\n"
        "    time.sleep(3)\n"
        "    os._exit(0)\n"
        "os._exit(0)\n"
    )
    done = run_script(text)
    pid = int(done.stdout.split()[0])
    import time

    end_s = time.monotonic() + 2.5
    while time.monotonic() < end_s and os.path.exists(f"/proc/{pid}"):
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")
