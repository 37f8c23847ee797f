"""What a learner's code may do to its ranks: the functions of the table of faults.

They run in ranks and import there what they need, as a cell would.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any


def _rank() -> int:
    return int(os.environ["RANK"])


def raises_on_one() -> None:
    """Rank 1 raises while the others wait for it."""
    import torch
    import torch.distributed as dist

    if _rank() == 1:
        raise ValueError("the width is 7")
    dist.all_reduce(torch.ones(4))


def raises_on_all() -> None:
    """Every rank raises the same."""
    raise KeyError("learning_rate")


def raises_at_the_end() -> None:
    """One rank raises after the last barrier, when the others have finished."""
    import torch.distributed as dist

    dist.barrier()
    if _rank() == 2:
        time.sleep(0.2)
        raise RuntimeError("too late")


def exits() -> None:
    """One rank leaves by sys.exit."""
    import torch.distributed as dist

    if _rank() == 3:
        sys.exit(3)
    dist.barrier()


def is_killed() -> None:
    """One rank gets SIGKILL, as from a system without memory."""
    import torch.distributed as dist

    if _rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def crashes() -> None:
    """One rank reads where there is no memory."""
    import ctypes

    import torch.distributed as dist

    if _rank() == 1:
        ctypes.string_at(0)
    dist.barrier()


def never_ends() -> None:
    """One rank runs an endless loop."""
    while _rank() == 1:
        pass


def different_collectives() -> None:
    """One rank broadcasts while the others reduce."""
    import torch
    import torch.distributed as dist

    if _rank() == 0:
        dist.broadcast(torch.ones(4), 0)
    else:
        dist.all_reduce(torch.ones(4))


def different_sizes() -> None:
    """The ranks reduce tensors of different sizes."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(1000 * (1 + _rank())))


def one_stays_away() -> None:
    """One rank doesn't take part in the all_reduce."""
    import torch
    import torch.distributed as dist

    if _rank() != 1:
        dist.all_reduce(torch.ones(4))


def all_receive_first() -> None:
    """Everyone receives before it sends."""
    import torch
    import torch.distributed as dist

    size = dist.get_world_size()
    dist.recv(torch.ones(10), (_rank() - 1) % size)
    dist.send(torch.ones(10), (_rank() + 1) % size)


def all_send_first() -> None:
    """Everyone sends before it receives."""
    import torch
    import torch.distributed as dist

    size = dist.get_world_size()
    dist.send(torch.ones(10), (_rank() + 1) % size)
    dist.recv(torch.ones(10), (_rank() - 1) % size)


def returns_a_lock() -> Any:
    """The result can't be pickled."""
    return threading.Lock()


def returns_200_mb() -> Any:
    """The result of rank 0 has 200 MB."""
    import torch

    return torch.ones(50_000_000) if _rank() == 0 else None


def prints_200000_lines() -> None:
    """Every rank prints 200,000 lines."""
    for number in range(200_000):
        print("line", number)


def starts_others() -> None:
    """Every rank starts a thread and two processes and leaves them behind."""
    import subprocess

    threading.Thread(target=time.sleep, args=(1000,)).start()
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sleep", "1000"], start_new_session=True)


def launches_again() -> Any:
    """A rank calls launch."""
    from course_lib.ranks import launch

    return launch(raises_on_all)


def says_who_it_is() -> int:
    """Nothing goes wrong."""
    return _rank()
